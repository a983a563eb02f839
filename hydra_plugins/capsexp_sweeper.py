"""`+study=NAME` as a sweep. Hydra finds sweepers in packages of this name only."""

import os
from typing import Any

# Hydra's public base class, hydra.plugins.sweeper.Sweeper, has nothing of a sweep: no batches, no checks, no launching.
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override

from capsexp.errors import InputError


class StudySweeper(BasicSweeper):  # type: ignore[misc]
    """Hydra's own sweeper; of a study, over its rows' runs."""

    def __init__(
        self, max_batch_size: int | None, params: dict[str, str] | None = None, study: dict[str, Any] | None = None
    ) -> None:
        super().__init__(max_batch_size, params)
        self.study = study

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """All runs, each once, in batches. Those that a launcher starts here at once share the cores."""
        jobs = list(dict.fromkeys(self._jobs(overrides)))
        if not jobs:
            swept = [word for word in overrides if word.is_sweep_override()]
            empty = next(word for word in swept if not [*word.sweep_string_iterator()])
            raise InputError(f"{empty.input_line}: no values, so that nothing would run")
        batches = list(self.split_overrides_to_chunks([list(job) for job in jobs], max_batch_size))
        if not self.config.hydra.launcher._target_.endswith(".LocalLauncher"):
            return batches
        return [
            [
                [*job, *_threads(len(batch))] if not any("trainer.threads" in word for word in job) else job
                for job in batch
            ]
            for batch in batches
        ]

    def _jobs(self, overrides: list[Override]) -> list[tuple[str, ...]]:
        """The overrides of each run."""
        if self.study is None:
            (jobs,) = super().split_arguments(overrides, None)
            return [tuple(job) for job in jobs]
        from capsexp.config.checks import typed_key  # these aren't needed by other runs
        from capsexp.study import selection, studies

        study = studies.checked(self.config.hydra.runtime.choices.study, self.study)
        typed = [_written_out(override) for override in overrides if override.key_or_group != "study"]
        seeds = studies.expand(tuple(word for word in typed if typed_key(word) == "seed"))
        runs = selection.select(study, typed).blocks[0].configs  # raises what is wrong with one, before any begins
        return [(*run, *seed) for run in runs for seed in seeds]


def _threads(runs: int) -> list[str]:
    """The override for runs at the same time; without one, torch in each of them takes all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [f"trainer.threads={max(1, cores // runs)}"] if runs > 1 else []


def _written_out(override: Override) -> str:
    """An override with its values written out: only Hydra's own parser finds those of `glob(*)`."""
    if override.is_sweep_override():
        return f"{override.get_key_element()}={','.join(override.sweep_string_iterator())}"
    return str(override.input_line)
