"""A study: one published table or figure, with the rows that the source prints and their commands.

`conf/study/NAME.yaml` is the whole study. A row finds its records by what they trained, not by a name: see
`capsexp.study.identity`.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal

import yaml
from hydra.errors import HydraException
from omegaconf import OmegaConf

from capsexp import Count, Positive
from capsexp.config.checks import check_dataclass, typed_key, unknown_name
from capsexp.config.compose import parsed
from capsexp.config.searchpath import choices
from capsexp.errors import InputError, first_line

_Result = Literal["accuracy", "first_epoch", "level_epoch", "first_five", "reconstruction"]
#: Quantities that sources print and records hold.
MeasureName = Literal[_Result, "parameters", "memory", "inference", "seconds", "operations"]

#: The study of `make demo`: of no source, without a page.
DEMO = "demo"

#: What is claimed of an effect without a size; the last three need a margin.
EFFECTS = ("increase", "decrease", "same", "no increase", "no decrease")

#: The estimate of a claim on how the means of several rows spread.
SPREAD_OF_MEANS = "spread of means"

#: Why there is no number: drawn or lost in our copy; left open by the source; of a network that it doesn't describe.
REASONS = ("not in our copy", "not reported", "not specified")


@dataclass(frozen=True)
class Published:
    """A number as printed; `resolution` is half a unit of its last digit: 0.005 for 82.19, 0.5 for 79."""

    text: str
    value: float
    resolution: float


@dataclass(frozen=True)
class Setting:
    """A training for all rows of a study: the source's own, a declared shorter one, or what is typed."""

    title: str  # above its table: 250 epochs, the first 2,000 training and test images, float32
    words: str = ""  # that each row's command begins with
    data: dict[str, str] = field(default_factory=dict)  # words behind these, by the name of a data set
    complete: list[MeasureName] = field(default_factory=list)  # of which it tells as much as the source's training


@dataclass(frozen=True)
class Row:
    """A row of the source's table."""

    labels: list[str]  # one per column; the first is its name
    run: str | None  # its command; with several combinations the row is the best of them. None: it can't be run
    published: dict[str, str] = field(default_factory=dict)  # measure → as printed (in millions), or one of REASONS
    note: str | None = None
    counted: bool = True  # whether its printed numbers are the source's of this row, not of one that it reads anew

    @property
    def name(self) -> str:
        """Its name in claims."""
        return "".join(self.labels[:1])

    @cached_property
    def printed(self) -> dict[str, Published]:
        """The printed numbers, by measure."""
        return {measure: number for measure, text in self.published.items() if (number := published_number(text))}

    @cached_property
    def words(self) -> list[str]:
        """The words of its command."""
        return shlex.split(self.run or "")

    @property
    def data(self) -> str:
        """The name of its data set, as its command has it; nothing without one."""
        return next((value for key, _, value in (word.partition("=") for word in self.words) if key == "data"), "")

    def words_in(self, setting: Setting) -> tuple[str, ...]:
        """The words of its command in a setting, without seeds; later ones replace earlier ones of their key."""
        return (*setting.words.split(), *setting.data.get(self.data, "").split(), *self.words)

    def combinations(self, setting: Setting) -> tuple[tuple[str, ...], ...]:
        """The overrides of its runs in a setting, without seeds."""
        return () if self.run is None else expand(self.words_in(setting))


