"""The runs of a sweep as a study of their own: a row for each combination of what it varies, and the differences."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from capsexp.config.checks import typed_key
from capsexp.config.compose import portable, varied
from capsexp.results import runs
from capsexp.results.cells import by_training
from capsexp.results.steps import Steps
from capsexp.results.study import StudyResults, measure_together
from capsexp.run.plan import plan
from capsexp.study.selection import TYPED, Block, Selection, combination
from capsexp.study.studies import Claim, Row, Setting, Study

Words = tuple[str, ...]  # the KEY=VALUE of a run, without its seed


def measure_sweep(commands: Sequence[Sequence[str]], results: Path) -> StudyResults:
    """The runs of a sweep, the KEY=VALUE of each, measured by the rule of the tables."""
    overrides = {words: tuple(one for one in words if typed_key(one) != "seed") for words in map(tuple, commands)}
    each = dict.fromkeys(overrides.values())
    columns, _ = varied([*map(portable, each)])
    recorded, _ = runs.read(results)
    names = {plan(combination(words).config).name for words in overrides}
    own = [run for run in recorded if run.name in names]
    trained = {f"{run.trained.training}, {run.trained.precision}" for run in own}
    rows = {" ".join(word for word in words if typed_key(word) in columns) or "all": words for words in each}
    study = Study(
        name="sweep",
        title=f"Sweep over {', '.join(columns) or 'seeds'}",
        source="",
        table="",
        protocol="",
        columns=["runs"],
        measures=["accuracy"],
        rows=[Row([name], shlex.join(portable(words))) for name, words in rows.items()],
        claims=[*_claims(rows)],
        remark=_beside([*columns], [*rows.values()]),
    )
    setting = Setting(trained.pop() if len(trained) == 1 else "")
    selection = Selection(study, [Block(TYPED, setting, {name: [combination(words)] for name, words in rows.items()})])
    (measured,) = measure_together([selection], by_training(own), Steps())
    return measured


def _beside(keys: Sequence[str], rows: Sequence[Words]) -> str:
    """What else differs where the networks do, as their papers train them otherwise."""
    configs = [combination(words).config for words in rows]
    groups = [name for name in ("preprocess", "loss", "optim") if not any(key.startswith(name) for key in keys)]
    others = [name for name in groups if len({repr(getattr(config, name)) for config in configs}) > 1]
    return f"The rows differ in {', '.join(others)}, too." if others else ""


def _claims(rows: dict[str, Words]) -> Iterator[Claim]:
    """For each key and two of its values the difference between the rows that have nothing else apart."""
    pairs: dict[tuple[str, str], list[list[str]]] = {}
    for (a, one), (b, other) in combinations(rows.items(), 2):
        only_a, only_b = ([word for word in x if word not in y] for x, y in ((one, other), (other, one)))
        if len(only_a) == len(only_b) == 1 or len(rows) == 2:
            pairs.setdefault((" ".join(only_a) or "as is", " ".join(only_b) or "as is"), []).append([a, b])
    for (a, b), of_words in pairs.items():
        yield Claim(f"{b} against {a}", claimed="increase", pairs=of_words)
