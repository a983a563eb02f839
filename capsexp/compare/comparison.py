"""Two sides of runs beside each other, by the rule of the tables: measured as a study with two rows."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from capsexp.errors import InputError, plural
from capsexp.results import runs
from capsexp.results.cells import Best, Group, Index, cells_of
from capsexp.results.claims import MeasuredClaim, measure_claim
from capsexp.results.measures import MEASURES
from capsexp.results.pools import Pools
from capsexp.results.runs import Run, distinct
from capsexp.study import studies
from capsexp.study.identity import Trained, trained_by
from capsexp.study.selection import PAPER, Block
from capsexp.study.studies import Claim, Measure, Row, Setting, Study
from capsexp.tables import texts
from capsexp.tables.table import Table

#: What is compared.
COMPARED: tuple[Measure, ...] = ("accuracy", "first_five", "first_epoch", "seconds", "memory")

#: The verdicts on an increase from A to B.
WORDS = {"supported": "B is higher", "contradicted": "B is lower"}


def compare(sides: tuple[str, str], results: Path) -> tuple[Table, list[str]]:
    """A line per measure, and a line for each record that can't be used.

    Args:
        sides: each a command line, or a run: its key, the beginning of its name, or the path of its record.
        results: the folder with the records.

    Raises InputError for sides that make no sense, have no runs, or none that were trained alike.
    """
    recorded, problems = runs.read(results)
    a, b = (_side(side, recorded) for side in sides)
    if common := {run.key for run in a} & {run.key for run in b}:
        raise InputError(f"{sides[0]} and {sides[1]}: have runs in common, {min(common)}")
    training = _common(sides, a, b)
    pairs = {
        side: [run for run in of_side if run.trained[1:] == training]
        for side, of_side in zip(sides, (a, b), strict=True)
    }
    rows = [Row([side], None) for side in sides]
    block = Block(PAPER, Setting(", ".join(filter(None, training))), {side: [] for side in sides})
    study = _study(rows, sides)
    groups = [_group(row, block, pairs[row.name]) for row in rows]
    pools, indexed = Pools(recorded), Index.of(recorded)
    cells = [cells_of(study, group, pools, indexed) for group in groups]
    lines = []
    for claim in study.claims:
        one = measure_claim(claim, study, [groups], pools, indexed)
        if one.verdict != "not run":
            sizes = [texts.measured(of_side[claim.measure], False) for of_side in cells]
            lines.append([MEASURES[claim.measure].title, *sizes, texts.effect(claim, one.effect), _verdict(one)])
    counts = [len(group.best) for group in groups]
    common_words, *heads = _heads(*sides)
    notes = [
        f"Trained: {block.setting.title}; {plural(counts[0], 'run')} of A, {plural(counts[1], 'run')} of B.",
        "A and B: mean ± standard deviation over seeds. B − A: with its 95 % interval, from the spread over seeds of "
        "all runs of the data set trained like these; of epochs and costs, the change from A to B.",
    ]
    return Table(common_words, ["measure", *heads, "B − A", "verdict"], "lrrrl", lines, notes), problems


def _side(text: str, recorded: Sequence[Run]) -> list[Run]:
    """The finished runs of one side; raises InputError."""
    if Path(text).suffix == ".json" and Path(text).is_file():
        found = [runs.read_run(Path(text))]
    elif "=" in text:
        words = tuple(shlex.split(text))
        wanted = [trained_by(one) for one in studies.expand(words)]
        budget = any(word.startswith("budget") for word in words)
        found = [run for run in recorded if any(_is_like(run.trained, one, budget) for one in wanted)]
    else:
        found = [run for run in recorded if run.name.startswith(text) or run.key.startswith(text)]
        if len(found) > 1:
            raise InputError(f"{text}: {len(found)} runs begin like that")
    finished = distinct(run for run in found if run.status == "finished")
    if not finished:
        raise InputError(
            f"{text}: no finished run (trials of budget=smoke don't count); a side is a command line such as "
            "'model=capsnet data=mnist', or a run's key or record"
        )
    paper = [run for run in finished if run.protocol == "paper"]
    if not paper:
        raise InputError(f"{text}: has runs of protocol=heldout only; runs of protocol=paper are compared")
    return paper


def _is_like(run: Trained, wanted: Trained, budget: bool) -> bool:
    """Whether a run is one of a command line; `budget`: of its budget alone."""
    same = run.condition == wanted.condition and wanted.precision in ("auto", run.precision)
    return same and (run.training == wanted.training or not budget)


def _common(sides: tuple[str, str], a: Sequence[Run], b: Sequence[Run]) -> tuple[str, ...]:
    """Training, files and precision that both sides have: with most seeds; raises InputError where there are none."""
    seeds = [{(run.trained[1:], run.seed) for run in of_side} for of_side in (a, b)]
    counts = [Counter(one for one, _ in of_side) for of_side in seeds]
    if not (both := counts[0].keys() & counts[1].keys()):
        texts_of = ["; ".join(sorted({str(run.trained) for run in of_side})) for of_side in (a, b)]
        raise InputError(
            f"no training that both sides have: {sides[0]} has {texts_of[0]}, {sides[1]} has {texts_of[1]}"
        )
    return max(sorted(both), key=lambda one: (min(count[one] for count in counts), sum(count[one] for count in counts)))


def _group(row: Row, block: Block, of_side: Sequence[Run]) -> Group:
    """A side's runs; of several with one seed the best."""
    by_seed: dict[int, list[Run]] = {}
    for run in of_side:
        by_seed.setdefault(run.seed, []).append(run)
    best = [
        Best(max(of_seed, key=lambda run: run.selected_by or 0.0), len(of_seed), len(of_seed))
        for _, of_seed in sorted(by_seed.items())
    ]
    return Group(row, block, "paper", of_side, best)


def _study(rows: list[Row], sides: tuple[str, str]) -> Study:
    """A study of these rows, with a claim on each measure."""
    claims = [
        Claim(
            f"{MEASURES[measure].title}: B − A",
            measure=measure,
            estimate="difference" if MEASURES[measure].scale == "percent" else "relative",
            claimed="increase",
            pairs=[[*sides]],
        )
        for measure in COMPARED
    ]
    return Study("compare", "", "compare", "", "", ["runs"], [*COMPARED], rows, claims=claims)


def _heads(a: str, b: str) -> tuple[str, str, str]:
    """What both sides have in common, and the heads of their columns: what differs."""
    words, others = a.split(), b.split()
    if "=" not in a or "=" not in b:
        return "", f"A: {a}", f"B: {b}"
    own, other = (" ".join(w for w in one if w not in rest) for one, rest in ((words, others), (others, words)))
    return " ".join(word for word in words if word in others), f"A: {own or 'as is'}", f"B: {other or 'as is'}"


def _verdict(one: MeasuredClaim) -> str:
    reason = "one run only" if one.reason.startswith("one run of") else one.reason
    return WORDS.get(one.verdict, ", ".join(filter(None, [one.verdict, reason])))
