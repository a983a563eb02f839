"""Many runs: the combinations of a sweep, the launcher here and Hydra's, and what is printed at the end."""

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
from hydra.core.override_parser.types import Glob
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from capsexp.cli import print_line
from capsexp.config import compose, searchpath
from capsexp.config.by_hydra import by_hydra
from capsexp.config.checks import check_dataclass, typed_key
from capsexp.config.schema import without_effect
from capsexp.errors import DONE, FAILED, WRONG_INPUT, CapsexpError, InputError, duration, first_line, raise_interruption
from capsexp.run.task import overrides_of, task
from capsexp.study import studies

if TYPE_CHECKING:
    from capsexp.reproduce.planning import Options, Planned

LOCAL = "capsexp.reproduce.launcher.Options"  # which Hydra composes, and never makes
_FOLDER = "hydra.launcher.submitit_folder"  # of the files of submitit's jobs


@contextmanager
def application(words: Sequence[str], name: str = "config", folder: str = "") -> Iterator[tuple[Any, list[str], Any]]:
    """Hydra, the words for it, and the configuration of its own that they make, with nothing swept."""
    words = [*searchpath.as_overrides(), *map(compose.for_hydra, words)]
    typed = [*map(typed_key, words)]
    if any(word.startswith("hydra/launcher=submitit") for word in words) and _FOLDER not in typed:
        words.append(f"{_FOLDER}=${{hydra.sweep.dir}}/.submitit")  # its default leaves an empty folder named %j
    with initialize_config_dir(str(Path(folder or searchpath.CONF).absolute()), job_name="capsexp", version_base="1.3"):
        app: Any = GlobalHydra.instance().hydra
        config = app.compose_config(name, words, RunMode.MULTIRUN, validate_sweep_overrides=False)
        _check_own_part(config, words)
        yield app, words, config


def _check_own_part(config: DictConfig, words: Sequence[str] = ()) -> None:
    """Raises InputError where a file from outside sets what Hydra calls, or the environment: a file runs no program."""
    if not searchpath.folders()[1:]:
        return
    typed = by_hydra([word for word in words if word.lstrip("+~").startswith("hydra")], own_part=True)
    for key in ("hydra.callbacks", "hydra.hydra_logging", "hydra.job_logging", "hydra.job.env_set"):
        nodes = (OmegaConf.to_container(OmegaConf.select(part, key), resolve=False) for part in (config, typed))
        if next(nodes) != next(nodes):
            raise InputError(f"{key}: is set by a file from outside, which can't; it can be typed")


def check_environment() -> None:
    """Raises InputError under torchrun, whose processes would be in different runs as soon as one goes on alone."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise InputError("torchrun: trains one run; several are started without it")


def options_of(config: DictConfig) -> "Options | None":
    """How the launcher here is to launch; None for another launcher. Raises InputError."""
    from capsexp.reproduce.planning import Options

    node = config.hydra.launcher
    if not node:
        raise InputError("hydra.launcher: must be a group of keys; choose one with hydra/launcher=…")
    given = {key: node[key] for key in node if key != "_target_"}
    return check_dataclass(Options, given, "hydra.launcher") if node._target_ == LOCAL else None


def train(planned: "Planned", app: Any, config: DictConfig) -> None:
    """Trains what is waiting, by the launcher that a configuration names; the jobs then have other states."""
    if here := options_of(config):
        from capsexp.reproduce import launcher

        launcher.launch(planned.jobs, here)
        return
    waiting = [job for job in planned.jobs if job.state == "waiting"]
    context = HydraContext(config_loader=app.config_loader, callbacks=Callbacks(config))
    try:
        of_hydra = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
    except Exception as wrong:  # a class that is none of hydra_plugins, or that takes other keys
        raise_interruption(wrong)
        raise InputError(f"hydra.launcher: {first_line(wrong)}") from wrong
    for job in waiting if searchpath.folders()[1:] else ():
        _check_own_part(by_hydra(job.overrides, own_part=True))
    if folder := config.hydra.launcher.get("submitit_folder"):
        print_line(f"output of the runs: {folder}")  # which submitit keeps from the screen
    from capsexp.run.records import result_line

    returned = of_hydra.launch([[*job.overrides] for job in waiting], 0) if waiting else []
    for job, value in zip(waiting, returned, strict=True):
        job.read_record()
        if isinstance(result := value.return_value, CapsexpError):
            job.state, job.outcome = "failed", str(result)
        elif job.state == "waiting":  # its key has another precision than the one that this machine would take
            job.state, job.outcome = "finished", result_line(result)


def sweep(app: Any, config: DictConfig) -> int:
    """Trains every combination of the words and prints what they gave; the exit code."""
    from capsexp.reproduce import monitor, planning  # these aren't needed by a run alone

    check_environment()
    commands = studies.expand(tuple(map(_swept, overrides_of(config))))
    planned = planning.plan_runs(commands)
    lines = chain(*(without_effect(job.planned.config, job.overrides) for job in planned.jobs))
    for line in dict.fromkeys(lines):
        print_line(line)
    monitor.print_plan(planned, options_of(config), listed=False)
    begun = time.monotonic()
    train(planned, app, config)
    return _summarised(planned, time.monotonic() - begun)


def _swept(word: str) -> str:
    """A word with the names that a pattern of several stands for; raises InputError for none."""
    override = compose.parsed(word)
    if not override.is_sweep_override():
        return word
    value, choices = override.value(), [*searchpath.choices(override.key_or_group)]
    values = value.filter(choices) if isinstance(value, Glob) else [*override.sweep_string_iterator()]
    if not values:
        raise InputError(f"{word}: no values, so that nothing would run")
    return f"{override.get_key_element()}={','.join(values)}" if isinstance(value, Glob) else word


def _summarised(planned: "Planned", seconds: float) -> int:
    """Prints the table of a sweep's runs, with their differences, and the errors of failed ones; the exit code."""
    from capsexp.reproduce import monitor, planning
    from capsexp.study.selection import TYPED
    from capsexp.tables import screen
    from capsexp.tables.sweep import measure_sweep

    jobs = planned.jobs
    valid = [words for words, run in planned.runs.items() if not isinstance(run, InputError)]
    finished = [job for job in jobs if job.state == "finished"]
    ended = f"{monitor.ended(planned.runs.values())} in {duration(seconds)}"
    if len(finished) > 1:
        paths = finished[0].planned.config.paths
        screen.print_screen(measure_sweep(valid, Path(paths.results)), TYPED, ended, None, paths.logs)
    else:
        print_line(ended)
    failed = monitor.print_errors(planned) or planning.count(jobs, "waiting")
    return FAILED if failed else WRONG_INPUT if planned.barred else DONE
