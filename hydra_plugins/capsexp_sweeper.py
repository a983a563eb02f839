"""`+study=NAME` as a sweep. Hydra finds sweepers in packages of this name only."""

import os
from typing import Any

# Hydra's public base class, hydra.plugins.sweeper.Sweeper, has nothing of a sweep: no batches, no checks, no launching.
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override


class StudySweeper(BasicSweeper):  # type: ignore[misc]
    """Hydra's own sweeper; of a study, over its rows' runs."""

    def __init__(
        self, max_batch_size: int | None, params: dict[str, str] | None = None, study: dict[str, Any] | None = None
    ) -> None:
        super().__init__(max_batch_size, params)
        self.study = study

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """All runs, each once, in batches. Those that a launcher starts here at once share the cores."""
        batches = self._split(overrides, max_batch_size)
        if not self.config.hydra.launcher._target_.endswith((".LocalLauncher", ".JoblibLauncher")):
            return batches
        return [
            [
                [*job, *_threads(len(batch))] if not any("trainer.threads" in word for word in job) else job
                for job in batch
            ]
            for batch in batches
        ]

    def _split(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        if self.study is None:
            return list(super().split_arguments(overrides, max_batch_size))
        from capsexp.study import selection, studies  # not needed by other runs

        study = studies.checked(self.config.hydra.runtime.choices.study, self.study)
        typed = [_enumerated(override) for override in overrides if override.key_or_group != "study"]
        seeds = studies.expand(tuple(word for word in typed if selection.key(word) == "seed"))
        runs = (
            selection.select(study, typed).blocks[0].configs
        )  # raises what is wrong with one, before any of them begins
        jobs = dict.fromkeys((*run, *seed) for run in runs for seed in seeds)
        return list(self.split_overrides_to_chunks([list(job) for job in jobs], max_batch_size))


def _threads(runs: int) -> list[str]:
    """The override for runs at the same time; without one, torch in each of them takes all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [f"trainer.threads={max(1, cores // runs)}"] if runs > 1 else []


def _enumerated(override: Override) -> str:
    """An override with its values written out: only Hydra's own parser finds those of `glob(*)`."""
    if override.is_sweep_override():
        return f"{override.get_key_element()}={','.join(override.sweep_string_iterator())}"
    return str(override.input_line)
