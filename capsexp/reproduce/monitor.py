"""What the launcher prints: the plan, a line for each change, on a terminal a live table, and the end."""

import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from capsexp.config.compose import distinguishing
from capsexp.errors import duration, plural
from capsexp.reproduce.planning import Job, count
from capsexp.run.execute import is_locked
from capsexp.run.plan import LAST, OUTPUT

_REFRESH = 0.25  # seconds between two drawings of the table
_BAR = 8  # characters of a progress bar


class Monitor:
    """Prints a line when a run begins, ends, fails or is waited for; on a terminal, above a table of what runs.

    On a terminal each line is cut at its width, and the table says what begins and how many are left.
    """

    def __init__(self, jobs: Sequence[Job], at_a_time: int, console: Console | None = None) -> None:
        self.jobs, self.at_a_time = jobs, at_a_time
        self.names = short_names(jobs)
        self.printed = {job.planned.name: job.state for job in jobs}
        self.live = Live(console=console or Console(), auto_refresh=False, transient=True)
        self.drawn = 0.0

    def update(self) -> None:
        """Prints the jobs whose state has changed, and draws the table, a few times a second at most."""
        for job in self.jobs:
            if job.state != self.printed[job.planned.name]:
                self.printed[job.planned.name] = job.state
                self.print(job)
        if time.monotonic() - self.drawn > _REFRESH:
            self.drawn = time.monotonic()
            self.live.update(self.table(), refresh=True)

    def print(self, job: Job) -> None:
        """Prints the change of a job's state."""
        console, line = self.live.console, event(job, self.names[job.planned.name])
        if not console.is_terminal:
            console.out(f"{self.counts()}: {line}", highlight=False)
        elif job.state != "running":
            console.print(Text(line), no_wrap=True, overflow="ellipsis")

    def table(self) -> Group:
        """What runs, and how far all runs are."""
        table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True)
        table.add_column("run", overflow="ellipsis", no_wrap=True, ratio=1)
        table.add_column("", width=_BAR)
        for title, width in (("epoch", 7), ("best %", 6), ("published", 9), ("images/s", 8)):
            table.add_column(title, justify="right", no_wrap=True, min_width=width)
        for job in self.jobs:
            if job.state == "running":
                epochs = job.planned.epochs
                done = job.progress
                bar = ProgressBar(epochs, done.epoch, width=_BAR)
                best = "" if done.best is None else f"{done.best:.2f}"
                speed = "" if done.speed is None else f"{done.speed:,.0f}"
                table.add_row(self.names[job.planned.name], bar, f"{done.epoch}/{epochs}", best, job.published, speed)
        total = Table.grid(padding=(0, 1))
        left, epochs = sum(job.left for job in self.jobs), sum(job.planned.epochs for job in self.jobs)
        total.add_row(ProgressBar(epochs, epochs - left, width=_BAR), Text(self.counts(), style="bold"))
        return Group(table, total)

    def counts(self) -> str:
        """3 of 8 finished, 2 running, 3 waiting, 20 min left."""
        numbers = {
            "running": count(self.jobs, "running"),
            "waiting": count(self.jobs, "waiting", "busy"),
            "failed": count(self.jobs, "failed"),
        }
        words = [f"{count(self.jobs, 'finished')} of {len(self.jobs)} finished"]
        words += [f"{number} {state}" for state, number in numbers.items() if number]
        if seconds := remaining(self.jobs, self.at_a_time):
            words.append(f"{duration(seconds)} left")
        return ", ".join(words)


def print_plan(jobs: Sequence[Job], barred: Mapping[str, Sequence[str]], listed: bool) -> None:
    """Prints what there is to do; `listed`: run by run."""
    if listed:
        names = short_names(jobs)
        for job in jobs:
            print(f"{_in_words(job):<12} {names[job.planned.name]}  ({', '.join(job.studies)})")
    shared = sum(len(job.studies) > 1 for job in jobs)
    epochs = sum(job.left for job in jobs)
    print(
        plural(len(jobs), "run")
        + (f", {shared} of them for more than one study" if shared else "")
        + f": {count(jobs, 'finished')} finished, {count(jobs, 'failed')} failed before, "
        f"{count(jobs, 'waiting')} to do, up to {epochs:,} epochs"
    )
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
    left = count(jobs, "waiting", "busy", "running")
    print(
        f"{count(jobs, 'finished')} of {plural(len(jobs), 'run')} finished"
        + (f", {left} left: run the same command again to continue" if left else "")
    )
    sys.stdout.flush()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    names = short_names(jobs)
    for job in jobs:
        if job.state == "failed":
            output = job.planned.folder / OUTPUT
            where = f" (its output: {output})" if output.exists() else ""
            print(f"error: {names[job.planned.name]}: {job.outcome}{where}", file=sys.stderr)


def event(job: Job, name: str) -> str:
    """The change of a job's state, in words."""
    match job.state:
        case "running":
            return f"begins {name}" + (f" after epoch {job.progress.epoch}" if job.progress.epoch else "")
        case "busy":
            return f"waits for {name}: another process trains it"
        case "waiting":
            return f"tries again {name}: {job.outcome}"
        case state:  # finished or failed
            return f"{state} {name}: {job.outcome}"


def short_names(jobs: Sequence[Job]) -> dict[str, str]:
    """Each run, by its full name, in a few words: the overrides that not all runs have."""
    words = distinguishing([job.words for job in jobs])
    return {job.planned.name: own or job.planned.name for job, own in zip(jobs, words, strict=True)}


def remaining(jobs: Sequence[Job], at_a_time: int) -> float | None:
    """Seconds left, from the seconds per epoch of runs of the same network and data, or of all; None: unknown."""
    measured: dict[object, list[float]] = defaultdict(list)
    for job in jobs:
        if job.progress.seconds is not None:
            measured[_kind(job)].append(job.progress.seconds)
    if not measured:
        return None
    overall = mean(seconds for kind in measured.values() for seconds in kind)
    epochs = ((job.left, mean(measured[_kind(job)]) if _kind(job) in measured else overall) for job in jobs)
    return sum(left * seconds for left, seconds in epochs) / min(at_a_time, max(1, sum(job.left > 0 for job in jobs)))


def _kind(job: Job) -> tuple[object, ...]:
    config = job.planned.config
    return config.model.name, config.data.name, config.routing.arguments.get("iterations")
