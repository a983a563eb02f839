"""`python -m capsexp KEY=VALUE …`: compose, check, run; with -m, for every combination."""

import os
import sys
import traceback

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from capsexp import composing
from capsexp.config import check
from capsexp.errors import DONE, FAILED, INTERRUPTED, CapsexpError


@hydra.main(version_base="1.3", config_path=str(composing.CONF), config_name="config")
def task(composed: DictConfig) -> None:
    """One run of a composed configuration."""
    config = check(composing.plain(composed))
    from capsexp.experiment import run  # torch takes seconds to import: only for a configuration that holds

    run(config, composing.command(list(HydraConfig.get().overrides.task)))


def main() -> None:
    """Runs the command line; exits with 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    sys.exit(_guarded())


def _guarded() -> int:
    """The exit code; every error ends in one line, with a traceback where HYDRA_FULL_ERROR asks for one."""
    traceback_wanted = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors on instead of printing them
    try:
        task()
    except KeyboardInterrupt:
        print("interrupted: the same command goes on after the last whole epoch", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - whoever read the output is gone
        return DONE
    except Exception as error:
        if traceback_wanted:
            traceback.print_exc()
        known = composing.explained(error, sys.argv[1:])
        print(f"error: {known}", file=sys.stderr)
        return known.exit_code if isinstance(known, CapsexpError) else FAILED
    return DONE


if __name__ == "__main__":
    main()
