"""The cells of studies out of the frame of all runs: a tidy frame, a line a row, setting, protocol and measure.

    match        a line a row, run and combination of options of the row    by what was trained: studies.condition_of
    best_runs    a line a row, setting, protocol and seed                   the best of the row's combinations
    tidy         a line a row, setting, protocol and measure                statistics over the seeds, verdicts

Numbers of two settings or two protocols never meet in one cell.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from capsexp.results import statistics
from capsexp.results.runs import COSTS, MEASURES
from capsexp.study.selection import Selection
from capsexp.study.setting import Setting
from capsexp.study.studies import Row, published_number

#: Published numbers of these measures are judged by the prediction interval; numbers of parameters must be equal.
JUDGED = ("accuracy", "first_epoch", "first_five")

#: The measures of each protocol.
MEASURES_OF = {"paper": (*MEASURES, "parameters"), "heldout": ("accuracy",)}

#: A row in one setting and protocol.
PLACE = ["study", "row", "setting", "protocol"]


class Cell(NamedTuple):
    """A line of the tidy frame."""

    study: str
    row: str
    setting: Setting | None  # None: the row has no runs
    main: bool  # whether the row is in the main tables in this setting
    protocol: str
    measure: str
    n: int
    mean: float | None
    sd: float | None  # with n − 1
    low: float | None  # of the 95 % prediction interval
    high: float | None
    published: str | None  # as printed, or why there is no number
    difference: float | None  # mean − published
    verdict: str | None
    runs: int  # all that were made, failed ones too
    failed: int
    best_of: str  # how each seed's run was selected, where the row has several combinations of options
    device: str | None  # of most runs; costs are of this device only
    seeds: list[int]
    values: list[float]  # one a seed; of parameters: the distinct numbers of all runs, whatever their protocol
    keys: list[str]  # of all runs


def match(selections: Sequence[Selection], runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of each row. `counts`: not the same training as another, under another name of its budget."""
    wanted = [(selection.study, one) for selection in selections for one in selection.runs]
    lines = [(study.name, study.rows[one.row].name, place, one.condition) for place, (study, one) in enumerate(wanted)]
    conditions = pd.DataFrame(lines, columns=["study", "row", "wanted", "condition"])
    conditions["combinations"] = conditions.groupby(["study", "row"])["wanted"].transform("size")
    found = conditions.merge(runs[runs.state != "trial"], on="condition")
    admitted = [wanted[place][1].admits(setting) for place, setting in zip(found.wanted, found.setting, strict=True)]
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


