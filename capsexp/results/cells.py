"""The cells of studies out of the frame of all runs: a tidy frame, a line a row, setting, protocol and measure.

    match        a line a row, run and combination of options of the row    by what was trained: studies.condition_of
    best_runs    a line a row, setting, protocol and seed                   the best of the row's combinations
    tidy         a line a row, setting, protocol and measure                statistics over the seeds, verdicts

Numbers of two settings or two protocols never meet in one cell.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean, median, stdev
from typing import Any, Literal, NamedTuple

import pandas as pd

from capsexp.results import elsewhere, statistics
from capsexp.results.runs import COSTS, MEASURES
from capsexp.results.spread import EPOCHS, PERCENT, Pools, scaled, unscaled
from capsexp.results.statistics import Term
from capsexp.study import studies
from capsexp.study.selection import Selection, essential
from capsexp.study.setting import Setting
from capsexp.study.studies import Published, Row, Study, published_number

#: Published numbers of these measures are judged by the prediction interval; numbers of parameters must be equal.
JUDGED = ("accuracy", "first_epoch", "first_five")

#: The margin of a published number where its source claims no gain on the data set: points, and of epochs a quarter.
MARGINS = {"accuracy": 0.5, "first_five": 0.5, "first_epoch": math.log(1.25)}

#: The least share of the paper's training (epochs × images × channels) after which a published number has a verdict.
COMPARABLE = 0.5

NumberVerdict = Literal[
    "reproduced",
    "compatible, imprecise",
    "ours is higher",
    "ours is lower",
    "open",
    "open (one run)",
    "unstable",
    "not comparable",
]
_WORDS: dict[statistics.Place, NumberVerdict] = {
    "within": "reproduced",
    "around": "compatible, imprecise",
    "above": "ours is higher",
    "below": "ours is lower",
}

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
    low: float | None  # of the 95 % prediction interval for what is printed: the mean of as many runs as the source's
    high: float | None
    degrees: float | None  # of freedom of its spread
    published: str | None  # as printed, or why there is no number
    difference: float | None  # mean − published; of first epochs in percent of the published one
    verdict: str | None
    so_far: str  # in what the runs differ from the paper's experiment: 10 of 100 epochs; empty for the whole of it
    unstable: bool  # the seeds differ far more than those of other cells
    bounds: list[bool]  # one a value: it is a lower bound, as the maximum is in the last epoch
    runs: int  # all that were made, failed ones too
    failed: int
    unlearned: int  # finished runs that didn't learn: records.has_learned; they count
    best_of: str  # how each seed's run was selected, where the row has several combinations of options
    device: str | None  # of most runs; costs are of this device only
    seeds: list[int]
    values: list[float]  # one a seed; of parameters: of the whole network, counted without a run
    keys: list[str]  # of all runs


def match(selections: Sequence[Selection], runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of each row, and after them those from elsewhere.

    `wanted` numbers the runs that rows want; `counts` is false for the same training again, under another name of its
    budget.
    """
    wanted = [(selection.study, run) for selection in selections for run in selection.runs]
    lines = [(study.name, run.row, place, run.condition) for place, (study, run) in enumerate(wanted)]
    conditions = pd.DataFrame(lines, columns=["study", "row", "wanted", "condition"])
    conditions["combinations"] = conditions.groupby(["study", "row"])["wanted"].transform("size")
    found = conditions.merge(runs[runs.state != "trial"], on="condition")
    admitted = [wanted[place][1].admits(setting) for place, setting in zip(found.wanted, found.setting, strict=True)]
    # Which of two is taken must not depend on its numbers: a finished one before a failed one, then the first.
    found = found[pd.Series(admitted, dtype=bool)].sort_values(
        ["wanted", "state", "started", "key"], ascending=[True, False, True, True]
    )
    found = found.assign(counts=~found.duplicated(["wanted", "setting", "protocol", "seed"]))
    paper = [selection.study for selection in selections if not essential(selection.replacing)]
    others = pd.DataFrame([line for study in paper for line in elsewhere.lines(study)], columns=found.columns)
    return (pd.concat([found, others]) if len(others) else found).astype({"counts": bool}).reset_index(drop=True)


