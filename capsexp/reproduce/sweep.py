"""Many runs through Hydra: its sweeps, its launchers, and what is printed when a sweep has ended."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra import initialize_config_dir

# A launcher needs the callbacks of a configuration, for which there is no public function.
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Glob
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from capsexp.cli import handle_signals, interrupt_all, print_error, print_line
from capsexp.config import by_hydra, compose, searchpath
from capsexp.config.checks import check_dataclass
from capsexp.config.schema import check, without_effect
from capsexp.errors import DONE, FAILED, CapsexpError, InputError, RunError, duration, raise_interruption

if TYPE_CHECKING:
    from capsexp.reproduce.launcher import Options
    from capsexp.reproduce.planning import Job
    from capsexp.run.records import Record

LOCAL = "hydra_plugins.capsexp_launcher.LocalLauncher"
_FOLDER = "hydra.launcher.submitit_folder"  # of the files of submitit's jobs


def task(composed: DictConfig) -> "Record | CapsexpError":
    """The record of a run, in this process or in one of Hydra's launchers'.

    An error is printed and returned, not raised: the other runs of a sweep go on, and a launcher passes it back.
    """
    hydra_config = HydraConfig.get()
    overrides = [str(word) for word in OmegaConf.to_container(hydra_config.overrides.task, resolve=False) or []]
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


@contextmanager
def application(words: Sequence[str], name: str = "config", folder: str = "") -> Iterator[tuple[Any, list[str], Any]]:
    """Hydra, the words for it, and the configuration of its own that they make, with nothing swept."""
    words = [*searchpath.as_overrides(), *map(compose.for_hydra, words)]
    typed = [word.partition("=")[0] for word in words]
    if any(word.startswith("hydra/launcher=submitit") for word in words) and _FOLDER not in typed:
        words.append(f"{_FOLDER}=${{hydra.sweep.dir}}/.submitit")  # its default leaves an empty folder named %j
    if "TORCHELASTIC_RUN_ID" in os.environ and "hydra/launcher" not in typed:
        words.append("hydra/launcher=basic")  # its processes train each run together
    with initialize_config_dir(str(Path(folder or searchpath.CONF).absolute()), job_name="capsexp", version_base="1.3"):
        app: Any = GlobalHydra.instance().hydra
        yield app, words, app.compose_config(name, words, RunMode.MULTIRUN, validate_sweep_overrides=False)


def options_of(config: DictConfig) -> "Options | None":
    """How the launcher here is to launch; None for another launcher. Raises InputError."""
    node = config.hydra.launcher
    return checked({key: node[key] for key in node if key != "_target_"}) if node._target_ == LOCAL else None


def checked(options: dict[str, Any]) -> "Options":
    """The options of the launcher here; raises InputError."""
    from capsexp.reproduce.launcher import Options

    node: Options = check_dataclass(Options, options, "hydra.launcher")
    return node


def train(commands: Sequence[Sequence[str]], options: dict[str, Any]) -> list["Record | CapsexpError | None"]:
    """Trains the runs of these command lines here; of each its record, its error, or None where it is left."""
    from capsexp.reproduce import launcher, monitor, planning
    from capsexp.run import records

    how = checked(options)
    planned = planning.plan_each(commands)
    jobs = list(dict.fromkeys(job for job in planned if isinstance(job, planning.Job)))
    lines = chain(*(without_effect(job.planned.config, job.overrides) for job in jobs))
    for line in dict.fromkeys(lines):
        print_line(line)
    barred = {str(error): [""] for error in planned if isinstance(error, InputError)}
    monitor.print_plan(jobs, barred, planning.concurrency(jobs, how.jobs)[0], listed=False)
    launcher.launch(jobs, how)
    return [
        job
        if isinstance(job, InputError)
        else RunError(monitor.failure(job))
        if job.state == "failed"
        else records.read(job.planned.path)
        if job.state == "finished"
        else None
        for job in planned
    ]


def train_by(config: DictConfig, app: Any, jobs: Sequence["Job"]) -> None:
    """Trains what is waiting by the launcher of Hydra's that a configuration names, and reads what has become of it."""
    waiting = [job for job in jobs if job.state == "waiting"]
    context = HydraContext(config_loader=app.config_loader, callbacks=Callbacks(config))
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
    announce(config)
    returned = launcher.launch([[*job.overrides] for job in waiting], 0) if waiting else []
    for job, value in zip(waiting, returned, strict=True):
        job.read_record()
        if isinstance(error := value.return_value, CapsexpError):
            job.state, job.outcome = "failed", str(error)


def announce(config: DictConfig) -> None:
    """Says where the output of the runs is that a launcher keeps from the screen."""
    if folder := config.hydra.launcher.get("submitit_folder"):
        print_line(f"output of the runs: {folder}")


def sweep(app: Any, name: str, words: list[str], config: DictConfig) -> int:
    """Runs every combination and prints what they gave; the exit code."""
    for word in words:
        override = compose.parsed(word)
        if override.is_sweep_override():
            value, choices = override.value(), [*searchpath.choices(override.key_or_group)]
            if not (value.filter(choices) if isinstance(value, Glob) else [*override.sweep_string_iterator()]):
                raise InputError(f"{word}: no values, so that nothing would run")
    announce(config)
    begun = time.monotonic()
    returned = app.multirun(name, task, [*words, *["hydra.mode=MULTIRUN"] * (config.hydra.mode is None)])
    return _summarised([job for batch in returned for job in batch], time.monotonic() - begun)


def _summarised(jobs: Sequence[JobReturn], seconds: float) -> int:
    """Prints the table of a sweep's runs, with their differences, and the errors of failed ones; the exit code."""
    from capsexp.reproduce import monitor  # these aren't needed by a run alone
    from capsexp.study.selection import combination
    from capsexp.tables.sweep import print_sweep

    values = {tuple(job.overrides or ()): job.return_value for job in jobs}
    failed = {words: value for words, value in values.items() if isinstance(value, CapsexpError)}
    finished = [words for words, value in values.items() if value is not None and words not in failed]
    left = len(values) - len(finished) - len(failed)
    ended = f"{monitor.ended_of(len(finished), len(values), left)} in {duration(seconds)}"
    if len(finished) > 1:
        valid = [words for words, value in values.items() if not isinstance(value, InputError)]
        print_sweep(valid, Path(combination(finished[0]).config.paths.results), ended)
    else:
        print_line(ended)
    names = dict(zip(values, compose.distinguishing([*values]), strict=True))
    monitor.print_errors([f"{names[words]}: {error}".removeprefix(": ") for words, error in failed.items()])
    return min((error.exit_code for error in failed.values()), default=DONE)  # FAILED goes before WRONG_INPUT
