"""`python -m capsexp KEY=VALUE …`: compose, check, run; with -m, for every combination."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from capsexp import composing
from capsexp.config import check
from capsexp.errors import DONE, FAILED, INTERRUPTED, CapsexpError, RunError

#: Hydra's way of asking for tracebacks. It is set while Hydra works, so that it hands its errors on to here.
_FULL_ERROR = "HYDRA_FULL_ERROR"
_TRACEBACK_ASKED_FOR = os.environ.get(_FULL_ERROR) == "1"


@hydra.main(version_base="1.3", config_path=str(composing.CONF), config_name="config")
def task(composed: DictConfig) -> None:
    """One run of a composed configuration."""
    try:
        config = check(composing.plain(composed))
        from capsexp.experiment import run  # torch takes seconds to import: only for a configuration that holds

        run(config, composing.command(list(HydraConfig.get().overrides.task)))
    except Exception as error:
        # Not left to Hydra, which puts a line of its own before it.
        raise SystemExit(_told(error)) from error


def main() -> None:
    """Runs the command line; exits with 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    sys.exit(_guarded())


def _guarded() -> int:
    try:
        with _errors_handed_on():
            task()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else DONE
    except KeyboardInterrupt:
        print("interrupted: the same command goes on after the last whole epoch", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        return _told(error)
    return DONE


@contextmanager
def _errors_handed_on() -> Iterator[None]:
    before = os.environ.get(_FULL_ERROR)
    os.environ[_FULL_ERROR] = "1"
    try:
        yield
    finally:
        del os.environ[_FULL_ERROR]
        if before is not None:
            os.environ[_FULL_ERROR] = before


def _told(error: Exception) -> int:
    """Prints an error in one line, after a traceback where that is asked for or helps; the exit code."""
    if isinstance(error, BrokenPipeError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that nothing is written there when the program ends
        error = RunError("nobody reads the output any more; the same command goes on after the last whole epoch")
    known = composing.explained(error, sys.argv[1:])
    if _TRACEBACK_ASKED_FOR or not isinstance(known, CapsexpError):
        traceback.print_exception(error)
    print(f"error: {known}", file=sys.stderr)
    return known.exit_code if isinstance(known, CapsexpError) else FAILED


if __name__ == "__main__":
    main()
