"""What is typed behind a study's name: other data, another network, or some of its rows.

A key in which the study's rows differ selects among them (routing.iterations=3 of jiao_table2); any other replaces the
rows' own choice (data=mnist_sample), and makes it another experiment than the paper's. A budget or a width selects
runs: they are settings of the same experiment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

from capsexp.config.compose import composed
from capsexp.config.schema import check
from capsexp.errors import InputError
from capsexp.run import records
from capsexp.study import studies
from capsexp.study.setting import Setting
from capsexp.study.studies import Claim, Row, Study

#: What a typed word begins with that doesn't change which experiment it is.
INCIDENTAL = ("seed", "budget", "protocol", "trainer", "paths", "hydra", "rerun", "data.root", "data.download")


@dataclass(frozen=True)
class Job:
    """One of the command lines of a row."""

    row: int
    number: int  # among the row's
    condition: str | None  # None: it can't be run so, or isn't asked for
    replaced: bool = False  # trains another condition than the row's own
    setting: Setting | None = None  # that is asked for

    def admits(self, setting: Setting) -> bool:
        """Whether a run's setting is what was asked for; what was not typed may be as it is."""
        asked = self.setting
        return asked is None or (
            (asked.epochs is None or asked.epochs == setting.epochs)
            and (asked.train_images is None or asked.train_images == setting.train_images)
            and (asked.test_images is None or asked.test_images == setting.test_images)
            and asked.width in (1, setting.width)
        )


def essential(typed: Sequence[str]) -> list[str]:
    """What says which experiment it is, of what is typed."""
    return [word for word in typed if not _key(word).startswith(INCIDENTAL)]


def substituted(study: Study, typed: Sequence[str] = ()) -> tuple[Study, list[Job]]:
    """The study with the rows that are left, and their jobs; raises InputError when nothing sensible is left."""
    typed = [word for word in typed if _key(word) != "seed"]
    if not typed:
        return study, [
            Job(index, number, studies.condition(tuple(words)))
            for index, row in enumerate(study.rows)
            for number, words in enumerate(row.jobs())
        ]
    selecting = [word for word in typed if _distinguishes(study, _key(word))]
    replacing = [word for word in typed if word not in selecting]
    rows = [row for row in study.rows if _selected(row, selecting)]
    if not any(row.run for row in rows):
        raise InputError(f"{' '.join(selecting)}: no row of {study.name} has it, and its rows differ in it")
    left = replace(study, rows=rows, claims=[claim for claim in study.claims if _about(claim, rows)])
    jobs = [job for index, row in enumerate(rows) for job in _jobs(index, row, selecting, replacing)]
    _refuse_sameness(left, jobs, replacing)
    return left, jobs


def _jobs(index: int, row: Row, selecting: Sequence[str], replacing: Sequence[str]) -> list[Job]:
    own = {studies.condition(tuple(words)) for words in row.jobs()}
    jobs: list[Job] = []
    for number, words in enumerate(row.jobs(replacing)):
        identity = _identity(tuple(words))
        asked_for = identity is not None and all(_says(words, word) for word in selecting)
        condition = studies.condition_of(identity) if identity is not None and asked_for else None
        setting = Setting.of(identity) if identity is not None else None
        jobs.append(Job(index, number, condition, condition is not None and condition not in own, setting))
    return jobs


@cache
def _identity(words: tuple[str, ...]) -> records.Json | None:
    """What a command line trains; None for one that can't be: a network that doesn't take these images."""
    try:
        return records.identity(check(composed(list(words))), "", None)
    except InputError:
        return None


def _refuse_sameness(study: Study, jobs: list[Job], replacing: Sequence[str]) -> None:
    if all(job.condition is None for job in jobs):
        for row in study.rows:
            for words in row.jobs(replacing):
                check(composed(words))  # says what is wrong
    trained = {index: {job.condition for job in jobs if job.row == index} for index in range(len(study.rows))}
    for a, b in combinations(trained, 2):
        first, second = study.rows[a], study.rows[b]
        if trained[a] == trained[b] and first.run and second.run and _own(first) != _own(second):
            raise InputError(f"{' '.join(replacing)}: makes {first.name} and {second.name} of {study.name} the same")


def _own(row: Row) -> set[str]:
    return {studies.condition(tuple(words)) for words in row.jobs()}


def _distinguishes(study: Study, key: str) -> bool:
    """Whether rows that say it say different things, or only some say it."""
    rows = [row for row in study.rows if row.run]
    return len({frozenset(word for words in row.jobs() for word in words if _key(word) == key) for row in rows}) > 1


def _selected(row: Row, selecting: Sequence[str]) -> bool:
    """Whether one of a row's jobs says all of it. A row that says nothing of a key is not meant by it."""
    return not selecting or any(all(_says(words, word) for word in selecting) for words in row.jobs())


def _says(words: Sequence[str], typed: str) -> bool:
    """Whether a job is one of those that are typed, as in routing.iterations=1,2."""
    return any(option in words for (option,) in studies.jobs([], [typed]))


def _about(claim: Claim, rows: Sequence[Row]) -> bool:
    named = {name for pair in claim.pairs for name in pair} | set(claim.rows)
    return named <= {row.name for row in rows}


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")