def tidy(rows: Sequence[tuple[str, bool, Row]], matched: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """The cells, each row's main setting first; a row without runs has cells without numbers.

    Args:
        rows: each with its study's name, and whether its runs are of another experiment than the paper's.
    """
    counted = matched[matched.counts]
    places, values = _places(counted, best), _values(counted, best)
    settings, cells = _settings(places), []
    for study, replaced, row in rows:
        for rank, setting in enumerate(settings.get((study, row.name), [None])):
            for protocol, measures in MEASURES_OF.items():
                key = study, row.name, setting, protocol
                place = places.get(key, {"runs": 0, "failed": 0, "keys": []})
                shared = {**dict(zip(PLACE, key, strict=True)), **place, "main": rank == 0}
                shared["best_of"] = _best_of(row, protocol, **place)
                for measure in measures:
                    found = values.get((*key, measure), {"seeds": [], "values": []})
                    printed = row.published.get(measure) if protocol == "paper" else None
                    comparable = not replaced and _is_whole(setting, place, measure)
                    numbers = _numbers(found["values"], measure, printed, comparable)
                    cells.append({**shared, "measure": measure, **found, **numbers})
    return pd.DataFrame(cells, columns=Cell._fields, dtype=object).where(lambda frame: frame.notna(), None)


def _places(counted: pd.DataFrame, best: pd.DataFrame) -> dict[Any, dict[str, Any]]:
    """What is the same for all measures of a place; without `finished` where all runs failed."""
    runs = counted.assign(failed=counted.state == "failed").groupby(PLACE, sort=False)
    places: Any = runs.agg(runs=("key", "size"), failed=("failed", "sum"), keys=("key", sorted)).to_dict("index")
    selected = best.groupby(PLACE, sort=False).agg(
        finished=("seed", "size"),
        combinations=("combinations", "first"),
        fewest=("tried", "min"),
        most=("tried", "max"),
        device=("device", _most_frequent),
    )
    for place, found in selected.to_dict("index").items():
        places[place] |= found
    return places


def _settings(places: dict[Any, dict[str, Any]]) -> dict[tuple[str, str], list[Setting]]:
    """The settings of each row. The first, for the main tables, is the paper's training, even if all runs failed; else
    that of most rows, which can then be compared; else the most of the paper's training; else that of most seeds."""
    seeds = {place[:3]: one.get("finished", 0) for place, one in places.items() if place[3] == "paper"}
    rows = Counter((study, setting) for (study, _, setting), number in seeds.items() if number)

    def rank(place: tuple[str, str, Setting]) -> tuple[Any, ...]:
        (study, _, setting), number = place, seeds.get(place, 0)
        order = place in seeds, setting.whole, number > 0, rows[study, setting], setting.fraction, number
        return *order, setting.precision == "bf16", str(setting)

    found: dict[tuple[str, str], list[Setting]] = {}
    for study, row, setting in sorted({place[:3] for place in places}, key=rank, reverse=True):
        found.setdefault((study, row), []).append(setting)
    return found


def _is_whole(setting: Setting | None, place: dict[str, Any], measure: str) -> bool:
    """Whether a verdict is possible: the paper's training of all combinations; for parameters, the paper's width."""
    if setting is None or measure == "parameters":
        return setting is not None and setting.width == 1
    return setting.whole and place.get("fewest") == place.get("combinations")


def _values(counted: pd.DataFrame, best: pd.DataFrame) -> dict[Any, dict[str, list[Any]]]:
    """The seeds and their values for each place and measure; costs only of the usual device."""
    best = best.assign(usual=best.groupby(PLACE, sort=False)["device"].transform(_most_frequent))
    measured = best.melt([*PLACE, "seed", "device", "usual"], MEASURES, "measure").dropna(subset="value")
    measured = measured[~measured.measure.isin(COSTS) | (measured.device == measured.usual)]
    networks = counted.drop_duplicates([*PLACE[:3], "parameters"]).sort_values("parameters")
    networks = networks.assign(protocol="paper", measure="parameters", value=networks.parameters)
    long = pd.concat([measured, networks])[[*PLACE, "measure", "seed", "value"]].astype({"value": float})
    groups = long.groupby([*PLACE, "measure"], sort=False)
    found: Any = groups.agg(seeds=("seed", list), values=("value", list)).to_dict("index")
    return found


def _most_frequent(devices: "pd.Series[str]") -> str:
    """Of equals the first in the alphabet."""
    return devices.mode()[0]


def _best_of(row: Row, protocol: str, combinations: int = 1, fewest: int = 1, most: int = 1, **_: Any) -> str:
    """How the best of a row's combinations was selected; nothing for a single one."""
    if combinations == 1:
        return ""
    tried = "" if fewest == combinations else f"{fewest} of " if fewest == most else f"{fewest} to {most} of "
    images = "test set" if protocol == "paper" else "held-out images"
    return f"best of {tried}{combinations} ({row.swept}), selected on the {images}"


def _numbers(values: Sequence[float], measure: str, printed: str | None, comparable: bool) -> dict[str, Any]:
    """Statistics, the published number, the difference and the verdict."""
    if not values:
        return {"n": 0, "published": printed}
    spread = statistics.describe(values)
    low, high = statistics.prediction_interval(values) or (None, None)
    found = {"n": spread.n, "mean": spread.mean, "sd": spread.deviation, "low": low, "high": high, "published": printed}
    number = published_number(printed or "")
    if number and measure in JUDGED:
        verdict = statistics.verdict(values, number, comparable)
        return {**found, "difference": spread.mean - number.value, "verdict": verdict}
    if number and measure == "parameters" and comparable:
        slack = number.resolution + statistics.ZERO * number.value  # in millions, as printed
        equal = all(abs(count - 1e6 * number.value) <= 1e6 * slack for count in values)
        return {**found, "verdict": "equal" if equal else "different"}
    return found
