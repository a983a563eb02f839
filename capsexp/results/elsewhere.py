"""Accuracies that other code measured, from the CSV file that a study's row names: `elsewhere: others.csv`.

The file lies beside the study's, and has a line per run: name (of the row), accuracy (percent), seed. How these runs
were trained isn't known here: they stand in the table, marked, and are never compared with runs of this package.
"""

import csv
from pathlib import Path

from capsexp.config.checks import nearest
from capsexp.config.searchpath import choices
from capsexp.errors import InputError, first_line
from capsexp.results.runs import Run
from capsexp.study.setting import Setting
from capsexp.study.studies import Row, Study

COLUMNS = ["name", "accuracy", "seed"]

#: Of no run of this package, so that no number of theirs meets one of ours in a mean or a claim.
SETTING = Setting(None, None, None, 1.0, "run by other code", "", 0)


def runs(study: Study) -> list[tuple[str, Run]]:
    """The runs of a study's rows from elsewhere, each with its row's name; raises InputError."""
    return [
        (
            row.name,
            Run(
                name=row.name,
                key=f"{row.elsewhere}:{seed}",
                condition=f"{study.name} {row.name}",
                setting=SETTING,
                protocol="paper",
                seed=seed,
                state="finished",
                measures={"accuracy": accuracy},
                selected_by=accuracy,
                dataset=row.elsewhere,
                official=True,
                device="another machine",
            ),
        )
        for row in study.rows
        if row.elsewhere
        for seed, accuracy in _accuracies(choices("study")[study.name].parent / row.elsewhere, row).items()
    ]


def _accuracies(path: Path, row: Row) -> dict[int, float]:
    """The accuracy of each seed of a row."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            table = csv.DictReader(stream)
            if sorted(table.fieldnames or []) != sorted(COLUMNS):
                raise InputError(f"{path}: must have the columns {', '.join(COLUMNS)}")
            read = [(number, line) for number, line in enumerate(table, 2)]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: {first_line(error)}") from None
    accuracies: dict[int, float] = {}
    for number, line in read:
        if line["name"] == row.name:
            try:
                seed, accuracy = int(line["seed"]), float(line["accuracy"])
                if seed < 0 or seed in accuracies or not 0 <= accuracy <= 100:
                    raise ValueError(line)
            except (TypeError, ValueError):
                wrong = "must have an accuracy in percent and a seed of its own"
                raise InputError(f"{path}: line {number}: {wrong}") from None
            accuracies[seed] = accuracy
    if not accuracies:
        names = {str(line["name"]) for _, line in read}
        raise InputError(f"{path}: no {row.name}{nearest(row.name, names)}")
    return accuracies
