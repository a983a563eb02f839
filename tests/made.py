"""Made-up records and studies for tests of what is generated from records."""

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import composed_config

from capsexp.config.schema import Config
from capsexp.results.cells import Cell, MeasuredRow
from capsexp.results.runs import run_of
from capsexp.results.study import StudyResults, measure
from capsexp.run import keys, records
from capsexp.run.records import Record
from capsexp.study import studies
from capsexp.study.studies import Claim, Row, Setting, Study

GPU = "NVIDIA H200"
PLAIN = "model=capsnet data=mnist attention=none"
CBAM = "model=capsnet data=mnist attention=cbam"
SWEPT = "model=capsnet data=mnist attention=none routing.iterations=1,2,3"
SHORT = "budget.epochs=2"  # the words of a made-up study's laptop setting


@cache
def _config(run: str) -> Config:
    return composed_config(*run.split())


def run(
    words: str,
    seed: int,
    accuracies: Sequence[float] = (90.0,),
    *,
    tested: float = 0.0,
    precision: str = "bf16",
    note: str | None = None,
    failed: bool = False,
    seconds_per_epoch: float = 60.0,
    **changed: Any,
) -> Record:
    """A record of a command line. `accuracies`: epoch by epoch, on the test set or, under heldout, the held-out one.

    Args:
        tested: under heldout, the accuracy of the chosen epoch on the test set.
        changed: fields of the record, or of its provenance.
    """
    config = dataclasses.replace(_config(words), seed=seed)
    identity = keys.identity(config, precision, note)
    paper = config.protocol == "paper"
    part = "test" if paper else "heldout"
    epochs = [_epoch(number, part, accuracy, seconds_per_epoch) for number, accuracy in enumerate(accuracies, 1)]
    provenance = {
        "command": f"python -m capsexp {words} seed={seed}",
        "device": GPU,
        "started": "2026-01-01T00:00:00+00:00",
        "load": None,
        "threads": None,
    }
    fields = {key: value for key, value in changed.items() if key not in provenance}
    record = Record(
        key=keys.key_of(identity),
        status="failed" if failed else "finished",
        error="diverged" if failed else None,
        identity=identity,
        config=keys.stored_config(config),
        epochs=epochs,
        heldout_accuracy=None if paper else tested,
        parameters=6_804_224,
        peak_memory_mb={"device": 1000.0, "host": 2000.0},
        data={"note": note, "checksum": "0"},
        provenance=provenance | {key: value for key, value in changed.items() if key in provenance},
    )
    return dataclasses.replace(record, **fields)


def runs(words: str, maxima: Sequence[float], **changed: Any) -> list[Record]:
    """Runs with seeds 0, 1, 2 … of one epoch each."""
    return [run(words, seed, [maximum], **changed) for seed, maximum in enumerate(maxima)]


def study(*rows: Row, claims: Sequence[Claim] = (), **changed: Any) -> Study:
    """A study of rows; of two CapsNets where none are given."""
    whole = Study(
        name="made_table1",
        title="A table",
        source="made",
        table="Table 1",
        protocol='"Their words"',
        columns=["network"],
        measures=["accuracy", "first_epoch"],
        rows=list(rows) or [row("A", PLAIN, accuracy="99.80", first_epoch="7"), row("B", CBAM, accuracy="99.90")],
        paper=Setting("250 epochs of all images"),
        laptop=Setting("2 epochs of all images", SHORT),
        deviations=["The batch size is not in the paper."],
        claims=list(claims),
    )
    return dataclasses.replace(whole, **changed)


def row(name: str, words: str | None, note: str | None = None, **published: str) -> Row:
    """A row with one label."""
    return Row([name], words, published, note)


def claim(estimate: str = "difference", claimed: str = "increase", **changed: Any) -> Claim:
    """A claim about the rows A and B."""
    compared = {"rows": ["A", "B"]} if estimate == "slope" else {"pairs": [["A", "B"]]}
    fields: dict[str, Any] = {"text": "B is better", "measure": "accuracy", "estimate": estimate, "claimed": claimed}
    return Claim(**(fields | compared | changed))


def results(made: Study, found: Sequence[Record], typed: Sequence[str] = ()) -> StudyResults:
    """What these records give for a study."""
    return measure([made], [*map(run_of, found)], typed)[0]


def line(made: StudyResults, name: str, setting: str = "") -> MeasuredRow:
    """A row in a setting; in the first without one, which is the paper's or the typed one."""
    of_setting = next(one for one in made.blocks if setting in ("", one.block.name))
    (found,) = (one for one in of_setting.lines if one.row.name == name)
    return found


def cell(made: StudyResults, name: str, measure: str = "accuracy", *, setting: str = "") -> Cell:
    """A row's cell in a setting, as of `line`."""
    return line(made, name, setting).cells[measure]


def write(results: Path, found: Sequence[Record]) -> list[Path]:
    """The records' files; in a finished one, the last epoch is repeated until all of its configuration are there."""
    paths = [results / "runs" / f"{keys.name_of(record.identity)}.json" for record in found]
    for record, path in zip(found, paths, strict=True):
        whole = record.config["budget"]["epochs"] or record.config["optim"]["epochs"]
        more = range(len(record.epochs) + 1, whole + 1) if record.status == "finished" else ()
        added = [record.epochs[-1] | {"epoch": number} for number in more]
        records.write(dataclasses.replace(record, epochs=record.epochs + added), path)
    return paths


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, **commands: str) -> Path:
    """A folder with a study of one row for each name and command, which are the only ones; it is the present one."""
    (folder / "conf" / "study").mkdir(parents=True)
    for name, words in commands.items():
        made = {"title": "A table", "source": "made", "table": "Table 1", "protocol": "Their words"}
        rows = [{"labels": ["A"], "run": words, "published": {"accuracy": "99.80"}}]
        content = {**made, "columns": ["network"], "measures": ["accuracy"], "rows": rows}
        (folder / "conf" / "study" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    files = folder / "conf" / "study"
    monkeypatch.setattr(studies, "choices", lambda group: {path.stem: path for path in sorted(files.glob("*.yaml"))})
    monkeypatch.chdir(folder)
    return folder


def _epoch(number: int, part: str, accuracy: float, seconds: float) -> dict[str, Any]:
    return {
        "epoch": number,
        "learning_rate": 0.001,
        "train_loss": 0.1,
        "train_accuracy": 90.0,
        f"{part}_loss": 0.1,
        f"{part}_accuracy": accuracy,
        "train_seconds": seconds - 10.0,
        f"{part}_seconds": 10.0,
    }
