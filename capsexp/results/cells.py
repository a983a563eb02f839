"""A study's cells, out of the frame of runs: one tidy frame, a line a row, setting, protocol and measure.

    match    a line a row, run and combination of options of the row     by what was trained, see studies.condition
    best     a line a row, setting, protocol and seed                    the best of the row's combinations
    tidy     a line a row, setting, protocol and measure                 statistics over the seeds, verdicts

Numbers of two settings or two protocols never meet in one cell.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from capsexp.results import statistics
from capsexp.results.runs import COSTS, MEASURES
from capsexp.study.selection import RowRun
from capsexp.study.setting import Setting
from capsexp.study.studies import Row, Study, published_number

#: Published numbers of these measures get a verdict from the prediction interval; parameters are compared exactly.
JUDGED = ("accuracy", "first_epoch", "first_five")

PLACE = ["row", "setting", "protocol"]


class Cell(NamedTuple):
    """A line of the tidy frame."""

    study: str
    row: str
    setting: Setting | None  # None: the row has no runs
    main: bool  # whether this is the setting in which the row stands in the main tables
    protocol: str  # heldout has the accuracy only
    measure: str  # one of runs.MEASURES; or parameters: the distinct numbers of all runs, whatever their protocol
    n: int
    mean: float | None
    sd: float | None  # n − 1
    low: float | None  # the 95 % prediction interval
    high: float | None
    published: str | None  # as printed, or why there is no number
    difference: float | None  # mean − published
    verdict: str | None
    runs: int  # whatever their measures and their seeds, failed ones too
    failed: int
    best_of: str  # how the run of each seed was selected, where the row has several combinations of options
    device: str | None  # of most runs; measures of cost are of this device only
    seeds: list[int]
    values: list[float]  # one a seed
    keys: list[str]  # of the runs


def match(study: Study, wanted: Sequence[RowRun], runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of each row. `counts`: not the same training as another, under another name of its budget."""
    number = Counter(one.row for one in wanted)
    lines = [(study.rows[one.row].name, place, number[one.row], one.condition) for place, one in enumerate(wanted)]
    conditions = pd.DataFrame(lines, columns=["row", "wanted", "combinations", "condition"])
    found = conditions.merge(runs[runs.state != "trial"], on="condition")
    admitted = [wanted[place].admits(setting) for place, setting in zip(found.wanted, found.setting, strict=True)]
    # Which of two is taken must not depend on its numbers: a finished one before a failed one, then the first.
    found = found[pd.Series(admitted, dtype=bool)].sort_values(
        ["wanted", "state", "started", "key"], ascending=[True, False, True, True]
    )
    return found.assign(counts=~found.duplicated(["wanted", "setting", "protocol", "seed"])).reset_index(drop=True)


def best_runs(matched: pd.DataFrame) -> pd.DataFrame:
    """For each seed the best of a row's combinations, of equals the first; `tried` is how many of them were run."""
    runs = matched[matched.counts & (matched.state == "finished")]
    runs = runs.assign(tried=runs.groupby([*PLACE, "seed"], sort=False)["wanted"].transform("size"))
    best = runs.sort_values(["selected_by", "wanted"], ascending=[False, True], kind="stable")
    return best.drop_duplicates([*PLACE, "seed"]).sort_values("seed", kind="stable").reset_index(drop=True)


def tidy(study: Study, matched: pd.DataFrame, best: pd.DataFrame, replaced: bool) -> pd.DataFrame:
    """The study's cells, the row's main setting first; a row without runs has cells without numbers.

    Args:
        replaced: the runs are of another experiment than the paper's.
    """
    counted = matched[matched.counts]
    places, settings, values = _places(counted, best), _settings(counted, best), _values(counted, best)
    cells = []
    for row in study.rows:
        for rank, setting in enumerate(settings.get(row.name, [None])):
            for protocol, measures in (("paper", (*MEASURES, "parameters")), ("heldout", ("accuracy",))):
                place = places.get((row.name, setting, protocol), {"runs": 0, "failed": 0, "keys": []})
                for measure in measures:
                    found = values.get((row.name, setting, protocol, measure), {"seeds": [], "values": []})
                    printed = row.published.get(measure) if protocol == "paper" else None
                    comparable = not replaced and _is_comparable(setting, place, measure)
                    cells.append(
                        {"study": study.name, "row": row.name, "setting": setting, "main": rank == 0}
                        | {"protocol": protocol, "measure": measure, "best_of": _best_of(row, place, protocol)}
                        | {name: place.get(name) for name in ("runs", "failed", "device", "keys")}
                        | found
                        | _statistics(found["values"])
                        | _comparison(found["values"], measure, printed, comparable)
                    )
    return pd.DataFrame(cells, columns=Cell._fields, dtype=object)


