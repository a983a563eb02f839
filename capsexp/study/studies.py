"""A study: one published table or figure, with the rows that the source prints and their commands.

`conf/study/NAME.yaml` is the whole study, and a Hydra sweep over the rows' commands (`+study=NAME`). A row finds its
records by what they trained, not by a name: see `condition`.
"""

import math
import re
from collections.abc import Iterator, Sequence
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
from capsexp.data import source
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

    def combinations(self, typed: Sequence[str] = ()) -> tuple[tuple[str, ...], ...]:
        """The overrides of its runs, without seeds, with typed words in place of the row's own."""
        return () if self.run is None else expand((*self.run.split(), *typed))

    @property
    def swept(self) -> str:
        """The options in which its runs differ: routing.iterations=1,2,3; nothing for a single run."""
        values: dict[str, dict[str, None]] = {}
        for words in self.combinations():
            for word in words:
                key, _, value = word.partition("=")
                values.setdefault(key, {})[value] = None
        return " ".join(f"{key}={','.join(several)}" for key, several in values.items() if len(several) > 1)


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
class PrintedTwice:
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
    checks: list[PrintedTwice] = field(default_factory=list)
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
    try:
        return checked(name, check_dataclass(_File, _content(path)).sweeper.study)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{path}: {line}{error.problem}") from None
    except (InputError, OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {first_line(error)}") from None


@cache
def _content(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def checked(name: str, content: dict[str, Any]) -> Study:
    """The study that a plain mapping describes; raises InputError."""
    study: Study = check_dataclass(Study, {"name": name} | content)
    for row, given in zip(study.rows, content["rows"], strict=True):
        if not {"run", "elsewhere"} & given.keys():
            raise InputError(f"rows.{row.name}: must have run, a command or null, or elsewhere, a CSV file")
    for wrong, message in _problems(study):
        if wrong:
            raise InputError(message)
    return study


@cache
def expand(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """All combinations of the words' values: `a=1,2 b=3` has two. A later word replaces an earlier one of its key.

    Raises InputError for words that Hydra can't parse.
    """
    choices: dict[str, list[str]] = {}
    try:
        for override in OverridesParser.create().parse_overrides(list(words)):
            key, swept = override.get_key_element(), override.is_sweep_override()
            values = override.sweep_string_iterator() if swept else [override.get_value_element_as_str()]
            choices[key] = [f"{key}={value}" for value in values]
    except Exception as error:
        raise explained(error, list(words)) from error
    return tuple(product(*choices.values()))


@cache
def config_of(overrides: tuple[str, ...]) -> Config:
    """The configuration that a command line makes; raises InputError."""
    return check(composed(list(overrides)))


def identity(overrides: tuple[str, ...]) -> records.Json:
    """What a command line trains, whatever its precision and the state of published data; raises InputError."""
    config = config_of(overrides)
    found = source.identify(config.data, lambda line: None) if config.data.path else None  # one's own: which these are
    return records.identity(config, "", found.note if found else None, found.unlisted if found else None)


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


def _problems(study: Study) -> Iterator[tuple[bool, str]]:
    """What must hold in a study: whether it doesn't, and the error."""
    rows = {row.name for row in study.rows}
    yield len(rows) < len(study.rows), "rows: their first labels must differ"
    for row in study.rows:
        where = f"rows.{row.name}"
        yield len(row.labels) != len(study.columns), f"{where}: must have {len(study.columns)} labels"
        unknown = set(row.published) - set(study.measures)
        yield bool(unknown), f"{where}.published: {', '.join(unknown)} is not among the study's measures"
        for measure, text in row.published.items():
            number, reasons = published_number(text), ", ".join(REASONS)
            wrong = number.value <= 0 if number else text not in REASONS
            yield wrong, f"{where}.published.{measure}={text}: must be a number above 0 or one of {reasons}"
        others = rows - {row.name}
        yield row.reading_of not in (None, *others), f"{where}.reading_of={row.reading_of}: no such row"
        yield row.run is not None and row.elsewhere is not None, f"{where}: has run or elsewhere, not both"
        assigned = all("=" in word for word in (row.run or "").split())
        yield not assigned, f"{where}.run={row.run}: must be words of the form key=value"
    for claim in study.claims:
        yield from ((wrong, f"claims: {claim.text}: {error}") for wrong, error in _problems_of_claim(claim, rows))
    for twice in study.checks:
        numbers = [published_number(text) for text in twice.printed]
        yield len(numbers) != 2 or None in numbers, f"checks: {twice.text}: printed must be two numbers"
    other = study.across not in (None, *study.columns[1:])
    yield other, f"across={study.across}: must be one of the columns but the first"


def _problems_of_claim(claim: Claim, rows: set[str]) -> Iterator[tuple[bool, str]]:
    if claim.untested is not None:
        alone = claim == Claim(claim.text, untested=claim.untested, ours=claim.ours)
        yield not alone, "untested, so without measure, claimed, pairs and rows"
        return
    slope, factor = claim.estimate == "slope", claim.estimate == "factor"
    yield bool(claim.rows) != slope or bool(claim.pairs) == slope, "a slope needs rows, anything else pairs"
    yield any(len(pair) != 2 or len({*pair}) != 2 for pair in claim.pairs), "pairs must be of two rows"
    yield slope and len({*claim.rows}) < 2, "a slope needs two rows at least"
    unknown = sorted(set(claim.compared) - rows)
    yield bool(unknown), f"no row {', '.join(unknown)}"
    size, claimed = published_number(claim.claimed), f"claimed={claim.claimed}"
    allowed = ", ".join(CLAIMED)
    yield size is None and claim.claimed not in CLAIMED, f"{claimed}: must be a number or one of {allowed}"
    least = {"relative": -100.0, "factor": 0.0}.get(claim.estimate, -math.inf)
    effect = size is None or (size.value != (1 if factor else 0) and size.value > least)
    yield not effect, f"{claimed}: must be an effect, by estimate={claim.estimate}"
    relative = claim.estimate == "relative"
    yield claim.measure == "first_epoch" and not relative, "first epochs are compared by estimate=relative"
    points = claim.measure in ("accuracy", "first_five")
    yield points and (relative or factor), "accuracies are compared in points, by estimate=difference or slope"
    margin, needing = published_number(claim.margin), CLAIMED[2:]
    positive = margin is not None and margin.value > 0
    needed = f"margin={claim.margin}: must be positive with {', '.join(needing)}, else missing"
    yield (claim.claimed in needing) != positive, needed
    yield (
        factor and claim.margin is not None,
        "margin: not with estimate=factor; with estimate=relative it is in percent",
    )