def best_runs(matched: pd.DataFrame) -> pd.DataFrame:
    """For each seed the best of a row's combinations, of equals the first; `tried` is how many of them were run."""
    runs = matched[matched.counts & (matched.state == "finished")]
    runs = runs.assign(tried=runs.groupby([*PLACE, "seed"], sort=False)["wanted"].transform("size"))
    best = runs.sort_values(["selected_by", "wanted"], ascending=[False, True], kind="stable")
    return best.drop_duplicates([*PLACE, "seed"]).sort_values("seed", kind="stable").reset_index(drop=True)


def tidy(selections: Sequence[Selection], matched: pd.DataFrame, best: pd.DataFrame, pools: Pools) -> pd.DataFrame:
    """The cells, each row's main setting first; a row without runs has cells without numbers."""
    counted = matched[matched.counts]
    places, values = _places(counted, best), _values(best)
    settings, cells = _settings(places), []
    for selection in selections:
        study = selection.study
        for row in study.rows:
            for rank, setting in enumerate(settings.get((study.name, row.name), [None])):
                for protocol, measures in MEASURES_OF.items():
                    key = study.name, row.name, setting, protocol
                    place = places.get(key, {"runs": 0, "failed": 0, "unlearned": 0, "keys": []})
                    place = {**dict(zip(PLACE, key, strict=True)), **place, "main": rank == 0}
                    place |= {"best_of": _best_of(row, place), "unstable": False, "so_far": ""}
                    for measure in measures:
                        found = values.get((*key, measure), {"seeds": [], "values": [], "bounds": []})
                        printed = row.published.get(measure) if protocol == "paper" else None
                        published = published_number(printed)
                        margin = margin_of(study, row, measure) if published and measure in MARGINS else 0.0
                        if measure == "parameters":
                            numbers = _parameters(selection, row, published)
                        else:
                            numbers = _numbers(measure, place, found, pools, study.printed_runs)
                            if published and numbers["n"] and measure in JUDGED and not row.elsewhere:
                                numbers |= _compared(measure, place, numbers, published, found, margin)
                            numbers["so_far"] = so_far(selection, measure, setting, place)
                        cells.append({**place, "measure": measure, "published": printed, **found, **numbers})
    return pd.DataFrame(cells, columns=Cell._fields, dtype=object).where(lambda frame: frame.notna(), None)


def margin_of(study: Study, row: Row, measure: str) -> float:
    """The margin of a row's published number: half of the smallest gain that its source claims on the row's data set,
    in any of its studies, or MARGINS; of first epochs one of logarithms.
    """
    if not row.run:
        return MARGINS[measure]
    key = _data(row), measure
    gains = [found[key] for found in (_gains(study), *_gains_of_source(study.publication)) if key in found]
    return min(gains, default=2 * MARGINS[measure]) / 2


@cache
def _gains_of_source(publication: str) -> list[dict[tuple[str, str], float]]:
    return [_gains(study) for study in map(studies.load, studies.names()) if study.publication == publication]


def _gains(study: Study) -> dict[tuple[str, str], float]:
    """The smallest gain that a study claims, by data set and measure."""
    found: dict[tuple[str, str], float] = {}
    rows = {row.name: row for row in study.rows}
    for claim in study.claims:
        size = published_number(claim.claimed)
        if size and claim.measure in MARGINS and claim.estimate in ("difference", "relative"):
            gain = abs(math.log1p(size.value / 100) if claim.estimate == "relative" else size.value)
            for data in {_data(rows[name]) for name in claim.compared if rows[name].run}:
                found[data, claim.measure] = min(gain, found.get((data, claim.measure), math.inf))
    return found


