"""What Hydra runs: the run of a configuration that it composed, in this process or in one of its launchers'."""

import os
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from capsexp.cli import handle_signals, interrupt_all, print_error, print_line
from capsexp.config import by_hydra, searchpath
from capsexp.config.schema import check, without_effect
from capsexp.errors import FAILED, CapsexpError, raise_interruption

if TYPE_CHECKING:
    from capsexp.run.records import Record


def task(composed: DictConfig) -> "Record | CapsexpError":
    """The record of a run.

    An error is printed and returned, not raised: the other runs of a sweep go on, and a launcher passes it back.
    """
    hydra_config = HydraConfig.get()
    overrides = overrides_of(HydraConfig.instance().cfg)
    handle_signals(interrupt_all)  # a launcher's process may ignore SIGTERM
    try:
        os.chdir(hydra_config.runtime.cwd)  # a launcher's process may have started elsewhere
        searchpath.import_from(hydra_config.runtime.cwd)
        config = check(by_hydra.to_containers(composed))
        for line in without_effect(config, overrides):
            print_line(line)
        from capsexp.run import execute  # torch takes seconds to import: only for what is valid

        return execute.run(config, overrides, beside=not OmegaConf.is_missing(hydra_config.job, "num"))
    except BrokenPipeError as error:  # ends a sweep, too: its other runs couldn't print anything either
        raise SystemExit(FAILED) from error
    except Exception as error:
        raise_interruption(error)
        return print_error(error, overrides)


def overrides_of(config: Any) -> list[str]:
    """The KEY=VALUE of a command line, without Hydra's own."""
    return [str(word) for word in OmegaConf.to_container(config.hydra.overrides.task, resolve=False) or []]
