"""`capsexp KEY=VALUE …`: compose, check, run; with -m, for every combination. `capsexp COMMAND …`: see COMMANDS."""

import argparse
import io
import logging
import sys
from contextlib import nullcontext, redirect_stdout, suppress
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn

from capsexp.config import searchpath  # before Hydra: says in one line where that is missing

# isort: split
import hydra
from hydra._internal import utils as hydra_utils
from hydra.core.utils import env_override
from hydra.types import RunMode

from capsexp import cli
from capsexp.config import compose
from capsexp.config.checks import unknown_name
from capsexp.errors import DONE, CapsexpError, InputError
from capsexp.reproduce import sweep
from capsexp.run.task import task

#: Each command but training, and the module that runs it; conf/hydra/help/capsexp.yaml describes them.
COMMANDS = {
    "reproduce": "capsexp.reproduce.command",
    "tables": "capsexp.tables.command",
    "figures": "capsexp.figures.command",
    "compare": "capsexp.compare.command",
    "evaluate": "capsexp.evaluate.command",
    "predict": "capsexp.evaluate.predict",
    "inspect": "capsexp.inspect.command",
    "data": "capsexp.data.command",
}

RESUME = "the same command continues after the last whole epoch"


def main() -> NoReturn:
    """Runs the command line; exits with 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    if place := _place_of_command(sys.argv):
        module = import_module(COMMANDS[sys.argv.pop(place)])
        cli.exit_with(module.main, getattr(module, "RESUME", ""))
    cli.exit_with(_run, RESUME)


def _place_of_command(words: list[str]) -> int | None:
    """Where one of COMMANDS stands, at the beginning or behind --config-dir; None for a training."""
    for place, word in enumerate(words[1:], 1):
        if not word.startswith(searchpath.OPTIONS) and words[place - 1] not in searchpath.OPTIONS:
            return place if word in COMMANDS else None
    return None


def _run(words: list[str]) -> int:
    """Runs what Hydra makes of the command line; the exit code."""
    cli.handle_signals(cli.interrupt_all)
    if "--version" in words:  # Hydra would print its own
        print(f"capsexp {version('capsexp')}")
        return DONE
    if sys.version_info >= (3, 14):  # argparse rejects a help text of Hydra's: hydra-ecosystem/hydra#3121
        argparse.ArgumentParser._check_help = lambda *_: None
    words = words or ["--help"]  # not 250 epochs of MNIST
    parser = hydra_utils.get_args_parser()
    parser.error = cli.wrong_option  # type: ignore[method-assign]
    cli.add_launcher_options(parser)
    options = parser.parse_intermixed_args(words)
    if options.experimental_rerun:
        raise InputError("--experimental-rerun: the command in a record repeats its run")
    if options.resolve and not options.cfg:
        raise InputError("--resolve: only with --cfg")
    if options.overrides and options.overrides[0].isidentifier():
        command = options.overrides[0]
        if command in COMMANDS:
            raise InputError(f"{command}: a command stands first: capsexp {command} …")
        raise unknown_name(command, "command", COMMANDS)
    logging.raiseExceptions = False  # no traceback for a log line that Hydra can't write to a closed pipe
    if options.cfg or options.info or options.help or options.hydra_help or options.shell_completion:
        return _show(words, options)
    name = options.config_name or "config"
    typed = [*options.overrides, *cli.launcher_words(options)]
    with sweep.application(typed, name, options.config_path) as (app, overrides, config):
        if options.multirun or config.hydra.mode is RunMode.MULTIRUN:
            return sweep.sweep(app, config)
        if cli.launcher_words(options):
            raise InputError("--jobs, --retry, --time-limit: only with -m")
        returned = app.run(name, task, overrides).return_value
        return returned.exit_code if isinstance(returned, CapsexpError) else DONE


def _show(words: list[str], options: argparse.Namespace) -> int:
    """Prints what Hydra says of a configuration, of itself, or to a shell; the exit code."""
    rest = [word for word in words if word not in options.overrides]  # for Hydra, overrides must stand together
    if options.help:  # which lists the choices in this folder, and none in those of hydra.searchpath
        rest.append(f"--config-dir={searchpath.folders()[-1]}")
    overrides = [*searchpath.as_overrides(), *map(compose.for_hydra, options.overrides)]
    sys.argv[1:] = [*overrides, *rest]  # --info would take an override for its value
    shown = io.StringIO() if options.help else sys.stdout  # whose lists Hydra would break inside words
    ending = suppress(SystemExit) if options.help else nullcontext()
    with env_override({"HYDRA_FULL_ERROR": "1"}), redirect_stdout(shown), ending:  # errors are raised, not printed
        hydra.main(version_base="1.3", config_path=str(searchpath.CONF), config_name="config")(task)()
    for line in shown.getvalue().splitlines() if isinstance(shown, io.StringIO) else ():
        cli.print_line(line)
    return DONE


if __name__ == "__main__":
    main()