@dataclass(frozen=True)
class Claim:
    """A statement of the source about rows. By `estimate` its effect, over the pairs [a, b] or the rows, is

    difference    mean of b − a                                   in the measure's unit
    relative      exp(mean of ln b − ln a) − 1                    percent
    factor        exp(mean of ln a − ln b)                        times
    spread        as relative, of standard deviations over seeds  percent
    spread of means  the same of the rows' means, all a and all b  percent
    slope         least-squares slope over the rows 1, 2, 3, …    unit per row
    """

    text: str
    place: str = ""  # where the source says it, in which words
    measure: MeasureName = "accuracy"
    estimate: Literal["difference", "relative", "factor", "spread", "spread of means", "slope"] = "difference"
    claimed: str = ""  # the size as printed, with its sign; one of EFFECTS; of a time nothing: measured, not judged
    margin: Positive | None = None  # where no effect is claimed, the smallest that would matter, in its unit
    pairs: list[list[str]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    reference: float | None = None  # what the mean of `rows` is compared with, as chance
    of_method: bool = False  # whether its size is said of the method, and isn't one run's
    untested: str | None = None  # why nothing here tests it; it then has none of the above
    counted: bool = True  # whether it is the source's, on the rows that it prints
    question: str = ""  # in the README's table, which asks only claims that have one

    @cached_property
    def size(self) -> Published | None:
        """The claimed size; None where only a direction is claimed."""
        return published_number(self.claimed)

    @property
    def in_percent(self) -> bool:
        """Whether its effect is a change in percent."""
        return self.estimate == "relative" or self.is_spread

    @property
    def is_spread(self) -> bool:
        """Whether it is about how values spread."""
        return self.estimate in ("spread", SPREAD_OF_MEANS)

    @property
    def compared(self) -> list[str]:
        """The names of the rows that it is about."""
        return list(dict.fromkeys([*chain(*self.pairs), *self.rows]))


@dataclass(frozen=True)
class Study:
    """A published table or figure."""

    name: str
    title: str  # a question
    source: str  # the name of the source
    table: str  # which of its tables or figures
    protocol: str  # the source's own words on how the numbers came about
    columns: list[str]  # of the rows' labels
    measures: list[MeasureName]  # that the source prints
    rows: list[Row]
    remark: str = ""  # on the table
    paper: Setting = field(default_factory=lambda: Setting("the training of the rows' commands"))
    laptop: Setting | None = None  # a shorter training
    deviations: list[str] = field(default_factory=list)  # of our runs from the source's, as far as known
    differs: str | None = None  # in what all runs differ from the source's, so that no verdict is on its own experiment
    claims: list[Claim] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)  # in capsexp.figures.catalogue, by name: their titles
    across: str | None = None  # the column whose labels stand along the top of `capsexp reproduce`'s table
    printed_runs: Count = 1  # whose mean a printed number is
    extends: str = ""  # the study whose rows and claims stand before its own, and that has what it doesn't say

    @property
    def settings(self) -> dict[str, Setting]:
        """The paper's training and, if declared, the laptop's."""
        return {"paper": self.paper, **({"laptop": self.laptop} if self.laptop else {})}

    @property
    def own_rows(self) -> list[str]:
        """The names of the rows that the study it extends hasn't; of all without one."""
        inherited = {row.name for row in load(self.extends).rows} if self.extends else set()
        names = [row.name for row in self.rows]
        return [name for name in names if name not in inherited] or names

    @property
    def own_claims(self) -> list[Claim]:
        """Those on its own rows, of a study that extends another; of others none."""
        own = {*self.own_rows} if self.extends else set()
        return [claim for claim in self.claims if not own.isdisjoint(claim.compared)]

    @property
    def pictures(self) -> dict[str, str]:
        """By name what each picture of its page shows; that of its own name is a strip plot, if no other is named."""
        return {self.name: self.title} | self.figures


def names() -> list[str]:
    """All studies of a source, by name."""
    return [name for name in choices("study") if name != DEMO]


