"""Two sides of runs beside each other, by the rule of the tables: measured as a study with two rows."""

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from capsexp.config.checks import typed_key
from capsexp.config.compose import for_hydra
from capsexp.errors import InputError, first_line, plural
from capsexp.results import runs
from capsexp.results.cells import MeasuredRow, best_of_seeds, by_training, cells_of, rows_of
from capsexp.results.claims import MeasuredClaim, measure_claim
from capsexp.results.measures import MEASURES, title_of
from capsexp.results.runs import Run
from capsexp.results.statistics import Pools
from capsexp.run import keys
from capsexp.study import studies
from capsexp.study.identity import Trained
from capsexp.study.selection import PAPER, Block, combination, select
from capsexp.study.studies import Claim, MeasureName, Row, Setting, Study
from capsexp.tables import texts
from capsexp.tables.table import Table

#: What is compared.
COMPARED: tuple[MeasureName, ...] = ("accuracy", "first_five", "first_epoch", "reconstruction", "seconds", "memory")

_LISTED = 3  # kinds of runs in an error message


def compare(sides: tuple[str, str], results: Path) -> tuple[Table, list[str]]:
    """A line per measure, and a line for each record that can't be used.

    Args:
        sides: each a command line, or a run: its key, the beginning of its name, or the path of its record.
        results: the folder with the records.

    Raises InputError for sides that make no sense, have no runs, or none that were trained alike.
    """
    recorded, problems = runs.read(results)
    named = {*studies.names()} & {side.partition(":")[0] for side in sides}
    if any(studies.load(name).extends for name in named):
        recorded = runs.with_project(recorded)
    a, b = (_side(side, recorded) for side in sides)
    if common := {run.key for run in a} & {run.key for run in b}:
        raise InputError(f"{sides[0]} and {sides[1]}: have runs in common, {min(common)}")
    pairs = dict(zip("AB", _alike(sides, a, b), strict=True))
    trained = {side: of_side[0].trained.training for side, of_side in pairs.items()}
    first, protocol = pairs["A"][0], pairs["A"][0].protocol
    training = trained["A"] if len({*trained.values()}) == 1 else first.amount
    rows = [Row([side], None) for side in pairs]
    block = Block(PAPER, Setting(", ".join(filter(None, [training, *first.trained[2:]]))), {side: [] for side in pairs})
    study = _study(rows)
    measured = [MeasuredRow(row, block, pairs[row.name], best_of_seeds(pairs[row.name])) for row in rows]
    pools = Pools(recorded)
    cells = [cells_of(study, row, pools) for row in measured]
    lines, intervals = [], []
    for claim in study.claims:
        one = measure_claim(claim, study, [measured], pools)
        if one.verdict != "not run":
            title = title_of(claim.measure, protocol == "heldout")
            sizes = [texts.measured(of_side[claim.measure], False) for of_side in cells]
            lines.append([title, *sizes, texts.effect(claim, one.effect, interval=False), _verdict(one)])
            intervals += [f"{title}: {texts.effect(claim, one.effect)}"] if one.effect and one.effect.interval else []
    common_words, *heads = _heads(*sides)
    a_runs, b_runs = (
        f"{plural(len(row.runs), 'run')} of {' or '.join(dict.fromkeys(run.words for run in row.runs))}"
        + f", the best of each seed among {len(row.all_runs)}" * (len(row.all_runs) > len(row.runs))
        + f" ({trained[row.row.name]})" * (trained[row.row.name] != training)
        for row in measured
    )
    heldout = ", epochs chosen on held-out images and tested once" if protocol == "heldout" else ""
    notes = [
        f"Trained: {block.setting.title}{heldout}; A: {a_runs}, B: {b_runs}, in {results / 'runs'}.",
        f"B − A with its 95 % interval: {'; '.join(intervals)}." if intervals else "",
        "A and B: mean ± standard deviation over seeds; the interval is from the spread over seeds of all runs of the "
        "data set trained like these; of epochs, errors and costs, B − A is the change from A to B.",
    ]
    leaks = sorted({f"In {run.name} {run.leak}." for run in chain(*pairs.values()) if run.leak})
    notes = [*(note for note in notes if note), *leaks]
    return Table(common_words, ["measure", *heads, "B − A", "verdict"], "lrrrl", lines, notes), problems


