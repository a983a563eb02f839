"""Accuracy and loss after each epoch, for the plot that the page's script draws: records → compact JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Results
from capsexp.run import records
from capsexp.run.records import Json
from capsexp.study.setting import Setting, title
from capsexp.tables.texts import shorter

MOST = 250_000  # numbers in the page; of more, every second, third … epoch is left out

Epochs = Mapping[str, Sequence[Json]]  # of each run, by name


def read(results: Path, runs: pd.DataFrame) -> Epochs:
    """The epochs of finished runs."""
    names = runs.name[runs.state == "finished"]
    return {name: records.read(records.path_of(results, name)).epochs for name in names}


def data(studies: Sequence[Results], epochs: Epochs, first: MeasuredClaim | None = None) -> Markup:
    """The rows of each data set and the curves of their runs, as JSON that can stand in a script element.

    Args:
        first: the claim whose rows are chosen at first.
    """
    sets: dict[str, dict[tuple[int, ...], tuple[str, str, list[list[int]]]]] = {}
    places = dict[str, int]()
    chosen: tuple[str, list[tuple[int, ...]]] = ("", [])
    for results in studies:
        lines: dict[tuple[str, str, Setting, str], list[list[int]]] = {}
        run: Any
        for run in results.runs.itertuples():
            if run.counts and len(epochs.get(run.name, ())) > 1:
                place = places.setdefault(run.name, len(places))
                lines.setdefault((title(run.data), run.row, run.setting, run.protocol), []).append([run.seed, place])
        for (name, row, setting, protocol), seeds in lines.items():
            training = shorter(str(setting)) + (", held-out" if protocol == "heldout" else "")
            key = tuple(place for _, place in seeds)
            label = f"{results.study.publication}: {row}"
            known = sets.setdefault(name, {}).get(key)
            if known is None or len(label) < len(known[0]):  # the same runs of several studies stand once
                sets[name][key] = label, training, seeds
            if first in results.claims and first and row in first.claim.compared and setting == first.setting:
                chosen = name, [*(chosen[1] if chosen[0] == name else []), key]
    every = max(1, math.ceil(4 * sum(len(epochs[name]) for name in places) / MOST))
    found = {
        "sets": [[name, [*lines.values()]] for name, lines in sets.items()],
        "first": [*sets].index(chosen[0]) if chosen[0] else 0,
        "rows": [place for place, key in enumerate(sets.get(chosen[0], ())) if key in chosen[1]],
        "every": every,
        "runs": [_curves(epochs[name], every) for name in places],
    }
    return Markup(json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def _curves(epochs: Sequence[Json], every: int) -> dict[str, Any]:
    """Every so many epochs and the last: accuracies with two digits behind the point, losses with three digits."""
    tested = "test" if "test_loss" in epochs[0] else "heldout"
    found: dict[str, Any] = {"epochs": len(epochs)}
    shown = [epoch for place, epoch in enumerate(epochs) if place % every == 0 or place == len(epochs) - 1]
    for part, name in (("test", tested), ("train", "train")):
        losses = [epoch[f"{name}_loss"] for epoch in shown]
        found[f"{part} accuracy"] = [round(epoch[f"{name}_accuracy"], 2) for epoch in shown]
        found[f"{part} loss"] = [None if loss is None else float(f"{loss:.3g}") for loss in losses]
    return found