def _places(counted: pd.DataFrame, best: pd.DataFrame) -> dict[Any, dict[str, Any]]:
    """For each row, setting and protocol what is the same for all measures."""
    runs = counted.groupby(PLACE, sort=False).agg(
        runs=("key", "size"), failed=("state", lambda states: int((states == "failed").sum())), keys=("key", sorted)
    )
    selected = best.groupby(PLACE, sort=False).agg(
        combinations=("combinations", "first"),
        fewest=("tried", "min"),
        most=("tried", "max"),
        device=("device", _most_frequent),
    )
    places: dict[Any, Any] = runs.to_dict("index")
    for place, found in selected.to_dict("index").items():
        places[place] |= found
    return places


def _settings(counted: pd.DataFrame, best: pd.DataFrame) -> dict[str, list[Setting]]:
    """For each row its settings. The first, for the main tables, is the paper's training, even if all runs failed;
    else that of most rows, which can then be compared; else the most of the paper's training; else of most seeds."""
    runs = Counter(zip(counted.row, counted.setting, counted.protocol, strict=True))
    seeds = Counter(zip(best.row, best.setting, best.protocol, strict=True))
    rows = Counter(setting for _, setting, protocol in seeds if protocol == "paper")

    def rank(row: str, setting: Setting) -> tuple[Any, ...]:
        place = row, setting, "paper"
        trained = place in runs, setting.whole, place in seeds, rows[setting], setting.fraction, seeds[place]
        return *trained, setting.precision == "bf16", str(setting)

    found: dict[str, list[Setting]] = {}
    for row, setting in sorted({place[:2] for place in runs}, key=lambda place: rank(*place), reverse=True):
        found.setdefault(row, []).append(setting)
    return found


def _values(counted: pd.DataFrame, best: pd.DataFrame) -> dict[Any, dict[str, list[Any]]]:
    """For each row, setting, protocol and measure the seeds and their values."""
    of_seeds = best.assign(usual=best.groupby(PLACE, sort=False)["device"].transform(_most_frequent))
    long = of_seeds.melt([*PLACE, "seed", "device", "usual"], MEASURES, "measure").dropna(subset="value")
    long = long[~long.measure.isin(COSTS) | (long.device == long.usual)]
    networks = counted.drop_duplicates(["row", "setting", "parameters"]).sort_values("parameters")
    networks = networks.assign(protocol="paper", measure="parameters", value=networks.parameters)
    long = pd.concat([long, networks])[[*PLACE, "measure", "seed", "value"]]
    groups = long.assign(value=long.value.map(float)).groupby([*PLACE, "measure"], sort=False)
    found: dict[Any, Any] = groups.agg(seeds=("seed", list), values=("value", list)).to_dict("index")
    return found


def _most_frequent(devices: "pd.Series[str]") -> str:
    """Of equals the first in the alphabet."""
    return devices.mode()[0]


def _best_of(row: Row, place: dict[str, Any], protocol: str) -> str:
    """How the best of a row's combinations was selected; nothing for a single one."""
    number, fewest, most = (place.get(name, 1) for name in ("combinations", "fewest", "most"))
    if number == 1:
        return ""
    several = f"{number}" if fewest == number else f"{fewest}{f' to {most}' * (fewest < most)} of {number}"
    return f"best of {several} ({row.swept}), judged on the {'test set' if protocol == 'paper' else 'held-out images'}"


def _is_comparable(setting: Setting | None, place: dict[str, Any], measure: str) -> bool:
    """Whether a verdict is possible: the paper's training, of all combinations; for parameters, the paper's width."""
    if setting is None or measure == "parameters":
        return setting is not None and setting.width == 1
    return setting.whole and place.get("fewest") == place.get("combinations")


def _statistics(values: Sequence[float]) -> dict[str, float | None]:
    """n, mean, standard deviation and prediction interval."""
    if not values:
        return {"n": 0, "mean": None, "sd": None, "low": None, "high": None}
    spread = statistics.describe(values)
    low, high = statistics.prediction_interval(values) or (None, None)
    return {"n": spread.n, "mean": spread.mean, "sd": spread.deviation, "low": low, "high": high}


def _comparison(values: Sequence[float], measure: str, printed: str | None, comparable: bool) -> dict[str, Any]:
    """The published number, and how it compares."""
    number = published_number(printed or "")
    found = {"published": printed, "difference": None, "verdict": None}
    if number is None or not values:
        return found
    if measure in JUDGED:
        difference = statistics.describe(values).mean - number.value
        return found | {"difference": difference, "verdict": statistics.verdict(values, number, comparable)}
    if measure == "parameters" and comparable:  # printed in millions; equal if all of ours round to that
        slack = number.resolution + statistics.ZERO * number.value
        equal = all(abs(count - 1e6 * number.value) <= 1e6 * slack for count in values)
        return found | {"verdict": "equal" if equal else "different"}
    return found