def _data(row: Row) -> str:
    """The data set that a row trains on."""
    return studies.config_of(row.combinations()[0]).data.name


def so_far(selection: Selection, measure: str, setting: Setting | None, place: Mapping[str, Any]) -> str:
    """In what the runs of a place differ from the paper's experiment; empty if in nothing."""
    fewest, combinations = place.get("fewest"), place.get("combinations")
    parts = [
        selection.substitution,
        selection.study.differs or "",
        setting.reduced(measure) if setting else "",
        f"{fewest} of {combinations} combinations" if fewest != combinations else "",
    ]
    return ", ".join(part for part in parts if part)


def _places(counted: pd.DataFrame, best: pd.DataFrame) -> dict[Any, dict[str, Any]]:
    """What is the same for all measures of a place; without `finished` where all runs failed."""
    runs = counted.assign(failed=counted.state == "failed", unlearned=counted.learned.eq(False))
    numbers = {"runs": ("key", "size"), "failed": ("failed", "sum"), "unlearned": ("unlearned", "sum")}
    places: Any = runs.groupby(PLACE, sort=False).agg(**numbers, keys=("key", sorted)).to_dict("index")
    selected = best.groupby(PLACE, sort=False).agg(
        finished=("seed", "size"),
        combinations=("combinations", "first"),
        fewest=("tried", "min"),
        most=("tried", "max"),
        device=("device", _most_frequent),
        dataset=("dataset", "first"),
        images=("images", "first"),
        official=("official", "first"),
        conditions=("condition", frozenset),
    )
    for place, found in selected.to_dict("index").items():
        places[place] |= found
    return places


def _settings(places: dict[Any, dict[str, Any]]) -> dict[tuple[str, str], list[Setting]]:
    """The settings of each row, the one for the main tables first.

    That is the paper's training, even if all runs failed; else one of as many epochs, as claims prefer it; else that of
    most rows, which can then be compared; else the most of the paper's training; else that of most seeds.
    """
    seeds = {place[:3]: one.get("finished", 0) for place, one in places.items() if place[3] == "paper"}
    rows = Counter((study, setting) for (study, _, setting), number in seeds.items() if number)

    def rank(place: tuple[str, str, Setting]) -> tuple[Any, ...]:
        (study, _, setting), number = place, seeds.get(place, 0)
        trained = number > 0, setting.epochs is None, rows[study, setting], setting.fraction, number
        return place in seeds, setting.whole, *trained, setting.precision == "bf16", str(setting)

    found: dict[tuple[str, str], list[Setting]] = {}
    for study, row, setting in sorted({place[:3] for place in places}, key=rank, reverse=True):
        found.setdefault((study, row), []).append(setting)
    return found


def _values(best: pd.DataFrame) -> dict[Any, dict[str, list[Any]]]:
    """The seeds and their values for each place and measure; costs only of the usual device."""
    best = best.assign(usual=best.groupby(PLACE, sort=False)["device"].transform(_most_frequent))
    known = [*PLACE, "seed", "device", "usual", "censored"]
    measured = best.melt(known, MEASURES, "measure").dropna(subset="value")
    measured = measured[~measured.measure.isin(COSTS) | (measured.device == measured.usual)]
    measured["bounds"] = measured.censored.astype(bool) & measured.measure.isin(EPOCHS)
    groups = measured.astype({"value": float}).groupby([*PLACE, "measure"], sort=False)
    found: Any = groups.agg(seeds=("seed", list), values=("value", list), bounds=("bounds", list)).to_dict("index")
    return found


def _most_frequent(devices: "pd.Series[str]") -> str:
    """Of equals the first in the alphabet."""
    return devices.mode()[0]


