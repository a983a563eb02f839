"""What the verdicts would be by another rule, from all records.

The claims that runs test are judged again with other constants of capsexp.results.statistics, and by other accuracies
than the best epoch's: the table in docs/verdicts.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from unittest.mock import patch

from capsexp.cli import Parser, exit_with
from capsexp.errors import plural
from capsexp.results import runs, statistics, steps
from capsexp.results.claims import MeasuredClaim
from capsexp.results.questions import distinct
from capsexp.results.runs import Run
from capsexp.results.steps import Steps
from capsexp.results.study import measure
from capsexp.run import records
from capsexp.study import studies
from capsexp.study.studies import Study
from capsexp.tables.texts import effect, one_line

#: Constants, and values in their place.
CONSTANTS = {
    "spread shared by 8 degrees of freedom, not at most 4": {"PRIOR": 8.0},
    "by 2 degrees of freedom": {"PRIOR": 2.0},
    "by 1 degree of freedom": {"PRIOR": 1.0},
    "no least spread, not half a standard error of the test set": {"FLOOR": 0.0},
    "a whole standard error": {"FLOOR": 1.0},
}


def before_steps(run: Run, results: Path) -> Run:
    """The run with the curve up to the first step of its learning rate, behind which curves are flat."""
    record = records.read(results / "runs" / f"{run.name}.json")
    rates = [epoch["learning_rate"] for epoch in record.epochs]
    stepped = record.config["optim"]["schedule"] == "steps" and rates[0] > rates[-1]
    return replace(run, curve=run.curve[: rates.count(rates[0])] if stepped else run.curve)


#: A run's accuracy, and whether everybody has the same test images.
RUNS: dict[str, Callable[[Run, Path], Run]] = {
    "the last epoch's accuracy, not the best": lambda run, _: _with(run, run.measures["last"]),
    "the mean of the last fifth of the epochs": lambda run, _: _with(
        run, mean(run.curve[-max(1, round(len(run.curve) / 5)) :])
    ),
    "the test images as a sample of more": lambda run, _: replace(run, official=False, correct=None),
    "still rising at the learning rate's first step, not at the end": before_steps,
}


def _with(run: Run, accuracy: float) -> Run:
    return replace(run, measures={**run.measures, "accuracy": accuracy})


def judged(chosen: Sequence[Study], found: Sequence[Run], timed: Steps) -> dict[tuple[object, ...], MeasuredClaim]:
    """The claims that runs test, each once."""
    return {one.key: one for one in distinct(measure(chosen, found, steps=timed)) if one.effect and one.runs}


def changes(chosen: Sequence[Study], found: Sequence[Run], timed: Steps, results: Path) -> dict[str, list[str]]:
    """By what is changed, each claim whose verdict becomes another."""
    before = judged(chosen, found, timed)
    after = {}
    for name, constants in CONSTANTS.items():
        with patch.multiple(statistics, **constants):
            after[name] = judged(chosen, found, timed)
    for name, change in RUNS.items():
        after[name] = judged(chosen, [change(run, results) if "last" in run.measures else run for run in found], timed)
    return {
        name: [
            _line(old, claims[key])
            for key, old in before.items()
            if key in claims and claims[key].decided != old.decided
        ]
        for name, claims in after.items()
    }


def _line(old: MeasuredClaim, new: MeasuredClaim) -> str:
    so_far = " so far" if old.so_far else ""
    return f"{one_line(old.claim.text)}: {old.decided}{so_far} → {new.decided}, {effect(new.claim, new.effect)}"


def main(words: Sequence[str]) -> int:
    """Prints the table; the exit code."""
    parser = Parser(__doc__, "python benchmarks/sensitivity.py")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of runs/")
    results = parser.parse_args(words).results
    found, _ = runs.read(results)
    timed = steps.read(results)
    chosen = [studies.load(name) for name in studies.names()]
    print(f"{plural(len(judged(chosen, found, timed)), 'claim')} tested by runs, on {plural(len(found), 'record')}")
    for name, lines in changes(chosen, found, timed, results).items():
        print(f"\n{name}:", *(lines or ["none"]), sep="\n  ")
    return 0


if __name__ == "__main__":
    exit_with(main)
