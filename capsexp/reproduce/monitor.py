"""What the launcher prints: the plan, a line for each run that ends, on a terminal a live table, and the end."""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import mean, median

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from capsexp.cli import print_line
from capsexp.config.checks import typed_key
from capsexp.config.compose import distinguishing, varied
from capsexp.errors import InputError, duration, plural
from capsexp.reproduce.planning import Job, Options, Planned, State, concurrency, count
from capsexp.run.execute import is_locked
from capsexp.run.plan import LAST, OUTPUT

_REFRESH = 0.25  # seconds between two drawings of the table


class Monitor:
    """Prints a line when a run has ended; on a terminal, below them, what runs and how far all runs are."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int, console: Console | None = None) -> None:
        self.jobs, self.at_a_time = jobs, at_a_time
        self.told = {job.name for job in jobs if job.state != "waiting"}
        self.live = Live(console=console or Console(), auto_refresh=False, transient=True)
        self.drawn = 0.0

    def update(self) -> None:
        """Prints the jobs that have ended, and draws the table, a few times a second at most."""
        console = self.live.console
        for job in self.jobs:
            if job.state in ("finished", "failed") and job.name not in self.told:
                self.told.add(job.name)
                before = "" if console.is_terminal else f"{self.counts()}: {job.state} "
                console.print(Text(f"{before}{job.name}: {job.outcome}"), soft_wrap=not console.is_terminal)
        if time.monotonic() - self.drawn > _REFRESH:
            self.drawn = time.monotonic()
            self.live.update(self.table(), refresh=True)

    def table(self) -> Group:
        """A row a running job, and below them the counts."""
        rows, total = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 1))
        for job in [job for job in self.jobs if job.state == "running"]:
            done = job.progress
            results = [f"best {done.best:.2f} %", f"{done.seconds:.1f} s an epoch"] if done.epoch else ["", ""]
            rows.add_row(Text(job.name), f"epoch {done.epoch}/{job.planned.epochs}", *results, style="dim")
        left, epochs = sum(job.left for job in self.jobs), sum(job.planned.epochs for job in self.jobs)
        total.add_row(ProgressBar(epochs, epochs - left, width=8), Text(self.counts(), style="bold"))
        return Group(rows, total)

    def counts(self) -> str:
        """3 of 8 finished, 2 running, 3 waiting, 20 min left."""
        words = [f"{count(self.jobs, 'finished')} of {len(self.jobs)} finished"]
        states: tuple[State, ...] = ("running", "waiting", "failed")
        words += [f"{number} {state}" for state in states if (number := count(self.jobs, state))]
        return ", ".join([*words, *time_left(self.jobs, self.at_a_time)])


def print_plan(planned: Planned, here: Options | None, listed: bool) -> None:
    """Prints what there is to do, by the launcher `here` or, if None, by another one.

    `listed`: a line a configuration, with the states of its seeds.
    """
    jobs = planned.jobs
    at_a_time = concurrency(jobs, here.jobs)[0] if here else max(1, len(jobs))
    _, common = varied([job.words for job in jobs])
    if common and any(job.left for job in jobs):
        print_line(f"all runs: {' '.join(common)}")
    rows: dict[tuple[str, ...], list[Job]] = defaultdict(list)
    for job in jobs if listed else ():
        rows[tuple(word for word in job.words[:-1] if typed_key(word) != "routing.iterations")].append(job)
    for row, name in zip(rows.values(), distinguishing([*rows]), strict=True):
        states = ", ".join(f"{number} {state}" for state, number in Counter(map(_in_words, row)).items())
        iterations = {job.planned.config.routing.iterations or 0 for job in row}
        folded = [_range("iteration", iterations)] * (len(iterations) > 1)
        folded.append(_range("seed", {job.planned.config.seed for job in row}))
        which = f"{name or 'as is'}: " * (len(rows) > 1)
        print_line(", ".join([f"{which}{', '.join(folded)}: {states}", *time_left(row, 1)]))
    epochs = sum(job.left for job in jobs)
    shipped = sum(job.is_shipped for job in jobs)
    whose = f" ({shipped} of them came with the repository; paths.results=mine trains all)" * bool(shipped)
    words = {"failed": "failed before", "finished": f"finished{whose}", "waiting": "to do"}
    numbers = [f"{number} {words[state]}" for state, number in Counter(sorted(job.state for job in jobs)).items()]
    hours = [f"{epochs:,} epochs", *(time_left(jobs, at_a_time) or ["time not known"])] if epochs else []
    print_line(f"{plural(len(jobs), 'run')}: {', '.join([*numbers, *hours])}".removesuffix(": "))
    for reason, stopped in planned.barred.items():
        print_line(f"can't run {plural(len(stopped), 'configuration')}: {reason}")


def _range(what: str, numbers: Collection[int]) -> str:
    """Seeds 0-2, seed 0."""
    first, last = min(numbers), max(numbers)
    return f"{what}s {first}-{last}" if last > first else f"{what} {first}"


def _in_words(job: Job) -> str:
    """Finished, failed, running, interrupted, or to do."""
    if job.state != "waiting":
        return job.state
    interrupted = (job.planned.folder / LAST).exists()
    return "running" if is_locked(job.planned.folder) else "interrupted" if interrupted else "to do"


def ended(runs: Collection[Job | InputError]) -> str:
    """20 of 22 runs finished (2 left: the same command again continues)."""
    jobs = [run for run in runs if isinstance(run, Job)]
    left = count(jobs, "waiting", "running")
    more = f" ({left} left: the same command again continues)" if left else ""
    return f"{count(jobs, 'finished')} of {plural(len(runs), 'run')} finished{more}"


def print_errors(planned: Planned, problems: Iterable[str] = ()) -> bool:
    """Prints a line an error, below what has been printed: of a failed run, with its output's file; whether one is."""
    outputs = {job: job.planned.folder / OUTPUT for job in planned.jobs if job.state == "failed"}
    failed = [f"{job.name}: {job.outcome}" + f" (its output: {path})" * path.exists() for job, path in outputs.items()]
    sys.stdout.flush()
    for error in [*problems, *planned.barred, *failed]:
        print_line(f"error: {error}", sys.stderr)
    return bool(failed)


def time_left(jobs: Sequence[Job], at_a_time: int) -> list[str]:
    """20 min left, from the seconds an epoch of a configuration's runs here, or else guessed; none if unknown.

    Guesses are multiplied by the median ratio of measured to guessed seconds. Before any epoch here: about 3 days left.
    """
    ran = [job for job in jobs if job.progress.seconds and job.guess is not None]
    here: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for job in ran:
        here[job.words[:-1]].append(job.progress.seconds)  # without the seed
    left = [job for job in jobs if job.left]
    overall = mean([job.progress.seconds for job in ran] or [job.guess for job in left if job.guess] or [0.0])
    ratio = median([job.progress.seconds / job.guess for job in ran if job.guess] or [1.0])
    each = [mean(here.get(job.words[:-1], [ratio * (job.guess or 0.0) or overall])) for job in left]
    if not each or not all(each):
        return []
    seconds = sum(job.left * of_job for job, of_job in zip(left, each, strict=True))
    return [f"{'' if ran else 'about '}{duration(seconds / min(at_a_time, len(left)))} left"]
