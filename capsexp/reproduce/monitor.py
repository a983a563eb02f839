"""What the launcher prints: the plan, a line for each run that ends, on a terminal a live table, and the end."""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from capsexp.config.compose import distinguishing
from capsexp.errors import duration, plural
from capsexp.reproduce.planning import Job, State, count
from capsexp.run.execute import is_locked
from capsexp.run.plan import LAST, OUTPUT

_REFRESH = 0.25  # seconds between two drawings of the table


class Monitor:
    """Prints a line when a run has ended; on a terminal, above a table of what runs."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int, console: Console | None = None) -> None:
        self.jobs, self.at_a_time = jobs, at_a_time
        self.told = {job.name for job in jobs if job.state != "waiting"}
        self.live = Live(console=console or Console(), auto_refresh=False, transient=True)
        self.drawn = 0.0

    def update(self) -> None:
        """Prints the jobs that have ended, and draws the table, a few times a second at most."""
        for job in self.jobs:
            if job.state in ("finished", "failed") and job.name not in self.told:
                self.told.add(job.name)
                line = f"{self.counts()}: {job.state} {job.name}: {job.outcome}"
                self.live.console.print(Text(line), soft_wrap=not self.live.console.is_terminal)
        if time.monotonic() - self.drawn > _REFRESH:
            self.drawn = time.monotonic()
            self.live.update(self.table(), refresh=True)

    def table(self) -> Group:
        """What runs, and how far all runs are."""
        table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True)
        table.add_column("run", ratio=1)
        for title in ("epoch", "best %", "published", "s an epoch"):
            table.add_column(title, justify="right", no_wrap=True)
        for job in self.jobs:
            if job.state == "running":
                done = job.progress
                reached = f"{done.best:.2f}" if done.epoch else "", job.published
                seconds = f"{done.seconds:.1f}" if done.epoch else ""
                table.add_row(job.name, f"{done.epoch}/{job.planned.epochs}", *reached, seconds)
        total = Table.grid(padding=(0, 1))
        left, epochs = sum(job.left for job in self.jobs), sum(job.planned.epochs for job in self.jobs)
        total.add_row(ProgressBar(epochs, epochs - left, width=8), Text(self.counts(), style="bold"))
        return Group(table, total)

    def counts(self) -> str:
        """3 of 8 finished, 2 running, 3 waiting, 20 min left."""
        words = [f"{count(self.jobs, 'finished')} of {len(self.jobs)} finished"]
        states: tuple[State, ...] = ("running", "waiting", "failed")
        words += [f"{number} {state}" for state in states if (number := count(self.jobs, state))]
        return ", ".join([*words, *time_left(self.jobs, self.at_a_time)])


def print_plan(jobs: Sequence[Job], barred: Mapping[str, Sequence[str]], at_a_time: int, listed: bool) -> None:
    """Prints what there is to do; `listed`: a line a configuration, with the states of its seeds."""
    rows: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs if listed else ():
        rows[job.words[:-1]].append(job)
    for (words, row), name in zip(rows.items(), distinguishing([*rows]), strict=True):
        first, last = row[0].planned.config.seed, row[-1].planned.config.seed
        states = ", ".join(f"{number} {state}" for state, number in Counter(map(_in_words, row)).items())
        seeds = f"seeds {first}-{last}" if last > first else f"seed {first}"
        print(f"{seeds}: {states}  {name or ' '.join(words)}  ({', '.join(row[0].studies)})")
    epochs = sum(job.left for job in jobs)
    numbers = f"{count(jobs, 'finished')} finished, {count(jobs, 'failed')} failed before"
    left = f"{count(jobs, 'waiting')} to do, up to {epochs:,} epochs"
    print(", ".join([f"{plural(len(jobs), 'run')}: {numbers}", left, *time_left(jobs, at_a_time)]))
    if trials := sum(job.planned.config.budget.steps is not None for job in jobs):
        print(f"{trials} of them are trials of a few steps (budget.steps), which tables leave out")
    for reason, stopped in barred.items():
        print(f"can't run {plural(len(stopped), 'configuration')}: {reason}")


def _in_words(job: Job) -> str:
    """Finished, failed, running, interrupted, or to do."""
    if job.state != "waiting":
        return job.state
    interrupted = (job.planned.folder / LAST).exists()
    return "running" if is_locked(job.planned.folder) else "interrupted" if interrupted else "to do"


def print_end(jobs: Sequence[Job], problems: Sequence[str]) -> None:
    """Prints what was done; the errors come last."""
    left = count(jobs, "waiting", "running")
    print(
        f"{count(jobs, 'finished')} of {plural(len(jobs), 'run')} finished"
        + (f", {left} left: run the same command again to continue" if left else "")
    )
    sys.stdout.flush()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    for job in jobs:
        if job.state == "failed":
            output = job.planned.folder / OUTPUT
            where = f" (its output: {output})" if output.exists() else ""
            print(f"error: {job.name}: {job.outcome}{where}", file=sys.stderr)


def time_left(jobs: Sequence[Job], at_a_time: int) -> list[str]:
    """20 min left, from the seconds an epoch of a configuration's other seeds, or else of all runs; none if unknown."""
    measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for job in jobs:
        if job.progress.seconds:
            measured[job.words[:-1]].append(job.progress.seconds)  # without the seed
    left = [job for job in jobs if job.left]
    if not measured or not left:
        return []
    overall = mean(seconds for kind in measured.values() for seconds in kind)
    seconds = sum(job.left * mean(measured.get(job.words[:-1], [overall])) for job in left)
    return [f"{duration(seconds / min(at_a_time, len(left)))} left"]
