"""hydra/launcher=local: the runs of a sweep in processes here. Hydra finds launchers in packages of this name only."""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class LocalLauncher(Launcher):  # type: ignore[misc]
    """`capsexp.reproduce.launcher`, as one of Hydra's launchers."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Nothing: a run's process composes nothing."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """What each run returned: its record, or why there is none; None for one that a time limit has left."""
        from capsexp.reproduce.sweep import train  # torch takes seconds to import

        returned = []
        for overrides, value in zip(job_overrides, train(job_overrides, self.options), strict=True):
            job = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
            job.return_value = value
            returned.append(job)
        return returned
