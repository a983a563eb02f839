"""Keeps the best network of a run of each table's row, in half precision, and lists them: results/networks.

`make networks` takes them from logs/, `make networks LOGS=DIR` from another folder of runs. A row that has one gets no
other. A network is its record's where the accuracies of its epochs are the same, and their losses but for rounding.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))  # of a clone whose environment isn't made: capsexp says so

from capsexp.cli import exit_with, print_error
from capsexp.errors import DONE, InputError
from capsexp.files import write_file
from capsexp.results import networks, runs
from capsexp.results.cells import ByTraining, MeasuredRow, by_training, rows_of
from capsexp.results.networks import LOGS, RESULTS
from capsexp.results.runs import Run
from capsexp.run.keys import Json
from capsexp.study import studies
from capsexp.study.selection import LAPTOP, select

SMALL = 1 << 20  # bytes of a network that is listed and committed

HEAD = """<!-- made by `make networks` from results/runs; not by hand -->

# Trained networks of the tables' rows

`capsexp.load("NAME")` gives the network; `capsexp evaluate NAME`, `inspect` and `predict` take the name, too. Each is
of the epoch with the best accuracy on the test images, which is what the tables print, with the weights in half
precision: `evaluate` says whether that changes the class of an image. Other rows' networks,
and larger ones, are found by the same names in `logs/` where they were trained. A network's weights have the terms of
its data.

| name | network | training | test accuracy |
| --- | --- | --- | --- |
"""


def main(arguments: list[str]) -> int:
    """Keeps and lists the networks; the exit code."""
    logs, code = Path(*arguments or [LOGS]), DONE
    trained = by_training(runs.read(RESULTS)[0])
    for name, row in named_rows(trained):
        there = [run for run in row.runs if (logs / run.name / "best.ckpt").exists()]
        if there and not any(map(networks.of, row.runs)):
            try:
                keep(there[0], logs)
                print(f"{name}: {there[0].name}")
            except InputError as error:
                code = print_error(error, []).exit_code
    write_file(RESULTS / "networks" / "README.md", cards(trained))
    return code


def named_rows(runs_by_training: ByTraining) -> Iterator[tuple[str, MeasuredRow]]:
    """The runs of every row, with its name, in the source's training and then in the laptop's, if that is another."""
    for study in map(studies.load, studies.names()):
        trained = set()
        for block in select(study).blocks:
            for row in rows_of(study, block, runs_by_training):
                keys = row.row.name, *(run.key for run in row.runs)
                if keys not in trained:
                    yield f"{study.name}:{row.row.name}", row
                trained.add(keys)


def keep(run: Run, logs: Path) -> None:
    """Writes a run's best network, with the digest of its record; raises InputError if it isn't the record's."""
    from capsexp.run import checkpoints, records  # torch takes seconds to import

    path, best = RESULTS / "runs" / f"{run.name}.json", logs / run.name / "best.ckpt"
    record, checkpoint = records.read(path), checkpoints.load(best)
    epochs = record.epochs[: record.first_epoch_to_max]
    if not is_same(checkpoint["history"], epochs, "test" if run.protocol == "paper" else "heldout"):
        raise InputError(f"{best}: isn't that of {path}, which has other losses or accuracies")
    digest = json.loads(path.read_bytes())["digest"]
    write_file(RESULTS / "networks" / f"{run.name}.ckpt", halved(checkpoint | {"record": digest}))


def halved(checkpoint: Json) -> bytes:
    """A checkpoint as a file, its weights in half precision."""
    import torch

    state = checkpoint["state_dict"]
    half = {name: value.half() for name, value in state.items() if value.is_floating_point()}
    torch.save(checkpoint | {"state_dict": state | half}, stored := BytesIO())
    return stored.getvalue()


def is_same(history: Sequence[Json], epochs: Sequence[Json], split: str) -> bool:
    """Whether two trainings have the same accuracies after each epoch, and the same losses to three digits."""
    accuracies, losses = (
        [[epoch[f"{split}_{name}"] for epoch in one] for one in (history, epochs)] for name in ("accuracy", "loss")
    )
    return accuracies[0] == accuracies[1] and np.allclose(*losses, rtol=1e-3)


def cards(runs_by_training: ByTraining) -> str:
    """The list of the small networks that are kept: results/networks/README.md."""
    names: dict[Run, list[str]] = {}
    for name, row in named_rows(runs_by_training):
        for run in row.runs:
            if (path := networks.of(run)) and path.stat().st_size <= SMALL:
                names.setdefault(run, []).append(f"`{name}`{', trained shorter' if row.block.name == LAPTOP else ''}")
    lines = [
        f"| {'; '.join(names[run])} | [{run.words}, {run.parameters:,} parameters]({run.name}.ckpt) "
        f"| [{run.trained}](../runs/{run.name}.json), seed {run.seed} | {run.measures['accuracy']:.2f} % |\n"
        for run in sorted(names, key=lambda run: run.name)
    ]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    exit_with(main)
