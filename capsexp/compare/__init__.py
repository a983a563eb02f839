"""Two sides of runs beside each other, by the rule of the tables: A, B, B − A with its interval, and a verdict.

What a side can be: see `capsexp.compare.__main__`. Of two folders, all that both have trained is compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capsexp.config.checks import nearest
from capsexp.errors import InputError
from capsexp.results import cells, runs
from capsexp.results.cells import Matched
from capsexp.results.collect import Line, Results, measure
from capsexp.results.runs import Run, distinct
from capsexp.results.spread import Pools
from capsexp.study import studies
from capsexp.study.selection import Selection, select
from capsexp.study.setting import Setting
from capsexp.study.studies import Measure, Study
from capsexp.tables import pages
from capsexp.tables.pages import Table
from capsexp.tables.texts import claim_texts, mean_and_spread

NAME = "compare"

SIDES = "a command line such as 'model=capsnet data=mnist', STUDY:ROW, a run's key or record, or a folder of results"

#: What is compared, and how.
MEASURES: dict[Measure, str] = {
    "accuracy": "maximum accuracy, %",
    "first_five": "mean of epochs 1–5, %",
    "first_epoch": "first epoch to the maximum",
    "seconds": "seconds an epoch",
    "memory": "MB on the device",
}

#: The verdicts on an increase from A to B, where nothing is claimed.
WORDS = {"supported": "B is higher", "contradicted": "B is lower"}

NOTE = pages.Note(
    "A and B: mean ± standard deviation over seeds (number of seeds). B − A: with its 95 % interval, from the spread "
    "over seeds of all runs of the data set in this setting, unless there are too few seeds; of epochs and costs, the "
    "change from A to B. Seconds: only of runs with equal threads on the same, quiet machine."
)


@dataclass(frozen=True)
class Pair:
    """Two rows of the study that is compared."""

    what: str  # nothing for the only pair
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """The pairs, and what their runs give: a study that nobody has published."""

    sides: tuple[str, str]
    pairs: list[Pair]
    results: Results


def compare(
    sides: tuple[str, str], results: Path, claimed: str | None = None, margin: str | None = None
) -> tuple[Comparison, list[str]]:
    """The comparison, and a line for each record that can't be used.

    Args:
        results: the folder with the records of sides that are no folders themselves.
        claimed: of the accuracy's B − A: a size in points, with its sign, or one of studies.CLAIMED.
        margin: in points, where no difference is claimed.

    Raises InputError for sides that make no sense or have no runs.
    """
    if Path(sides[0]).resolve() == Path(sides[1]).resolve():
        raise InputError(f"{sides[0]}: both sides are the same")
    folders = [Path(side).is_dir() for side in sides]
    if any(folders) and not all(folders):
        raise InputError(f"{sides[folders.index(True)]}: a folder is compared with a folder")
    if all(folders):
        (of_a, problems), (of_b, problems_of_b) = (runs.read(Path(side)) for side in sides)
        problems += problems_of_b
        recorded = [*_of_side(of_a, sides[0]), *_of_side(of_b, sides[1])]
        pairs, matched = _pairs(sides, [of_a, of_b])
    else:
        recorded, problems = runs.read(results)
        pairs, matched = [Pair("", *sides)], {side: _side(side, recorded) for side in sides}
        names = [{(run.name, run.started) for _, run in of_side.runs} for of_side in matched.values()]
        if common := set.intersection(*names):
            raise InputError(f"{sides[0]} and {sides[1]}: have runs in common, {min(common)[0]}")
    study = _study(pairs, claimed, margin)
    conditions = {name: frozenset(run.condition for _, run in made.runs) for name, made in matched.items()}
    found = measure(Selection(study, [], []), matched, conditions, Pools(recorded))  # as `collect`, already matched
    return Comparison(sides, pairs, found), problems


def _side(text: str, recorded: Sequence[Run]) -> Matched:
    """The finished runs of one side; raises InputError."""
    study, colon, name = text.partition(":")
    if Path(text).suffix == ".json" and Path(text).is_file():
        matched = _alone([runs.read_run(Path(text))])
    elif "=" in text:
        for words in studies.expand(tuple(text.split())):
            studies.config_of(words)  # raises what is wrong
        matched = _of_command(text, recorded)
    elif colon and study in studies.names():
        rows = studies.load(study).rows
        row = next((row for row in rows if row.name == name), None)
        if row is None:
            raise InputError(f"{text}: {study} has no row {name}{nearest(name, [row.name for row in rows])}")
        matched = _of_command(row.run, recorded)
    else:
        named = [run for run in recorded if run.name.startswith(text) or run.key.startswith(text)]
        matched = _alone([run for run in named if run.state == "finished"])
        if len(matched.runs) > 1:
            raise InputError(f"{text}: {len(matched.runs)} runs begin like that")
    finished = [(option, run) for option, run in matched.runs if run.state == "finished"]
    if not finished:
        raise InputError(f"{text}: no finished run (trials of budget=smoke don't count); a side is {SIDES}")
    if all(run.protocol != "paper" for _, run in finished):
        raise InputError(f"{text}: has runs of protocol=heldout only; runs of protocol=paper are compared")
    return Matched(matched.options, finished)


def _of_command(command: str | None, recorded: Sequence[Run]) -> Matched:
    """The runs of a command line."""
    return cells.match(select(_of_rows({NAME: command})), cells.by_condition(recorded))[NAME]


def _alone(recorded: Sequence[Run]) -> Matched:
    """Runs that are of no study."""
    return Matched(1, [(0, run) for run in recorded])


def _pairs(sides: Sequence[str], recorded: Sequence[Sequence[Run]]) -> tuple[list[Pair], dict[str, Matched]]:
    """All that both folders have trained, a pair each, and the runs; raises InputError where that is nothing."""
    parts = [[run for run in distinct(of_side) if run.protocol == "paper"] for of_side in recorded]
    there = {run.condition for run in parts[0]}
    named = {run.condition: _what(run) for run in parts[1] if run.condition in there}
    if not named:
        raise InputError(f"{sides[0]} and {sides[1]}: no run that both have")
    pairs: list[Pair] = []
    matched: dict[str, Matched] = {}
    for condition, what in sorted(named.items(), key=lambda one: one[1]):
        unique = what if [*named.values()].count(what) == 1 else f"{what} {condition[:6]}"
        pairs.append(Pair(unique, *(f"{unique}, {side}" for side in sides)))
        for side, part in zip(sides, parts, strict=True):
            own = [run for run in part if run.condition == condition]
            matched[f"{unique}, {side}"] = _alone(_of_side(own, side))
    return pairs, matched


def _of_side(recorded: Iterable[Run], side: str) -> list[Run]:
    """The runs with another condition than those of the other folder, so that each folder has cells of its own."""
    return [replace(run, condition=f"{run.condition} {side}") for run in recorded]


def _what(run: Run) -> str:
    """capsnet on mnist, dynamic 3, CBAM."""
    routing = f", {run.routing} {run.iterations}" if run.iterations is not None else ""
    return f"{run.network} on {run.data}{routing}" + (f", {run.attention}" if run.attention != "none" else "")


def _study(pairs: Sequence[Pair], claimed: str | None, margin: str | None) -> Study:
    """The study of these pairs, with a claim on each measure of each; raises InputError."""
    claims = [
        {
            "text": "B − A",
            "measure": measure,
            "estimate": "difference" if measure in ("accuracy", "first_five") else "relative",
            "claimed": claimed if claimed and measure == "accuracy" else "increase",
            "margin": margin if measure == "accuracy" else None,
            "pairs": [[pair.a, pair.b]],
        }
        for pair in pairs
        for measure in MEASURES
    ]
    return _of_rows({name: None for pair in pairs for name in (pair.a, pair.b)}, claims)


def _of_rows(commands: Mapping[str, str | None], claims: Sequence[dict[str, Any]] = ()) -> Study:
    """A study of rows without published numbers, by name; raises InputError for claims that make no sense."""
    content = {
        "title": NAME,
        "source": "Runs of protocol=paper",
        "protocol": "Verdicts as in the tables: docs/verdicts.md.",
        "columns": ["runs"],
        "measures": ["accuracy", "first_epoch", "first_five"],
        "rows": [{"labels": [name], "run": command} for name, command in commands.items()],
        "claims": [*claims],
    }
    return studies.checked(NAME, content)


def differences(comparison: Comparison) -> Table:
    """A line per pair and measure: A, B, B − A, and the verdict."""
    several, rows = len(comparison.pairs) > 1, []
    for pair in comparison.pairs:
        claims = [claim for claim in comparison.results.claims if claim.claim.pairs == [[pair.a, pair.b]]]
        setting = next((claim.setting for claim in claims if claim.setting), None)
        lines = [_line(comparison.results, name, setting) for name in (pair.a, pair.b)]
        different = _different_settings(*lines)
        for claim in claims:
            if claim.verdict == "not run":
                continue  # memory on the device, of runs on a CPU
            sides, shown = [mean_and_spread(line.cell(claim.claim.measure)) for line in lines], claim_texts(claim)
            word = WORDS.get(claim.verdict, shown.verdict) if claim.claim.claimed == "increase" else shown.verdict
            named = [*([pair.what] if several else []), MEASURES[claim.claim.measure], *sides]
            rows.append([*named, shown.measured, word, shown.p_value, different or shown.origin])
    common, *heads = _heads(*comparison.sides)
    columns = [*(["what"] if several else []), "measure", *heads, "B − A", "verdict", "p", "from"]
    return Table(common, columns, "l" * len(columns), rows, [NOTE, pages.RULE])


def _heads(a: str, b: str) -> tuple[str, str, str]:
    """What both sides have in common, and the heads of their columns: what differs."""
    (study, colon, row), (other, _, other_row) = a.partition(":"), b.partition(":")
    if "=" in a and "=" in b:
        words, others = a.split(), b.split()
        own, other = (" ".join(w for w in one if w not in rest) for one, rest in ((words, others), (others, words)))
        return " ".join(word for word in words if word in others), f"A: {own or 'as is'}", f"B: {other or 'as is'}"
    if colon and study == other:
        return study, f"A: {row}", f"B: {other_row}"
    return "", f"A: {a}", f"B: {b}"


def _line(results: Results, row: str, setting: Setting | None) -> Line:
    """A side in this setting, or in its main one."""
    lines = [line for line in [*results.lines, *results.other_lines] if line.row.name == row]
    return next((line for line in lines if line.setting == setting), lines[0])


def _different_settings(a: Line, b: Line) -> str:
    """budget.epochs differs: 2 of 250 epochs, bf16, and all 250 epochs, bf16. Nothing for one setting."""
    if a.setting == b.setting:
        return ""
    settings = [line.setting for line in (a, b)]
    words, others = ({*s.overrides, f"optim.epochs={s.paper_epochs}"} if s else set() for s in settings)
    keys = sorted({word.partition("=")[0] for word in words ^ others}) or ["data.note"]
    return f"{' and '.join(keys)} {'differ' if len(keys) > 1 else 'differs'}: {a.setting}, and {b.setting}"
