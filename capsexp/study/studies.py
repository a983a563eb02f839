"""A study: one published table or figure, with the rows that the source prints and their commands.

`conf/study/NAME.yaml` is the whole study, and a Hydra sweep over the rows' commands (`+study=NAME`). A row finds its
records by what they trained, not by a name: see `condition`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from capsexp.config.checks import check_dataclass, nearest
from capsexp.config.compose import composed, explained
from capsexp.config.schema import Config, check
from capsexp.config.searchpath import choices
from capsexp.errors import InputError, first_line
from capsexp.run import records

#: Quantities that sources print and records hold.
Measure = Literal["accuracy", "first_epoch", "first_five", "parameters", "memory", "inference", "seconds"]

#: What is claimed of an effect without a size; the last three need a margin.
CLAIMED = ("increase", "decrease", "same", "no increase", "no decrease")

#: Why there is no number: drawn or lost in our copy; left open by the source; of a network that it doesn't describe.
REASONS = ("not in our copy", "not reported", "not specified")


@dataclass(frozen=True)
class Published:
    """A number as printed; `resolution` is half a unit of its last digit: 0.005 for 82.19, 0.5 for 79."""

    text: str
    value: float
    resolution: float


@dataclass(frozen=True)
class Row:
    """A row of the source's table."""

    labels: list[str]  # one per column; the first is its name
    run: str | None = None  # its command; with several combinations the row is the best of them. None: it can't be run
    published: dict[str, str] = field(default_factory=dict)  # measure → as printed (in millions), or one of REASONS
    note: str | None = None
    reading_of: str | None = None  # the row whose printed numbers these are, where this is another reading of its text
    elsewhere: str | None = None  # in place of `run`, the file of accuracies that other code measured

    @property
    def name(self) -> str:
        """Its name in claims."""
        return self.labels[0]

    def combinations(self, typed: Sequence[str] = ()) -> list[tuple[str, ...]]:
        """The overrides of its runs, without seeds, with typed words in place of the row's own."""
        return [] if self.run is None else expand([*self.run.split(), *typed])

    @property
    def swept(self) -> str:
        """The options in which its runs differ: routing.iterations=1,2,3; nothing for a single run."""
        values: dict[str, dict[str, None]] = {}
        for words in self.combinations():
            for word in words:
                key, _, value = word.partition("=")
                values.setdefault(key, {})[value] = None
        return " ".join(f"{key}={','.join(found)}" for key, found in values.items() if len(found) > 1)


@dataclass(frozen=True)
class Claim:
    """A statement of the source about rows.

    The effect is the mean over the pairs [a, b] of b − a (`difference`), of the change from a to b in percent
    (`relative`), of a/b (`factor`), the last two as means of logarithms; or the least-squares slope of the measure over
    the rows, taken as 1, 2, 3, … (`slope`).
    """

    text: str
    measure: Measure = "accuracy"
    estimate: Literal["difference", "relative", "factor", "slope"] = "difference"
    claimed: str = ""  # the size as printed, with its sign; or one of CLAIMED
    margin: str | None = None  # where no effect is claimed, the smallest that would matter, in its unit
    pairs: list[list[str]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    untested: str | None = None  # why nothing here tests it; it then has none of the above
    ours: bool = False  # not the source's

    @property
    def compared(self) -> list[str]:
        """The names of the rows that it is about."""
        return list(dict.fromkeys([*chain(*self.pairs), *self.rows]))


@dataclass(frozen=True)
class Check:
    """Two numbers that a source prints of the same thing."""

    text: str
    printed: list[str]


@dataclass(frozen=True)
class Study:
    """A published table or figure."""

    name: str
    title: str
    source: str  # which table or figure of which source
    protocol: str  # the source's own words on how the numbers came about
    columns: list[str]  # of the rows' labels
    measures: list[Measure]  # that the source prints
    rows: list[Row]
    deviations: list[str] = field(default_factory=list)  # of our runs from the source's, as far as known
    differs: str | None = None  # in what all runs differ from the source's, so that no verdict is on its own experiment
    claims: list[Claim] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)  # in capsexp.figures, beside the one of the study's name
    across: str | None = None  # the column whose labels head the columns of the README's short table
    epochs_given: list[str] | None = None  # the data sets for which the source gives the number of epochs; null: all
    printed_runs: int = 1  # whose mean a printed number is

    @property
    def publication(self) -> str:
        """The source, without which of its tables: huang."""
        return self.source.partition(",")[0]

    def epochs_unsaid(self, row: Row) -> bool:
        """Whether the source doesn't give the epochs of a row's training, so that they are this package's choice."""
        if self.epochs_given is None or not row.run:
            return False
        return config_of(row.combinations()[0]).data.name not in self.epochs_given