def _best_of(row: Row, place: Mapping[str, Any]) -> str:
    """How the best of a row's combinations was selected; nothing for a single one, or without finished runs."""
    combinations, fewest, most = (place.get(name, 1) for name in ("combinations", "fewest", "most"))
    if combinations == 1:
        return ""
    tried = "" if fewest == combinations else f"{fewest} of " if fewest == most else f"{fewest} to {most} of "
    images = "test set" if place["protocol"] == "paper" else "held-out images"
    return f"best of {tried}{combinations} ({row.swept}), selected on the {images}"


def _numbers(
    measure: str, place: Mapping[str, Any], found: Mapping[str, Any], pools: Pools, printed_runs: int
) -> dict[str, Any]:
    """Mean, standard deviation and prediction interval.

    Args:
        printed_runs: whose mean a printed number is.
    """
    values: list[float] = found["values"]
    if not values:
        return {"n": 0}
    numbers = {"n": len(values), "mean": mean(values), "sd": stdev(values) if len(values) > 1 else None}
    if measure in COSTS or any(found["bounds"]):
        return numbers
    at, networks = (place["dataset"], place["setting"], place["protocol"]), place["conditions"]
    if networks <= pools.pool(at, measure).unstable:
        return {**numbers, "mean": median(values), "unstable": True}
    on_scale = [scaled(measure, value) for value in values]
    spread = pools.spread(at, measure, on_scale, networks)
    drawn = measure in PERCENT and not place["official"]  # another experimenter's test images would be others
    if spread is None or (drawn and not place["images"]):
        return numbers
    terms = [Term(1.0, on_scale, spread)]
    images = 2 * statistics.independent_images(terms, place["images"]) if drawn else 0.0
    predicted = statistics.effect(terms, printed_runs, images)
    low, high = unscaled(measure, predicted.interval())
    return numbers | {"low": low, "high": high, "degrees": predicted.degrees, "predicted": predicted}


def _compared(
    measure: str,
    place: Mapping[str, Any],
    numbers: Mapping[str, Any],
    published: Published,
    found: Mapping[str, Any],
    margin: float,
) -> dict[str, Any]:
    """The difference from the published number, and the verdict."""
    if place["setting"].share(measure) < COMPARABLE:
        return {"verdict": "not comparable"}
    if "unstable" in numbers:
        return {"verdict": "unstable"}
    if any(found["bounds"]):
        return {"verdict": "open"}
    mean, relative = numbers["mean"], measure in EPOCHS
    difference = 100 * (mean / published.value - 1) if relative else mean - published.value
    verdict: NumberVerdict = "open (one run)" if numbers["n"] == 1 else "open"
    if numbers["n"] > 1 and "predicted" in numbers:
        # 100 % of the images are all of them, and not 99.5 % rounded.
        resolution = 0.0 if measure in PERCENT and published.value == 100 else published.resolution
        printed = [scaled(measure, published.value + sign * resolution) for sign in (-1, 1)]
        verdict = _WORDS[statistics.judge_printed(numbers["predicted"], (printed[0], printed[1]), margin)[0]]
    return {"difference": difference, "verdict": verdict}


def _parameters(selection: Selection, row: Row, published: Published | None) -> dict[str, Any]:
    """The network's number of parameters, counted without a run, and whether it is the published one, in millions."""
    study = selection.study
    if "parameters" not in study.measures and not any(claim.measure == "parameters" for claim in study.claims):
        return {"n": 0}
    run = next((run for run in selection.runs if run.row == row.name and run.identity), None)
    if run is None:
        return {"n": 0}
    count = counted(run.overrides)  # its other combinations have as many
    numbers = {"n": 1, "mean": count, "values": [count]}
    if published and not selection.replaced:
        equal = abs(count - 1e6 * published.value) <= 1e6 * published.resolution + statistics.ZERO * count
        numbers["verdict"] = "equal" if equal else "different"
    return numbers


@cache
def counted(overrides: tuple[str, ...]) -> int:
    """The number of parameters of the network that a command line makes; raises InputError."""
    from capsexp.run.build import count_parameters

    return count_parameters(studies.config_of(overrides))
