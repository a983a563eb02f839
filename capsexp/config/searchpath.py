"""Where configuration files and classes come from: from this package, and from outside what the user names.

From outside come the files in the folder of Hydra's `--config-dir`, and those of installed packages with a search path
plug-in of Hydra's. A class is imported only if a file names it, of the group that it is chosen from. What is typed
stands in the environment, so that every process that a command starts has it, too.
"""

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import yaml
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from capsexp.errors import InputError

_PACKAGE = Path(__file__).parents[1]

#: The folder of configuration files: beside the package in a checkout, inside it when installed from a wheel.
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").exists() else _PACKAGE.parent / "conf"

#: The checkout, where there is one.
ROOT = CONF.parent

#: Hydra's names of the option.
OPTIONS = ("--config-dir", "-cd")

_DIR = "CAPSEXP_CONFIG_DIR"


def use(config_dir: str) -> None:
    """Sets what was typed, and makes the modules in the working folder importable, after all others.

    Raises InputError for a folder that doesn't exist, or has a choice that this package has too.
    """
    folder = Path(config_dir).expanduser()
    if not config_dir or not folder.is_dir():
        raise InputError(f"--config-dir={config_dir}: no such folder")
    os.environ[_DIR] = str(folder.absolute())
    folders()
    import_from(os.getcwd())


def import_from(folder: str) -> None:
    """Makes modules in a folder importable, after all others, if files from outside are used."""
    if os.environ.get(_DIR) and folder not in sys.path:
        sys.path.append(folder)


def folders() -> tuple[Path, ...]:
    """The folders of configuration files; the first that has a file counts. Raises InputError as `use` does."""
    typed = os.environ.get(_DIR)
    return (CONF, *_installed(), *([_checked(Path(typed))] if typed else []))


def choices(group: str) -> dict[str, Path]:
    """The files of a group of choices, by name."""
    found = [path for folder in reversed(folders()) for path in (folder / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def classes(group: str) -> frozenset[str]:
    """The classes, dotted, that the files of a group name; no other one is imported for it."""
    return _classes(tuple(choices(group).values()))


@cache
def _classes(paths: tuple[Path, ...]) -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return frozenset(target for text in texts for target in re.findall(r"""\b_target_: *["']?([\w.]+)""", text))


@cache
def named_classes() -> frozenset[tuple[str, str]]:
    """The names of components in this package's files, each with the class that it stands for."""
    found: set[tuple[str, str]] = set()
    parents: dict[str, str] = {}  # of a network's file without a class, the file that it begins with
    for path in [path for group in ("data", "loss", "model", "routing") for path in (CONF / group).glob("*.yaml")]:
        nodes = [yaml.safe_load(path.read_text(encoding="utf-8"))]
        for node in nodes:
            nodes += [value for value in node.values() if isinstance(value, dict)]
        here = {(node["name"], node["_target_"]) for node in nodes if {"name", "_target_"} <= node.keys()}
        found |= here
        if path.parent.name == "model" and not here:
            parents[path.stem] = nodes[0]["defaults"][0]
    classes = dict(found)
    for name in parents:
        first = name
        while first in parents:
            first = parents[first]
        found.add((name, classes[first]))
    return frozenset(found)


def as_option() -> list[str]:
    """What was typed, as Hydra's own option."""
    typed = os.environ.get(_DIR)
    return [f"--config-dir={typed}"] if typed else []


def as_environment() -> list[str]:
    """What was typed, as an override that sets the environment of a launcher's jobs."""
    typed = os.environ.get(_DIR)
    return [f"++hydra.job.env_set.{_DIR}={_quoted(typed)}"] if typed else []


def as_override() -> list[str]:
    """What was typed, as an override for Hydra's Compose API, which has no such option."""
    typed = os.environ.get(_DIR)
    return [f"hydra.searchpath=[{_quoted(f'file://{typed}')}]"] if typed else []


def as_portable_option() -> list[str]:
    """What was typed, for the command in a record."""
    typed = os.environ.get(_DIR)
    return [f"--config-dir={without_place(typed)}"] if typed else []


def without_place(path: str) -> str:
    """A path for a record: from the working folder on; of what isn't below it only the name."""
    whole, here = Path(os.path.abspath(os.path.expanduser(path))), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name


def _quoted(value: str) -> str:
    return QuotedString(value, Quote.single).with_quotes()


@cache
def _installed() -> list[Path]:
    """The folders of installed packages with a search path plug-in."""
    path = ConfigSearchPathImpl()
    for plugin in Plugins.instance().discover(SearchPathPlugin):
        plugin().manipulate_search_path(path)  # type: ignore[attr-defined]
    names = [entry.path.removeprefix("pkg://") for entry in path.get_path() if (entry.path or "").startswith("pkg://")]
    return [_checked(folder) for name in names for folder in _folder(name)]


def _folder(package: str) -> Iterable[Path]:
    """The folder of a package, with or without __init__.py; none if there is no such package."""
    try:
        spec = find_spec(package.replace("/", "."))
    except ImportError:
        spec = None
    return [Path(place) for place in (spec.submodule_search_locations or [] if spec else [])][:1]


@cache
def _checked(folder: Path) -> Path:
    """The folder itself. Raises InputError for a file that would not be read, and for a data set of another name."""
    for path in sorted(folder.glob("*/*.yaml")):
        group, name = path.parent.name, path.stem
        if (CONF / group / path.name).exists():
            raise InputError(f"{path}: capsexp has a {group}={name} of its own; choose another name")
        named = rf"^name: *(['\"]?){re.escape(name)}\1 *(#.*)?$"
        if group == "data" and not re.search(named, path.read_text(encoding="utf-8"), re.MULTILINE):
            raise InputError(f"{path}: name: must be {name}, as the file's")
    return folder
