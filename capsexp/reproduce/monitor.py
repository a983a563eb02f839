"""What the launcher prints: the plan, a line for each run that ends, on a terminal a live table, and the end."""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from capsexp.cli import print_line
from capsexp.config.compose import distinguishing, varied
from capsexp.errors import duration, plural
from capsexp.reproduce.planning import Job, State, count
from capsexp.run.execute import is_locked
from capsexp.run.plan import LAST, OUTPUT

_REFRESH = 0.25  # seconds between two drawings of the table
_RESULTS = {"epoch": 9, "best %": 7, "published": 10, "s an epoch": 11}  # columns behind the keys, with their widths


class Monitor:
    """Prints a line when a run has ended; on a terminal these are a table, above the lines of what runs.

    The columns are the keys in which the runs differ; where they don't fit, a run's line is its words.
    """

    def __init__(self, jobs: Sequence[Job], at_a_time: int, console: Console | None = None) -> None:
        self.jobs, self.at_a_time = jobs, at_a_time
        self.told = {job.name for job in jobs if job.state != "waiting"}
        self.live = Live(console=console or Console(), auto_refresh=False, transient=True)
        self.drawn = 0.0
        keys, _ = varied([job.words for job in jobs])
        heads = [key.rpartition(".")[2] for key in keys]
        heads = [*keys] if len({*heads}) < len(heads) else heads
        self.widths = [max(map(len, [head, *keys[key]])) + 2 for head, key in zip(heads, keys, strict=True)]
        self.labels = [*zip(*keys.values(), strict=True)] or [() for _ in jobs]
        self.results = [head for head in _RESULTS if head != "published" or any(job.published for job in jobs)]
        width = sum(self.widths) + sum(_RESULTS[head] for head in self.results)
        self.columns = self.live.console.is_terminal and width <= self.live.console.width
        self.head = self._line(heads, {head: head for head in self.results})
        self.begun = False

    def update(self) -> None:
        """Prints the jobs that have ended, and draws the table, a few times a second at most."""
        for number, job in enumerate(self.jobs):
            if job.state in ("finished", "failed") and job.name not in self.told:
                self.told.add(job.name)
                self._print(number, job)
        if time.monotonic() - self.drawn > _REFRESH:
            self.drawn = time.monotonic()
            self.live.update(self.table(), refresh=True)

    def _print(self, number: int, job: Job) -> None:
        console = self.live.console
        if self.columns and job.state == "finished":
            if not self.begun:
                console.print(Text(self.head, style="bold"))
            self.begun = True
            console.print(Text(self.row(number, job)))
        else:
            line = f"{self.counts()}: {job.state} {job.name}: {job.outcome}"
            console.print(Text(line), soft_wrap=not console.is_terminal)

    def table(self) -> Group:
        """What runs, and how far all runs are."""
        running = [self.row(number, job) for number, job in enumerate(self.jobs) if job.state == "running"]
        lines = [Text(self.head, style="bold")] if self.columns and running and not self.begun else []
        lines += [Text(line, style="dim") for line in running]
        total = Table.grid(padding=(0, 1))
        left, epochs = sum(job.left for job in self.jobs), sum(job.planned.epochs for job in self.jobs)
        total.add_row(ProgressBar(epochs, epochs - left, width=8), Text(self.counts(), style="bold"))
        return Group(*lines, total)

    def row(self, number: int, job: Job) -> str:
        """A job's line of the table."""
        done = job.progress
        known = {"epoch": f"{done.epoch}/{job.planned.epochs}", "published": job.published}
        if done.epoch:
            known |= {"best %": f"{done.best:.2f}", "s an epoch": f"{done.seconds:.1f}"}
        if self.columns:
            return self._line(self.labels[number], known)
        return "  ".join([job.name, *(f"{name} {known[name]}" for name in self.results if known.get(name))])

    def _line(self, labels: Sequence[str], results: Mapping[str, str]) -> str:
        left = "".join(label.ljust(width) for label, width in zip(labels, self.widths, strict=True))
        return left + "".join(results.get(name, "").rjust(_RESULTS[name]) for name in self.results)

    def counts(self) -> str:
        """3 of 8 finished, 2 running, 3 waiting, 20 min left."""
        words = [f"{count(self.jobs, 'finished')} of {len(self.jobs)} finished"]
        states: tuple[State, ...] = ("running", "waiting", "failed")
        words += [f"{number} {state}" for state in states if (number := count(self.jobs, state))]
        return ", ".join([*words, *time_left(self.jobs, self.at_a_time)])