@dataclass(frozen=True)
class _Sweeper:
    study: dict[str, Any]


@dataclass(frozen=True)
class _File:
    """A study's file: a part of Hydra's own configuration."""

    mode: Literal["MULTIRUN"]
    sweeper: _Sweeper


def names() -> list[str]:
    """All studies, by name."""
    return list(choices("study"))


def load(name: str) -> Study:
    """A study by name; raises InputError for a missing or inconsistent one."""
    if name not in names():
        raise InputError(f"{name}: no such study{nearest(name, names())} (there are {', '.join(names())})")
    path = choices("study")[name]
    content = _read(path)
    try:
        return checked(name, check_dataclass(_File, content).sweeper.study)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def checked(name: str, content: dict[str, Any]) -> Study:
    """The study that a plain mapping describes; raises InputError."""
    study: Study = check_dataclass(Study, {"name": name} | content)
    for row, given in zip(study.rows, content["rows"], strict=True):
        if not {"run", "elsewhere"} & given.keys():
            raise InputError(f"rows.{row.name}: must have run, a command or null, or elsewhere, a CSV file")
    _check_rows(study)
    return study


def expand(words: Sequence[str]) -> list[tuple[str, ...]]:
    """All combinations of the words' values: `a=1,2 b=3` has two. A later word replaces an earlier one of its key.

    Raises InputError for words that Hydra can't parse.
    """
    return [*_expanded(tuple(words))]


