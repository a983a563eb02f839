"""Errors of Hydra, OmegaConf, launchers and the system as ours, in one line."""

import errno
import re
from traceback import walk_tb
from typing import Any

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from capsexp.config import searchpath
from capsexp.config.by_hydra import by_hydra
from capsexp.config.checks import did_you_mean, unknown_key
from capsexp.config.searchpath import CONF
from capsexp.errors import InputError, RunError, first_line

#: The extras that bring launchers.
_EXTRAS = {"submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray", "ray_aws": "ray"}


def explained(error: Exception, overrides: list[str]) -> Exception:
    """An error of Hydra, OmegaConf, a launcher or the system as one of ours, with one line; any other unchanged."""
    if isinstance(error, MissingConfigException):
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        if not group:  # of --config-path or --config-name
            return InputError(" ".join(str(error).split()))
        if group == "hydra/launcher" and choice in _EXTRAS:
            return InputError(f"{group}={choice}: not installed; pip install 'capsexp[{_EXTRAS[choice]}]' brings it")
        names = sorted(error.options or searchpath.choices(group))
        hint = did_you_mean(choice, names)
        return InputError(f"{group}={choice}: no such choice{hint} ({group} has {', '.join(names)})")
    if isinstance(error, OverrideParseException):
        return InputError(f"{error.override}: not of the form key=value")
    if several := re.match(r"Ambiguous value for argument '(.*)'\n", str(error)):
        return InputError(f"{several[1]}: several values; python -m capsexp -m runs each (a list has brackets)")
    if isinstance(error, ConfigCompositionException):
        return _explained_of_composition(error, overrides)
    if isinstance(error, OmegaConfBaseException):
        return InputError(f"{error.full_key or 'configuration'}: {first_line(error)}")
    if isinstance(error, HydraException) or (
        isinstance(error, ValueError) and re.match("Config group override|Only one of|Invalid defaults", str(error))
    ):
        return InputError(first_line(error))
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
        return InputError(f"{mark.name}: line {mark.line + 1}: {error.problem}")
    if isinstance(error, MemoryError):
        return RunError(f"out of memory ({first_line(error)})" if str(error) else "out of memory")
    if isinstance(error, OSError):
        return _explained_of_system(error)
    if isinstance(error, ValueError) and "integer string conversion" in str(error):
        return InputError(f"configuration: a number of too many digits ({first_line(error).partition(';')[0]})")
    return _explained_of_modules(error, overrides)


def _explained_of_system(error: OSError) -> Exception:
    """The system's error as one of ours, where it has a file's name or needs none."""
    if error.filename is not None:
        return RunError(f"{error.filename}: {error.strerror}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return RunError(f"output: {error.strerror}")  # files are named
    if error.errno == errno.ENOENT:  # of os.getcwd
        return RunError("the working folder doesn't exist any more")
    return error


def _explained_of_modules(error: Exception, overrides: list[str]) -> Exception:
    """An error as one of ours by where it was raised: in Hydra, in a launcher."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    package = "".join(modules[-1:]).partition(".")[0]
    if isinstance(error, RecursionError) and "hydra._internal.defaults_list" in modules:
        return InputError("defaults: files that name each other, or one that names itself")
    words = " ".join(word for word in overrides if word.lstrip("+~").startswith("hydra."))
    if package in ("hydra", "omegaconf") and (words or isinstance(error, AssertionError)):
        return InputError(f"{words or 'configuration'}: Hydra takes no such value")
    return _explained_of_launcher(error) if package in ("submitit", "ray", "joblib") else error


def _explained_of_launcher(error: Exception) -> Exception:
    """A launcher's error as one of ours: a queue that doesn't exist, a job that was killed."""
    if cause := getattr(error, "cause", None):  # what Ray's job raised
        return RunError(f"{type(cause).__name__}: {first_line(cause)}")
    lines = str(error).splitlines()
    raised = [line for line in lines if re.match(r"[\w.]+Error: ", line)]  # by submitit's job, in a traceback
    if raised and "with trace:" in lines[0]:
        return RunError(raised[-1])
    line = " ".join(lines[:2])
    killed = "; the same command continues what was killed and does the rest" if "any output" in line else ""
    return RunError(line + killed)


def _explained_of_composition(error: ConfigCompositionException, overrides: list[str]) -> InputError:
    """The error for a key that doesn't exist, or for a value where there can be none."""
    text = f"{error} {error.__cause__ or ''}"
    matched = re.search(r"Could not (?:override|delete|append)[^']*'([^']+)'", text)
    if not matched:
        return InputError(": ".join(first_line(part) for part in (error, error.__cause__) if part and str(part)))
    key, _, package = matched[1].partition("@")
    if file := re.search(r"In '([^']+)'", text):
        hint = did_you_mean(f"/{key.rpartition('/')[2]}", [f"/{group.name}" for group in CONF.iterdir()])
        local = package and "/" not in key
        problem = "must begin with the line # @package _global_" if local else f"no such group{hint}"
        return InputError(f"{file[1]}.yaml: overrides {key}; {problem}")
    if key == "study":
        return InputError("study: capsexp reproduce NAME runs a study")
    if "already at" in text:
        return InputError(f"{key}: is there already; without + it is set")
    if "reference_type=Dict" in text or key.startswith("optim.options."):
        return InputError(f"{key}: no such key; +{key}=… adds it")
    if key.startswith("hydra/"):
        return InputError(f"{key}: no such group{did_you_mean(key, ('hydra/launcher', 'hydra/sweeper'))}")
    # Which keys there are depends on the choices of data set, model and others.
    chosen = [word for word in overrides if re.fullmatch(r"[\w/]+=([\w-]+|\[[\w,-]*\])", word)]
    chosen = [word for word in chosen if word.startswith("hydra/") or (CONF / word.partition("=")[0]).is_dir()]
    parts = key.split(".")
    node: Any = OmegaConf.to_container(by_hydra(chosen, own_part=parts[0] == "hydra"))
    for depth, part in enumerate(parts):
        if not isinstance(node, dict):
            return InputError(f"{key}: {'.'.join(parts[:depth])} holds a value, not a group of keys")
        if part not in node:
            inside = [f"{name}.{key}" for name, group in node.items() if isinstance(group, dict) and part in group]
            if depth == 0 and inside:
                return InputError(f"{key}: no such key; did you mean {' or '.join(inside)}?")
            files = searchpath.choices(parts[0]).items() if depth == 1 else ()
            others = [name for name, file in files if f"\n{part}:" in f"\n{file.read_text('utf-8')}"]
            if others:
                return InputError(f"{key}: no such key; {parts[0]}={' or '.join(others)} has it")
            return unknown_key(part, node, ".".join(parts[:depth]))
        node = node[part]
    return InputError(f"{key}: {first_line(error)}")