def _side(text: str, recorded: Sequence[Run]) -> list[Run]:
    """The finished runs of one side; raises InputError."""
    path, typed = Path(text), dict[str, set[str]]()
    study, _, row = text.lstrip("+").removeprefix("study=").partition(":")
    if study in studies.names() and not row:
        raise InputError(f"{text}: a study is many runs; a side is the command line of one of them, or {study}:ROW")
    if study in studies.names():
        one = studies.load(f"{study}:{row}")
        lines = chain(*(rows_of(one, block, by_training(recorded)) for block in select(one).blocks))
        found = [run for line in lines for run in line.all_runs]
    elif "=" in text and "/" not in text.partition("=")[0]:
        try:
            words = tuple(map(for_hydra, shlex.split(text)))
        except ValueError as error:
            raise InputError(f"{text}: {first_line(error)}") from None
        overrides = studies.expand(words)
        for word in chain(*overrides):
            if (key := typed_key(word)) in ("protocol", "seed"):
                typed.setdefault(key, set()).add(word.partition("=")[2])
        asked = [*map(combination, overrides)]
        budget = any(word.startswith("budget") for word in words)
        found = [run for run in recorded if any(_is_like(run.trained, one.trained, budget) for one in asked)]
        found = found or _with_words(text, words, recorded)
    elif path.suffix == ".json" and path.is_file():
        found = [runs.read_run(path)]
    else:
        begun = keys.key_in(path) if path.exists() else text
        found = [run for run in recorded if run.name.startswith(text) or (begun and run.key.startswith(begun))]
        if len(found) > 1:
            raise InputError(f"{text}: {len(found)} runs begin like that")
    alike = (run for run in found if all(str(getattr(run, key)) in values for key, values in typed.items()))
    finished = [run for run in alike if run.status == "finished"]
    if not finished:
        raise InputError(f"{text}: no finished run; {_there(text, found, recorded)}")
    return finished


def _with_words(text: str, words: Sequence[str], recorded: Sequence[Run]) -> list[Run]:
    """The runs of one kind whose commands have these words, whatever their data set; raises InputError for several."""
    found = [run for run in recorded if {*words} <= {*run.command}]
    if len({(run.dataset, run.trained.condition) for run in found}) > 1:
        kinds = sorted({run.words for run in found})
        raise InputError(f"{text}: runs of several kinds have it: {'; '.join(kinds[:_LISTED])}; add words of one")
    return found


def _there(text: str, found: Sequence[Run], recorded: Sequence[Run]) -> str:
    """Which runs are like those that were asked for, or else what a side can be."""
    if found:
        there = sorted({f"{run.status} ones of protocol={run.protocol} seed={run.seed}" for run in found})
        return f"there are {', '.join(there[:_LISTED])}{' and others' * (len(there) > _LISTED)}"
    same = [run for run in recorded if run.status == "finished" and f"data={run.data}" in text.split()]
    kinds = Counter(run.words for run in same or recorded if run.status == "finished")
    listed = "; ".join(f"{kind} ({plural(count, 'run')})" for kind, count in kinds.most_common(_LISTED))
    more = f" and {len(kinds) - _LISTED} other kinds" if len(kinds) > _LISTED else ""
    return f"there are {listed or 'none'}{more}; a side is a command line such as 'data=mnist attention=cbam', or a run"


def _is_like(run: Trained, wanted: Trained, budget: bool) -> bool:
    """Whether a run is one of a command line; `budget`: of its budget alone, as trials are."""
    same = run.condition == wanted.condition and wanted.precision in ("auto", run.precision)
    return same and (run.training == wanted.training or not (budget or run.is_trial))


def _alike(sides: tuple[str, str], a: Sequence[Run], b: Sequence[Run]) -> list[list[Run]]:
    """The runs of both sides that were trained alike: with most seeds, then with most training.

    Trained alike is: of one training, files, precision and protocol; where there are none, of one amount of training,
    as networks of other widths, or whose papers have other numbers of epochs. Raises InputError without any.
    """
    for whole in (True, False):
        kinds = [
            {run: (run.trained.training if whole else run.amount, *run.trained[2:], run.protocol) for run in of_side}
            for of_side in (a, b)
        ]
        counts = [Counter(kind for kind, _ in {(kind, run.seed) for run, kind in of.items()}) for of in kinds]
        if both := counts[0].keys() & counts[1].keys():
            steps = {kind: len(run.curve) * (run.trained_images or 0) for run, kind in kinds[0].items()}
            best = max(sorted(both), key=lambda k: (min(of[k] for of in counts), sum(of[k] for of in counts), steps[k]))
            chosen = [[run for run, kind in of.items() if kind == best] for of in kinds]
            widths = [Counter(run.trained.training for run in of_side).most_common(1)[0][0] for of_side in chosen]
            return [
                [run for run in of_side if run.trained.training == width]
                for of_side, width in zip(chosen, widths, strict=True)
            ]
    has = ["; ".join(sorted({f"{run.trained}, protocol={run.protocol}" for run in of_side})) for of_side in (a, b)]
    raise InputError(f"no training that both sides have: {sides[0]} has {has[0]}, {sides[1]} has {has[1]}")


def _study(rows: list[Row]) -> Study:
    """A study of the rows A and B, with a claim on each measure."""
    claims = [
        Claim(
            f"{MEASURES[measure].title}: B − A",
            measure=measure,
            estimate="difference" if MEASURES[measure].scale == "percent" else "relative",
            claimed="increase",
            pairs=[["A", "B"]],
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
    words = {"supported": "B is higher", "contradicted": "B is lower", "none above": texts.none_above(one)}
    return words.get(one.verdict, ", ".join(filter(None, [one.verdict, one.reason])))