def load(name: str) -> Study:
    """A study by name; of STUDY:ROW this row alone. Raises InputError for a missing or inconsistent one."""
    name, _, row = name.partition(":")
    if row:
        rows = {each.name: each for each in load(name).rows}
        if row not in rows:
            raise unknown_name(row, f"row of {name}", rows)
        return replace(load(name), rows=[rows[row]], claims=[])
    if name not in choices("study"):
        raise unknown_name(name, "study", names())
    path = choices("study")[name]
    try:
        return _checked(name, _content(path))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{path}: {line}{error.problem}") from None
    except (InputError, OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {first_line(error)}") from None


def load_all(names: Iterable[str]) -> list[Study]:
    """The studies of these names; several rows of one, each as STUDY:ROW, are together."""
    together: dict[str, Study] = {}
    for study in map(load, names):
        known = together.get(study.name, study)
        rows = {row.name: row for row in [*known.rows, *study.rows]}
        together[study.name] = replace(study, rows=[*rows.values()], claims=known.claims or study.claims)
    return [*together.values()]


@cache
def _content(path: Path) -> Any:
    return OmegaConf.to_container(OmegaConf.load(path))  # which refuses a key that stands twice


def _checked(name: str, content: object) -> Study:
    """The study that a file's content describes; raises InputError."""
    if isinstance(content, dict):
        content = (_extended(content) if "extends" in content else content) | {"name": name}
    study: Study = check_dataclass(Study, content)
    for wrong, message in _problems(study):
        if wrong:
            raise InputError(message)
    return study


def _extended(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a study that extends another, with all that it takes from that one; raises InputError.

    The other's rows and claims stand before its own, whose claims don't count as the source's.
    """
    if (name := f"{content['extends']}") not in names():
        raise InputError(f"extends={unknown_name(name, 'study', names())}")
    base, added = _content(choices("study")[name]) or {}, dict[str, Any]()
    if "extends" in base:
        raise InputError(f"extends={name}: must be a study that extends none")
    for key, default in (("rows", {}), ("claims", {"counted": False})):
        if isinstance(own := content.get(key, []), list):
            added[key] = base.get(key, []) + [default | one if isinstance(one, dict) else one for one in own]
    return base | {"figures": {}} | content | added


@cache
def expand(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """All combinations of the words' values: `a=1,2 b=3` has two. A later word replaces an earlier one of its key.

    Raises InputError for words that Hydra can't parse or enumerate.
    """
    choices: dict[str, list[str]] = {}
    for word in words:
        override = parsed(word)
        key, swept = override.get_key_element(), override.is_sweep_override()
        try:
            values = [*(override.sweep_string_iterator() if swept else [override.get_value_element_as_str()])]
        except HydraException as error:  # interval(0,1), glob(*)
            raise InputError(f"{word}: {first_line(error)}") from None
        choices[key] = [word] if override.is_delete() else [f"{key}={value}" for value in values]
    return tuple(product(*choices.values()))


def published_number(text: str | None) -> Published | None:
    """A number as printed, which is a plain decimal one; None for any other text, such as one of REASONS."""
    if text is None or not re.fullmatch(r"[+-]?(\d+(\.\d+)?|\.\d+)", text, re.ASCII) or math.isinf(float(text)):
        return None
    decimals = len(text.partition(".")[2])
    return Published(text, float(text), float(Decimal(5).scaleb(-decimals - 1)))


def _problems(study: Study) -> Iterator[tuple[bool, str]]:
    """What must hold in a study: whether it doesn't, and the error."""
    rows = {row.name for row in study.rows}
    yield not rows, "rows: must be one at least"
    yield len(rows) < len(study.rows), "rows: their first labels must differ: claims name a row by it"
    for row in study.rows:
        where = f"rows.{row.name}"
        yield len(row.labels) != len(study.columns), f"{where}: must have {len(study.columns)} labels"
        unknown = set(row.published) - set(study.measures)
        yield bool(unknown), f"{where}.published: {', '.join(unknown)} is not among the study's measures"
        for measure, text in row.published.items():
            number, reasons = row.printed.get(measure), ", ".join(REASONS)
            most = 100 if measure in ("accuracy", "first_five") else math.inf  # in percent
            wrong = not 0 < number.value <= most if number else text not in REASONS
            above = "above 0" + " and at most 100" * (most == 100)
            yield wrong, f"{where}.published.{measure}={text}: must be a number {above} or one of {reasons}"
        yield not all("=" in word for word in row.words), f"{where}.run={row.run}: must be words of the form key=value"
        seed = any(typed_key(word) == "seed" for word in row.words)
        yield seed, f"{where}.run={row.run}: must be without a seed; the runs of a row have several"
        try:
            expand(tuple(row.words))
        except InputError as error:
            raise InputError(f"{where}.run={row.run}: {error}") from None
    for claim in study.claims:
        yield from ((wrong, f"claims: {claim.text}: {error}") for wrong, error in _problems_of_claim(claim, rows))
    for name, setting in study.settings.items():
        parts = {"words": setting.words} | {f"data.{data}": words for data, words in setting.data.items()}
        for part, text in parts.items():
            wrong = not all("=" in word for word in text.split())
            yield wrong, f"{name}.{part}={text}: must be words of the form key=value"
    other = study.across not in (None, *study.columns[1:])
    yield other, f"across={study.across}: must be one of the columns but the first"


def _problems_of_claim(claim: Claim, rows: set[str]) -> Iterator[tuple[bool, str]]:
    if claim.untested is not None:
        alone = claim == Claim(claim.text, claim.place, untested=claim.untested, counted=claim.counted)
        yield not alone, "untested, so without measure, claimed, pairs and rows"
        return
    slope, factor = claim.estimate == "slope", claim.estimate == "factor"
    of_rows = slope or (claim.estimate == "difference" and claim.reference is not None)
    wrong = bool(claim.rows) != of_rows or bool(claim.pairs) == of_rows
    yield wrong, "a slope, and a difference from a reference, need rows, anything else pairs"
    yield claim.reference is not None and not of_rows, "reference: only with estimate=difference and rows"
    yield any(len(pair) != 2 or len({*pair}) != 2 for pair in claim.pairs), "pairs must be of two rows"
    yield slope and len({*claim.rows}) < 2, "a slope needs two rows at least"
    unknown = sorted(set(claim.compared) - rows)
    yield bool(unknown), f"no row {', '.join(unknown)}"
    size, claimed = claim.size, f"claimed={claim.claimed}"
    allowed = ", ".join(EFFECTS)
    unjudged = not claim.claimed and claim.measure in ("seconds", "inference") and not claim.question
    yield (
        size is None and claim.claimed not in EFFECTS and not unjudged,
        f"{claimed}: must be a number or one of {allowed}",
    )
    only = claim.is_spread and claim.claimed not in EFFECTS[:2]
    yield only, f"{claimed}: must be {' or '.join(EFFECTS[:2])} with estimate={claim.estimate}"
    least = {"relative": -100.0, "factor": 0.0}.get(claim.estimate, -math.inf)
    effect = size is None or (size.value != (1 if factor else 0) and size.value > least)
    yield not effect, f"{claimed}: must be an effect, by estimate={claim.estimate}"
    relative = claim.estimate == "relative"
    first = claim.measure in ("first_epoch", "level_epoch")
    yield first and not relative, "first epochs are compared by estimate=relative"
    points = claim.measure in ("accuracy", "first_five")
    yield points and (relative or factor), "accuracies are compared in points, by estimate=difference or slope"
    needing = EFFECTS[2:]
    yield (claim.claimed in needing) != (claim.margin is not None), f"margin: only with claimed {', '.join(needing)}"
    yield factor and claim.margin is not None, "margin: not with estimate=factor; with relative it is in percent"