@cache
def _expanded(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    choices: dict[str, list[str]] = {}
    try:
        for override in OverridesParser.create().parse_overrides(list(words)):
            key, swept = override.get_key_element(), override.is_sweep_override()
            values = override.sweep_string_iterator() if swept else [override.get_value_element_as_str()]
            choices[key] = [f"{key}={value}" for value in values]
    except Exception as error:
        raise explained(error, list(words)) from error
    return list(product(*choices.values()))


@cache
def config_of(overrides: tuple[str, ...]) -> Config:
    """The configuration that a command line makes; raises InputError."""
    return check(composed(list(overrides)))


def identity(overrides: tuple[str, ...]) -> records.Json:
    """What a command line trains, whatever its precision and the state of the data; raises InputError."""
    return records.identity(config_of(overrides), "", None)


@cache
def condition(overrides: tuple[str, ...]) -> str:
    """The condition that a command line trains; see `condition_of`."""
    return condition_of(identity(overrides))


def condition_of(identity: records.Json) -> str:
    """A digest of a run's identity without its budget (and width), precision, protocol, seed and state of the data.

    It is what a row's runs have in common, whatever their number of epochs.
    """
    without = ("budget", "precision", "protocol", "seed")
    rest = {key: value for key, value in identity.items() if key not in without}
    rest["data"] = {key: value for key, value in rest["data"].items() if key not in ("note", "checksum")}
    rest["model"] = {key: value for key, value in rest["model"].items() if key != "width"}
    return records.key_of(rest)


def published_number(text: str | None) -> Published | None:
    """A number as printed, which is a plain decimal one; None for any other text, such as one of REASONS."""
    if text is None or not re.fullmatch(r"[+-]?(\d+(\.\d+)?|\.\d+)", text, re.ASCII) or math.isinf(float(text)):
        return None
    decimals = len(text.partition(".")[2])
    return Published(text, float(text), float(Decimal(5).scaleb(-decimals - 1)))


def _check_rows(study: Study) -> None:
    rows = {row.name for row in study.rows}
    if len(rows) < len(study.rows):
        raise InputError("rows: their first labels must differ")
    for row in study.rows:
        _check_row(row, study, rows)
    for claim in study.claims:
        _check_claim(claim, rows)
    for one in study.checks:
        if len(one.printed) != 2 or None in map(published_number, one.printed):
            raise InputError(f"checks: {one.text}: printed must be two numbers")
    if study.across is not None and study.across not in study.columns[1:]:
        raise InputError(f"across={study.across}: must be one of the columns but the first")


def _check_row(row: Row, study: Study, rows: set[str]) -> None:
    if len(row.labels) != len(study.columns):
        raise InputError(f"rows.{row.name}: must have {len(study.columns)} labels")
    if unknown := set(row.published) - set(study.measures):
        raise InputError(f"rows.{row.name}.published: {', '.join(unknown)} is not among the study's measures")
    for measure, text in row.published.items():
        if published_number(text) is None and text not in REASONS:
            allowed = ", ".join(REASONS)
            raise InputError(f"rows.{row.name}.published.{measure}={text}: must be a number or one of {allowed}")
    if row.reading_of is not None and row.reading_of not in rows - {row.name}:
        raise InputError(f"rows.{row.name}.reading_of={row.reading_of}: no such row")
    if row.run is not None and row.elsewhere is not None:
        raise InputError(f"rows.{row.name}: has run or elsewhere, not both")
    if not all("=" in word for word in (row.run or "").split()):
        raise InputError(f"rows.{row.name}.run={row.run}: must be words of the form key=value")


def _check_claim(claim: Claim, rows: set[str]) -> None:
    if claim.untested is not None:
        if claim != Claim(claim.text, untested=claim.untested, ours=claim.ours):
            raise InputError(f"claims: {claim.text}: untested, so without measure, claimed, pairs and rows")
        return
    slope = claim.estimate == "slope"
    if bool(claim.rows) != slope or bool(claim.pairs) == slope:
        raise InputError(f"claims: {claim.text}: a slope needs rows, anything else pairs")
    if any(len(pair) != 2 for pair in claim.pairs):
        raise InputError(f"claims: {claim.text}: pairs must be of two rows")
    if unknown := set(claim.compared) - rows:
        raise InputError(f"claims: {claim.text}: no row {', '.join(sorted(unknown))}")
    size = published_number(claim.claimed)
    if size is None and claim.claimed not in CLAIMED:
        allowed = ", ".join(CLAIMED)
        raise InputError(f"claims: {claim.text}: claimed={claim.claimed}: must be a number or one of {allowed}")
    least = {"relative": -100.0, "factor": 0.0}.get(claim.estimate, -math.inf)
    if size is not None and (size.value == (1 if claim.estimate == "factor" else 0) or size.value <= least):
        raise InputError(
            f"claims: {claim.text}: claimed={claim.claimed}: must be an effect, by estimate={claim.estimate}"
        )
    if claim.measure == "first_epoch" and claim.estimate != "relative":
        raise InputError(f"claims: {claim.text}: first epochs are compared by estimate=relative")
    if claim.measure in ("accuracy", "first_five") and claim.estimate in ("relative", "factor"):
        raise InputError(f"claims: {claim.text}: accuracies are compared in points, by estimate=difference or slope")
    margin = published_number(claim.margin)
    if (claim.claimed in CLAIMED[2:]) != (margin is not None and margin.value > 0):
        needing = ", ".join(CLAIMED[2:])
        raise InputError(f"claims: {claim.text}: margin={claim.margin}: must be positive with {needing}, else missing")


@cache
def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{path}: {line}{error.problem}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {first_line(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a mapping")
    return content
