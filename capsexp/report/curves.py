"""Accuracy and loss after each epoch, for the plot that the page's script draws: records → compact JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from capsexp.figures.forest import shorter
from capsexp.results.collect import Results
from capsexp.run import records
from capsexp.run.records import Json

Epochs = Mapping[str, Sequence[Json]]  # of each run, by name


def read(results: Path, runs: pd.DataFrame) -> Epochs:
    """The epochs of finished runs."""
    names = runs.name[runs.state == "finished"]
    return {name: records.read(records.path_of(results, name)).epochs for name in names}


def data(studies: Sequence[Results], epochs: Epochs) -> Markup:
    """The runs of each study's rows, and the curves of each run, as JSON that can stand in a script element."""
    shown, places = [], dict[str, int]()
    for results in studies:
        lines: dict[tuple[str, str], list[tuple[int, int]]] = {}
        run: Any
        for run in results.runs.itertuples():
            if run.counts and len(epochs.get(run.name, ())) > 1:
                training = shorter(str(run.setting)) + (", held-out" if run.protocol == "heldout" else "")
                place = places.setdefault(run.name, len(places))
                lines.setdefault((run.row, training), []).append((run.seed, place))
        if lines:
            found = [[row, training, runs] for (row, training), runs in lines.items()]
            shown.append([results.study.name, results.study.title, found])
    curves = [_curves(epochs[name]) for name in places]
    text = json.dumps({"studies": shown, "runs": curves}, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _curves(epochs: Sequence[Json]) -> dict[str, list[float | None]]:
    """Accuracies with two digits behind the point, losses with three digits."""
    tested = "test" if "test_loss" in epochs[0] else "heldout"
    found: dict[str, list[float | None]] = {}
    for part, name in (("test", tested), ("train", "train")):
        losses = [epoch[f"{name}_loss"] for epoch in epochs]
        found[f"{part} accuracy"] = [round(epoch[f"{name}_accuracy"], 2) for epoch in epochs]
        found[f"{part} loss"] = [None if loss is None else float(f"{loss:.3g}") for loss in losses]
    return found
