"""Where configuration files and classes come from: from this package, and from outside what the user names.

From outside come the files in the folder of Hydra's `--config-dir`. A class is imported only if a file names it, of the
group that it is chosen from. What is typed stands in the environment, so that every process that a command starts has
it, too.
"""

import io
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from pathlib import Path

import yaml
from hydra.core.override_parser.types import Quote, QuotedString
from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent

from capsexp.errors import InputError, first_line
from capsexp.files import opened

_PACKAGE = Path(__file__).parents[1]

#: The folder of configuration files: beside the package in a checkout, inside it when installed from a wheel.
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").exists() else _PACKAGE.parent / "conf"

#: The checkout, where there is one.
ROOT = CONF.parent

#: Hydra's names of the option.
OPTIONS = ("--config-dir", "-cd")

_VARIABLE = "CAPSEXP_CONFIG_DIR"
_MOST_NESTED = 50  # groups and lists in each other; Hydra fails at 150


def use(config_dir: str) -> None:
    """Sets what was typed, and makes the modules in the working folder importable, after all others.

    Raises InputError for a folder that doesn't exist, or has a choice that this package has too.
    """
    folder = Path(config_dir).expanduser()
    if not config_dir or not folder.is_dir():
        raise InputError(f"--config-dir={config_dir}: no such folder")
    os.environ[_VARIABLE] = str(folder.absolute())
    folders()
    import_from(os.getcwd())


def import_from(folder: str) -> None:
    """Makes modules in a folder importable, after all others, if files from outside are used."""
    if _typed() and folder not in sys.path:
        sys.path.append(folder)


def folders() -> tuple[Path, ...]:
    """The folders of configuration files, which have no file in common. Raises InputError as `use` does."""
    return (CONF, *(_checked(Path(folder)) for folder in _typed()))


def choices(group: str) -> dict[str, Path]:
    """The files of a group of choices, by name."""
    paths = [path for folder in folders() for path in (folder / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


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
    files = [path for group in ("data", "loss", "model", "routing") for path in (CONF / group).glob("*.yaml")]
    return frozenset(named for path in files for named in _named(path))


def _named(path: Path) -> list[tuple[str, str]]:
    """The name and the class of each component in a file; a network's without a class has that of its first default."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    nodes = [content, *(node for node in content.values() if isinstance(node, dict))]
    named = [(node["name"], node["_target_"]) for node in nodes if {"name", "_target_"} <= node.keys()]
    if named or path.parent.name != "model":
        return named
    return [(path.stem, target) for _, target in _named(path.with_name(f"{content['defaults'][0]}.yaml"))]


def as_overrides() -> list[str]:
    """What was typed, as overrides: where Hydra searches for files, and the environment of a launcher's jobs."""
    search = [f"hydra.searchpath=[{_quoted(f'file://{folder}')}]" for folder in _typed()]
    return [*search, *(f"++hydra.job.env_set.{_VARIABLE}={_quoted(folder)}" for folder in _typed())]


def as_option(path: Callable[[str], str]) -> list[str]:
    """What was typed, for a command: `path` is os.path.relpath in the working folder, portable_path in a record."""
    return [f"--config-dir={path(folder)}" for folder in _typed()]


def portable_path(path: str) -> str:
    """A path for a record: relative to the working folder; outside of it only its last part."""
    whole, here = Path(os.path.abspath(os.path.expanduser(path))), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name


def _typed() -> list[str]:
    """The folder of --config-dir, or none."""
    return [folder for folder in [os.environ.get(_VARIABLE)] if folder]


def _quoted(value: str) -> str:
    return QuotedString(value, Quote.single).with_quotes()


@cache
def _checked(folder: Path) -> Path:
    """The folder itself.

    Raises InputError for a file that would not be read, for one that says how Hydra logs or what it calls, and for a
    data set of another name.
    """
    for path in sorted([*folder.glob("*/*.yaml"), *folder.glob("*/*/*.yaml")]):
        group, name = str(path.parent.relative_to(folder)), path.stem
        if group.partition("/")[0] == "hydra" and group != "hydra/launcher":
            raise InputError(f"{path}: of Hydra's own groups, only hydra/launcher can have files from outside")
        if (CONF / group / path.name).exists():
            raise InputError(f"{path}: capsexp has a {group}={name} of its own; choose another name")
        try:
            with opened(path, "rb") as stream:
                text = io.TextIOWrapper(stream, encoding="utf-8").read()
            events = list(yaml.parse(text))
        except (UnicodeDecodeError, yaml.reader.ReaderError) as error:  # have no line
            raise InputError(f"{path}: can't be read: {first_line(error)}") from None
        except yaml.YAMLError:  # of which Hydra says where it is
            continue
        if any(isinstance(event, AliasEvent) for event in events):  # those of aliases can stand for 10 ** 8 values
            raise InputError(f"{path}: has an alias (*name); ${{key}} stands for the value of a key")
        begun = (isinstance(at, CollectionStartEvent) - isinstance(at, CollectionEndEvent) for at in events)
        if max(accumulate(begun)) > _MOST_NESTED:
            raise InputError(f"{path}: has groups or lists more than {_MOST_NESTED} deep in each other")
        named = rf"^name: *(['\"]?){re.escape(name)}\1 *(#.*)?$"
        if group == "data" and not re.search(named, text, re.MULTILINE):
            raise InputError(f"{path}: name: must be {name}, as the file's")
    return folder
