"""`python -m capsexp KEY=VALUE …`: compose, check, run; with -m, for every combination."""

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hydra
from hydra._internal import utils as command_line
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from omegaconf import DictConfig

from capsexp.config import compose
from capsexp.config.schema import check
from capsexp.errors import DONE, INTERRUPTED, CapsexpError, RunError, one_line

_TRACEBACK_ASKED_FOR = os.environ.get("HYDRA_FULL_ERROR") == "1"


@hydra.main(version_base="1.3", config_path=str(compose.CONF), config_name="config")
def task(composed: DictConfig) -> CapsexpError | None:
    """One run of a composed configuration, here or where a launcher takes it.

    An error is returned, not raised: the other runs of a sweep go on, and a launcher brings it home.
    """
    hydra_config = HydraConfig.get()
    overrides = list(hydra_config.overrides.task)
    signal.signal(signal.SIGTERM, _interrupt)  # a launcher's process may have learned to overhear it
    try:
        os.chdir(hydra_config.runtime.cwd)  # a launcher's process may have begun elsewhere
        config = check(compose.plain(composed))
        from capsexp.run.execute import run  # torch takes seconds to import: only for a configuration that holds

        run(config, compose.command(overrides))
    except BrokenPipeError as error:  # the other runs have no reader either
        raise SystemExit(_told(error, overrides).exit_code) from error
    except Exception as error:
        return _told(error, overrides)
    return None


def main() -> None:
    """Runs the command line; exits with 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    signal.signal(signal.SIGTERM, _interrupt)
    logging.raiseExceptions = False  # a line of Hydra's that nobody reads is no error
    sys.exit(_guarded())


def _guarded() -> int:
    try:
        with _returned_by_hydra() as returned:
            task()
        return _outcome(returned[-1] if returned else None)
    except SystemExit as ended:
        if "ray" not in sys.modules:
            return ended.code if isinstance(ended.code, int) else DONE
        return _interrupted()  # what Ray makes of a kill
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:
        return _told(error, sys.argv[1:]).exit_code


@contextmanager
def _returned_by_hydra() -> Iterator[list[Any]]:
    """Hydra's command line prints errors itself and drops what runs return; in here it hands both on."""
    returned: list[Any] = []

    def call(func: Any) -> Any:
        returned.append(func())
        return returned[-1]

    before = command_line.run_and_report
    command_line.run_and_report = call
    try:
        yield returned
    finally:
        command_line.run_and_report = before


def _outcome(returned: Any) -> int:
    """The exit code of a run or a sweep. Which runs of a sweep failed is said again, last on the screen."""
    jobs = [returned] if isinstance(returned, JobReturn) else []
    if isinstance(returned, list):
        jobs = [job for batch in returned for job in batch]
    failed = [job for job in jobs if job.return_value is not None]
    if failed and isinstance(returned, list):
        _wait_for_ray()
        print(f"error: {len(failed)} of {len(jobs)} runs failed", file=sys.stderr)
        for job in failed:
            print(f"error: {job.return_value}{_which(job, jobs)}", file=sys.stderr)
    return min((job.return_value.exit_code for job in failed), default=DONE)  # failed goes before wrong input


def _which(job: JobReturn, jobs: list[JobReturn]) -> str:
    """The overrides that a run doesn't share with all others of its sweep, in brackets."""
    shared = set.intersection(*(set(other.overrides or ()) for other in jobs))
    own = " ".join(override for override in job.overrides or () if override not in shared)
    return f" ({own})" if own else ""


def _wait_for_ray() -> None:
    """Ray shows what its runs print a little later: the last words are to stay the last."""
    if ray := sys.modules.get("ray"):
        time.sleep(0.5)
        ray.shutdown()


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """A kill does what Ctrl-C does, which reaches also the processes that a launcher has started here."""
    signal.signal(signal_number, signal.SIG_IGN)  # a second one would disturb the end
    for patience in (1, 0):  # a job of submitit's overhears the first one while it starts
        for child in _children():
            os.kill(child, signal_number)
        time.sleep(patience if _children() else 0)
    raise KeyboardInterrupt


def _children() -> list[int]:
    """The processes that this one has started, where the system tells it."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _interrupted() -> int:
    print("interrupted: the same command goes on after the last whole epoch", file=sys.stderr)
    return INTERRUPTED


def _told(error: Exception, overrides: list[str]) -> CapsexpError:
    """Prints an error in one line, after a traceback where that is asked for or helps; the error as one of ours."""
    if isinstance(error, BrokenPipeError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that nothing is written there when the program ends
        error = RunError("nobody reads the output any more; the same command goes on after the last whole epoch")
    known = compose.explained(error, overrides)
    if _TRACEBACK_ASKED_FOR or not isinstance(known, CapsexpError):
        traceback.print_exception(error)
    if not isinstance(known, CapsexpError):
        known = RunError(f"{type(known).__name__}: {one_line(known)}")
    print(f"error: {known}", file=sys.stderr)
    return known


if __name__ == "__main__":
    main()
