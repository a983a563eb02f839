"""Accuracy and loss after each epoch, for the plot that the page's script draws: records → compact JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Results
from capsexp.study.setting import Setting, title
from capsexp.tables.texts import shorter

MOST = 100_000  # numbers in the page; of more, every second, third … epoch is left out


def data(studies: Sequence[Results], first: MeasuredClaim | None = None) -> Markup:
    """The rows of each data set and the curves of their runs, as JSON that can stand in a script element.

    Args:
        first: the claim whose rows are chosen at first.
    """
    sets: dict[str, dict[tuple[int, ...], tuple[str, str, list[list[int]]]]] = {}
    indices, shown = dict[str, int](), list[Mapping[str, Sequence[float]]]()
    chosen: tuple[str, list[tuple[int, ...]]] = ("", [])
    for results in studies:
        lines: dict[tuple[str, str, Setting, str], list[list[int]]] = {}
        for group in results.groups:
            for run in group.runs:
                if not run.part and len(run.curves.get("train accuracy", ())) > 1:
                    index = indices.setdefault(run.name, len(indices))
                    shown += [run.curves] if index == len(shown) else []
                    line = title(run.data), group.row.name, run.setting, run.protocol
                    lines.setdefault(line, []).append([run.seed, index])
        for (name, row, setting, protocol), seeds in lines.items():
            training = shorter(str(setting)) + (", held-out" if protocol == "heldout" else "")
            key = tuple(index for _, index in seeds)
            label = f"{results.study.publication}: {row}"
            known = sets.setdefault(name, {}).get(key)
            if known is None or len(label) < len(known[0]):  # the same runs of several studies stand once
                sets[name][key] = label, training, seeds
            if first in results.claims and first and row in first.claim.compared and setting == first.setting:
                chosen = name, [*(chosen[1] if chosen[0] == name else []), key]
    every = max(1, math.ceil(4 * sum(len(curves["train accuracy"]) for curves in shown) / MOST))
    content = {
        "sets": [[name, [*lines.values()]] for name, lines in sets.items()],
        "first": [*sets].index(chosen[0]) if chosen[0] else 0,
        "rows": [index for index, key in enumerate(sets.get(chosen[0], ())) if key in chosen[1]],
        "every": every,
        "runs": [_thinned(curves, every) for curves in shown],
    }
    return Markup(json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def _thinned(curves: Mapping[str, Sequence[float]], every: int) -> dict[str, Any]:
    """Every so many epochs and the last: accuracies with two digits behind the point, losses with three digits."""
    epochs = len(curves["train accuracy"])
    shown = [*range(0, epochs - 1, every), epochs - 1]
    content: dict[str, Any] = {"epochs": epochs}
    for name, values in curves.items():
        digits = (lambda value: round(value, 2)) if name.endswith("accuracy") else (lambda value: float(f"{value:.3g}"))
        content[name] = [None if math.isnan(values[index]) else digits(values[index]) for index in shown]
    return content
