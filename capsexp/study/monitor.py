"""What running many shows: a live table on a terminal, a plain line for each thing that happens elsewhere."""

import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from capsexp.run.checkpoints import LAST
from capsexp.run.progress import duration
from capsexp.study.planning import Job, count
from capsexp.study.worker import OUTPUT


class Lines:
    """A line when a run begins, ends, fails or is waited for."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int) -> None:
        self.jobs, self.at_a_time = jobs, at_a_time
        self.names = short_names(jobs)
        self.shown: dict[str, str] = {}

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to take away."""

    def changed(self, job: Job) -> None:
        """Prints a job that is in another state than before."""
        name = job.planned.name
        if self.shown.get(name) != job.state:
            self.shown[name] = job.state
            self.say(f"{_counts(self.jobs, self.at_a_time)}: {event(job, self.names[name])}")

    def tick(self) -> None:
        """Nothing moves."""

    def say(self, line: str) -> None:
        """Prints a line."""
        print(line, flush=True)


class Screen(Lines):
    """The same lines, above a table of what runs now."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int, console: Console) -> None:
        super().__init__(jobs, at_a_time)
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.drawn = 0.0

    def __enter__(self) -> "Screen":
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Takes the table away."""
        self.live.stop()

    def tick(self) -> None:
        """Draws the table again, a few times a second at most."""
        if time.monotonic() - self.drawn > 0.25:
            self.drawn = time.monotonic()
            self.live.update(self.table(), refresh=True)

    def say(self, line: str) -> None:
        """Prints above the table."""
        self.live.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def table(self) -> Group:
        """What runs, and the counts."""
        table = Table(box=None, padding=(0, 1), pad_edge=False)
        table.add_column("run", overflow="ellipsis", no_wrap=True, ratio=1)
        for title in ("epoch", "%", "s/epoch"):
            table.add_column(title, justify="right", no_wrap=True, min_width=len("100/250"))
        for job in self.jobs:
            if job.state == "running":
                accuracy = "" if job.accuracy is None else f"{job.accuracy:.2f}"
                seconds = "" if job.seconds is None else f"{job.seconds:.1f}"
                epoch = f"{job.epoch}/{job.planned.epochs}"
                table.add_row(self.names[job.planned.name], epoch, accuracy, seconds)
        return Group(table, Text(_counts(self.jobs, self.at_a_time), style="bold"))


def print_plan(jobs: Sequence[Job], barred: Mapping[str, Sequence[str]], listed: bool) -> None:
    """What there is to do; `listed`: run by run."""
    if listed:
        names = short_names(jobs)
        for job in jobs:
            print(f"{_state(job):<12} {names[job.planned.name]}  ({', '.join(job.studies)})")
    shared = sum(len(job.studies) > 1 for job in jobs)
    epochs = sum(job.left for job in jobs)
    print(
        f"{len(jobs)} runs"
        + (f", {shared} of them for more than one study" if shared else "")
        + f": {count(jobs, 'finished')} finished, {count(jobs, 'failed')} failed before, "
        f"{count(jobs, 'waiting')} to do, up to {epochs:,} epochs"
    )
    for reason, stopped in barred.items():
        print(f"can't run {len(stopped)} configurations: {reason}")


def print_end(jobs: Sequence[Job], problems: Sequence[str]) -> None:
    """What was done; the errors come last."""
    left = count(jobs, "waiting", "elsewhere", "running")
    print(
        f"{count(jobs, 'finished')} of {len(jobs)} runs finished"
        + (f", {left} left: the same command goes on with them" if left else "")
    )
    sys.stdout.flush()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    names = short_names(jobs)
    for job in jobs:
        if job.state == "failed":
            output = job.planned.folder / OUTPUT
            where = f" (its output: {output})" if output.exists() else ""
            print(f"error: {names[job.planned.name]}: {job.error}{where}", file=sys.stderr)


def _state(job: Job) -> str:
    if job.state == "waiting" and (job.planned.folder / LAST).exists():
        return "interrupted"
    return "to do" if job.state == "waiting" else job.state


def watcher(jobs: Sequence[Job], at_a_time: int) -> Lines:
    """The one that fits where standard output goes."""
    console = Console()
    return Screen(jobs, at_a_time, console) if console.is_terminal else Lines(jobs, at_a_time)


def event(job: Job, name: str) -> str:
    """What just became of a job."""
    if job.state == "running":
        return f"begins {name}" + (f" after epoch {job.epoch}" if job.epoch else "")
    if job.state == "elsewhere":
        return f"waits for {name}: another process has it in hand"
    if job.state == "waiting":
        return f"to be tried again {name}: {job.error}"
    if job.state == "failed":
        return f"failed {name}: {job.error}"
    return f"finished {name}: {job.outcome}"


def short_names(jobs: Sequence[Job]) -> dict[str, str]:
    """Each run, by its full name, in a few words: what it was given that not all others were."""
    given = {job.planned.name: shlex.split(job.planned.command or "")[3:] for job in jobs}
    common = set[str].intersection(*map(set, given.values())) if len(given) > 1 else set()
    return {name: " ".join(word for word in words if word not in common) or name for name, words in given.items()}


def remaining(jobs: Sequence[Job], at_a_time: int) -> float | None:
    """Seconds left, from the seconds an epoch of runs of the same network and data, or of all; None: nothing known."""
    seen: dict[object, list[float]] = defaultdict(list)
    for job in jobs:
        if job.seconds is not None:
            seen[_kind(job)].append(job.seconds)
    if not seen:
        return None
    overall = mean(seconds for kind in seen.values() for seconds in kind)
    epochs = ((job.left, mean(seen[_kind(job)]) if _kind(job) in seen else overall) for job in jobs)
    return sum(left * seconds for left, seconds in epochs) / at_a_time


def _kind(job: Job) -> tuple[object, ...]:
    config = job.planned.config
    return config.model["name"], config.data.name, config.routing.get("iterations")


def _counts(jobs: Sequence[Job], at_a_time: int) -> str:
    words = [f"{count(jobs, 'finished')} of {len(jobs)} finished"]
    words += [f"{number} running" if (number := count(jobs, "running")) else ""]
    words += [f"{number} waiting" if (number := count(jobs, "waiting", "elsewhere")) else ""]
    words += [f"{number} failed" if (number := count(jobs, "failed")) else ""]
    seconds = remaining(jobs, at_a_time)
    words += [f"{duration(seconds)} left" if seconds else ""]
    return ", ".join(word for word in words if word)