def print_plan(jobs: Sequence[Job], barred: Mapping[str, Sequence[str]], at_a_time: int, listed: bool) -> None:
    """Prints what there is to do; `listed`: a line a configuration, with the states of its seeds."""
    _, common = varied([job.words for job in jobs])
    if len(jobs) > 1 and common and any(job.left for job in jobs):
        print_line(f"all runs: {' '.join(common)}")
    rows: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs if listed else ():
        rows[job.words[:-1]].append(job)
    for (words, row), name in zip(rows.items(), distinguishing([*rows]), strict=True):
        first, last = row[0].planned.config.seed, row[-1].planned.config.seed
        states = ", ".join(f"{number} {state}" for state, number in Counter(map(_in_words, row)).items())
        seeds = f"seeds {first}-{last}" if last > first else f"seed {first}"
        print_line(", ".join([f"{name or ' '.join(words)}: {seeds}: {states}", *time_left(row, 1)]))
    epochs = sum(job.left for job in jobs)
    numbers = f"{count(jobs, 'finished')} finished, {count(jobs, 'failed')} failed before"
    left = f"{count(jobs, 'waiting')} to do, up to {epochs:,} epochs"
    print_line(", ".join([f"{plural(len(jobs), 'run')}: {numbers}", left, *time_left(jobs, at_a_time)]))
    if trials := sum(job.planned.config.budget.steps is not None for job in jobs):
        print(f"{trials} of them are trials of a few steps (budget.steps), which test no number")
    for reason, stopped in barred.items():
        print_line(f"can't run {plural(len(stopped), 'configuration')}: {reason}")


def _in_words(job: Job) -> str:
    """Finished, failed, running, interrupted, or to do."""
    if job.state != "waiting":
        return job.state
    interrupted = (job.planned.folder / LAST).exists()
    return "running" if is_locked(job.planned.folder) else "interrupted" if interrupted else "to do"


def ended(jobs: Sequence[Job]) -> str:
    """20 of 22 runs finished, 2 left: run the same command again to continue."""
    return ended_of(count(jobs, "finished"), len(jobs), count(jobs, "waiting", "running"))


def ended_of(finished: int, runs: int, left: int) -> str:
    """The same, from the numbers."""
    more = f", {left} left: run the same command again to continue" if left else ""
    return f"{finished} of {plural(runs, 'run')} finished{more}"


def failure(job: Job) -> str:
    """Why a job failed, and where its output is."""
    output = job.planned.folder / OUTPUT
    return job.outcome + (f" (its output: {output})" if output.exists() else "")


def print_errors(errors: Iterable[str]) -> None:
    """Prints a line an error, below what has been printed."""
    sys.stdout.flush()
    for error in errors:
        print_line(f"error: {error}", sys.stderr)


def time_left(jobs: Sequence[Job], at_a_time: int) -> list[str]:
    """20 min left, from the seconds an epoch of a configuration's other seeds, or else of all runs; none if unknown.

    Before any run here has an epoch, from records of the same network: about 3 days left.
    """
    measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for job in jobs:
        if job.progress.seconds:
            measured[job.words[:-1]].append(job.progress.seconds)  # without the seed
    left = [job for job in jobs if job.left]
    overall = mean(seconds for kind in measured.values() for seconds in kind) if measured else 0.0
    each = [mean(measured.get(job.words[:-1], [job.guess or overall])) for job in left]
    if not each or not all(each):
        return []
    seconds = sum(job.left * of_job for job, of_job in zip(left, each, strict=True))
    about = "" if measured else "about "
    return [f"{about}{duration(seconds / min(at_a_time, len(left)))} left"]
