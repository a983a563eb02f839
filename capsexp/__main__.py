"""`capsexp KEY=VALUE …`: compose, check, run; with -m, for every combination. `capsexp COMMAND …`: see COMMANDS."""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra._internal import utils as hydra_utils
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from capsexp.cli import end_with, handle_signals, print_line, report, wrong_option
from capsexp.config import by_hydra, compose, searchpath
from capsexp.config.checks import nearest
from capsexp.config.schema import check, without_effect
from capsexp.errors import DONE, FAILED, BusyError, CapsexpError, InputError, raise_interruption

if TYPE_CHECKING:
    from capsexp.run.records import Record

#: Each command but training, and the module that runs it; conf/hydra/help/capsexp.yaml describes them.
COMMANDS = {
    "reproduce": "capsexp.reproduce.command",
    "tables": "capsexp.tables.command",
    "figures": "capsexp.figures.command",
    "report": "capsexp.tables.html",
    "compare": "capsexp.compare.command",
    "evaluate": "capsexp.evaluate.command",
    "predict": "capsexp.evaluate.predict",
    "inspect": "capsexp.inspect.command",
    "data": "capsexp.data.command",
}

RESUME = "the same command continues after the last whole epoch, if there is one"


@hydra.main(version_base="1.3", config_path=str(searchpath.CONF), config_name="config")
def task(composed: DictConfig) -> "Record | CapsexpError":
    """The record of a run, in this process or in a launcher's.

    An error is printed and returned, not raised: the other runs of a sweep go on, and a launcher passes it back.
    """
    hydra_config = HydraConfig.get()
    overrides = [str(word) for word in OmegaConf.to_container(hydra_config.overrides.task, resolve=False) or []]
    handle_signals(_interrupt)  # a launcher's process may ignore SIGTERM
    try:
        os.chdir(hydra_config.runtime.cwd)  # a launcher's process may have started elsewhere
        searchpath.import_from(hydra_config.runtime.cwd)
        config = check(by_hydra.plain(composed))
        for line in without_effect(config, overrides):
            print_line(line)
        from capsexp.run.execute import run, wait_until_free  # torch takes seconds to import: only for what is valid

        while True:
            if hydra_config.mode is RunMode.MULTIRUN:
                wait_until_free(config)
            try:
                return run(config, overrides)
            except BusyError:  # another sweep that waited was faster
                if hydra_config.mode is not RunMode.MULTIRUN:
                    raise
    except BrokenPipeError as error:  # ends a sweep, too: its other runs couldn't print anything either
        raise SystemExit(FAILED) from error
    except Exception as error:
        raise_interruption(error)
        return report(error, overrides)


def main() -> NoReturn:
    """Runs the command line; exits with 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    if place := _place_of_command(sys.argv):
        module = import_module(COMMANDS[sys.argv.pop(place)])
        end_with(module.main, getattr(module, "RESUME", ""))
    end_with(_run, RESUME)


def _place_of_command(words: list[str]) -> int | None:
    """Where one of COMMANDS stands, at the beginning or behind --config-dir; None for a training."""
    for place, word in enumerate(words[1:], 1):
        if not word.startswith(searchpath.OPTIONS) and words[place - 1] not in searchpath.OPTIONS:
            return place if word in COMMANDS else None
    return None


def _run(words: list[str]) -> int:
    """Runs what Hydra makes of the command line; the exit code."""
    handle_signals(_interrupt)
    if "--version" in words:  # Hydra would print its own
        print(f"capsexp {version('capsexp')}")
        return DONE
    if sys.version_info >= (3, 14):  # argparse rejects a help text of Hydra's: hydra-ecosystem/hydra#3121
        argparse.ArgumentParser._check_help = lambda *_: None
    words = words or ["--help"]  # not 250 epochs of MNIST
    parser = hydra_utils.get_args_parser()
    parser.error = wrong_option  # type: ignore[method-assign]
    options = parser.parse_intermixed_args(words)
    if options.resolve and not options.cfg:
        raise InputError("--resolve: only with --cfg")
    if options.overrides and options.overrides[0].isidentifier():
        command = options.overrides[0]
        if command in COMMANDS:
            raise InputError(f"{command}: a command stands first: capsexp {command} …")
        raise InputError(f"{command}: no such command{nearest(command, COMMANDS)} (there are {', '.join(COMMANDS)})")
    rest = [word for word in words if word not in options.overrides]  # for Hydra, overrides must stand together
    if options.help:  # which lists the choices in this folder, and none in those of hydra.searchpath
        rest.append(f"--config-dir={searchpath.folders()[-1]}")
    overrides = [*searchpath.as_overrides(), *map(compose.for_hydra, options.overrides)]
    sys.argv[1:] = [*overrides, *rest]  # --info would take an override for its value
    logging.raiseExceptions = False  # no traceback for a log line that Hydra can't write to a closed pipe
    returned: list[Any] = []

    def call(func: Callable[[], Any]) -> Any:
        returned.append(func())
        return returned[-1]

    # hydra.main drops what the task returns (by design: https://github.com/facebookresearch/hydra/issues/332), and
    # prints errors itself, in several lines. Both happen in this private function; nothing public gives what the runs
    # of a sweep returned, and HYDRA_FULL_ERROR, with which errors are raised, would reach launchers' processes.
    hydra_utils.run_and_report = call
    try:
        task()
    except SystemExit:
        if "ray" in sys.modules:  # Ray's way to end on a signal
            raise KeyboardInterrupt from None
        raise
    return _summarised(returned[-1] if returned else None)


def _summarised(returned: Any) -> int:
    """The exit code of a run, or of a sweep, of which a table and a list of the failed runs are printed."""
    jobs = [returned] if isinstance(returned, JobReturn) else []
    if isinstance(returned, list):
        jobs = [job for batch in returned for job in batch]
    failed = [job for job in jobs if isinstance(job.return_value, CapsexpError)]
    if len(jobs) > 1 and (ray := sys.modules.get("ray")):
        time.sleep(0.5)  # its runs' output comes with a delay: it must not come after the last lines
        ray.shutdown()
    if len(jobs) - len(failed) > 1:
        from capsexp.compare.comparison import of_sweep  # pandas takes a second to import
        from capsexp.tables import sweep
        from capsexp.tables.terminal import print_table

        commands = [job.overrides or () for job in jobs]
        print_table(sweep.table([(words, job.return_value) for words, job in zip(commands, jobs, strict=True)]))
        for line in of_sweep(commands, Path(jobs[0].cfg.paths.results)) if jobs[0].cfg else []:
            print_line(line)
    if failed and isinstance(returned, list):
        print(f"error: {len(failed)} of {len(jobs)} runs failed", file=sys.stderr)
        for job, words in zip(jobs, compose.distinguishing([job.overrides or () for job in jobs]), strict=True):
            if job in failed:
                print(f"error: {job.return_value}" + (f" ({words})" if words else ""), file=sys.stderr)
    return min((job.return_value.exit_code for job in failed), default=DONE)  # FAILED goes before WRONG_INPUT


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """SIGTERM as Ctrl-C: the processes that a launcher has started here get it, too."""
    signal.signal(signal_number, signal.SIG_IGN)  # a second one would disturb the end
    for patience in (1, 0):  # a job of submitit's ignores the first one while it starts
        for child in _children():
            os.kill(child, signal_number)
        time.sleep(patience if _children() else 0)
    raise KeyboardInterrupt


def _children() -> list[int]:
    """The processes that this one has started, where the system lists them."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


if __name__ == "__main__":
    main()
