"""Configurations from command lines, and the commands that repeat them."""

import os
import pickle
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, OverrideType, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from capsexp.config import searchpath
from capsexp.config.by_hydra import by_hydra, to_containers
from capsexp.config.errors import explained
from capsexp.config.searchpath import CONF
from capsexp.errors import InputError, printable, raise_interruption

#: Beginnings of words that a run's command does without: where and how it computes, and where it writes.
_LOCAL = (
    *("trainer=", "trainer.accelerator=", "trainer.progress=", "trainer.threads=", "hydra", "logger", "rerun="),
    *("paths.", "data.root=", "data.download="),
)

#: Groups of which several can be chosen, or none: logger=[tensorboard,csv].
SEVERAL = ("logger", "callbacks")

#: Keys whose value is one path, whatever characters it has.
_PATHS = ("data.root", "data.path", "data.labels", "data.group", "paths.results", "paths.logs")


def for_hydra(word: str) -> str:
    """A word of a command line as Hydra can read it: ~ expanded, quotes around a value that needs them.

    Raises InputError for what Hydra would misunderstand.
    """
    key, equals, value = word.partition("=")
    if not equals or key.startswith("-"):
        return word
    if not key:
        raise InputError(f"{word}: not of the form key=value")
    if value.startswith("~"):
        value = os.path.expanduser(value)
    if value.startswith("~") and key in _PATHS:
        raise InputError(f"{word}: no such user")
    parsed = _parsed(f"{key}={value}")
    if parsed is not None and key == "data.path" and _is_several(value, parsed):
        return f"{key}={value}"
    if parsed is None or (key in _PATHS and not isinstance(parsed.value(), str | None)):
        quoted = f"{key}={QuotedString(value, Quote.single).with_quotes()}"
        return quoted if _parsed(quoted) else word
    group, _, rest = key.lstrip("+~").partition(".")
    if rest == "name" and group in ("data", "loss", "model", "routing"):
        raise InputError(f"{word}: a name belongs to its file; choose one with {group}={value}")
    if (group, rest) in (("data", "reader.name"), ("data", "synthesis.name")):
        raise InputError(f"{word}: a name belongs to its file; choose one with data=NAME")
    if (group, rest) == ("model", "width"):
        raise InputError(f"{word}: budget.width={value} sets it")
    if group == "study":
        raise InputError(f"{word}: capsexp reproduce {value} runs a study")
    _check_choice(parsed, word)
    return f"{key}={value}"


def _is_several(typed: str, parsed: Override) -> bool:
    """Whether a path is a sweep over several: choice(…), or A,B where both are there and nothing of the whole name."""
    swept = parsed.value()
    if not isinstance(swept, ChoiceSweep) or os.path.exists(typed):
        return False
    paths = [path.text if isinstance(path, QuotedString) else str(path) for path in swept.list]
    return not swept.simple_form or all(map(os.path.exists, paths))


def _check_choice(parsed: Override, word: str) -> None:
    """Raises InputError for a group with no choice."""
    group, value = parsed.key_or_group, parsed.value()
    if parsed.is_delete() or not ((CONF / group).is_dir() or group.startswith("hydra/")):
        return
    if group in SEVERAL and isinstance(value, list) and all(isinstance(choice, str) for choice in value):
        return
    choices = [value] if not parsed.is_sweep_override() else value.list if isinstance(value, ChoiceSweep) else []
    if not all(isinstance(choice, str) and "/" not in choice for choice in choices):
        names = searchpath.choices(group)
        raise InputError(f"{word}: must be one of {', '.join(names)}" if names else f"{word}: must be one name")


@cache
def _parsed(word: str) -> Override | None:
    """What Hydra's parser makes of a word; None for one that it can't read."""
    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, ValueError, RecursionError):  # ValueError: a number of thousands of digits
        return None


def parsed(word: str) -> Override:
    """What Hydra's parser makes of a word; raises InputError for one that it can't read."""
    if (override := _parsed(word)) is None:
        raise InputError(f"{word}: not of the form key=value")
    return override


def composed(overrides: list[str]) -> dict[str, Any]:
    """The configuration of a command line, resolved, as plain containers; raises InputError with one line.

    Hydra composes each set of choices that can change other groups once; other choices and values are set on top. The
    430 rows of all studies need 16 compositions, of 0.11 s each. Words that add or delete keys are composed by Hydra,
    and so is a group that is chosen twice; beside values of their groups, so is the whole command line.
    """
    try:
        words = {text: word for text in overrides if (word := _parsed(text)) and _is_single(word)}
        others = {re.split(r"[.=@]", text.lstrip("+~"))[0] for text in overrides if text not in words}
        choices = [words[text] for text in overrides if text in words and (CONF / words[text].key_or_group).is_dir()]
        values = [words[text] for text in overrides if text in words and words[text] not in choices]
        if any(word.key_or_group.partition(".")[0] in others for word in values):
            return to_containers(by_hydra(overrides))
        groups = [*others, *(word.key_or_group for word in choices)]
        files = {word.key_or_group: searchpath.choices(word.key_or_group).get(str(word.value())) for word in choices}
        single = {group: file for group, file in files.items() if groups.count(group) == 1 and group not in SEVERAL}
        if any(file and CONF not in file.parents for file in files.values()):
            single = {}  # such a file may set keys of any group: Hydra knows which value counts
        nodes = {group: node for group, file in single.items() if file and (node := _file_node(file))}
        set_on_top = [*values, *(word for word in choices if word.key_or_group in nodes)]
        rest = tuple(text for text in overrides if words.get(text) not in set_on_top)
        config = pickle.loads(_cached(searchpath.folders(), rest))
        config.update({group: pickle.loads(node) for group, node in nodes.items()})
        try:
            for value in values:
                OmegaConf.update(config, value.key_or_group, value.value(), merge=True)
        except OmegaConfBaseException as error:
            raise_interruption(error)
            config = by_hydra(overrides)  # raises an error that names the key
        return to_containers(config)
    except Exception as error:
        raise_interruption(error)
        raise explained(error, overrides) from error


@cache
def _file_node(path: Path) -> bytes | None:
    """What a file of this package sets in its group, pickled; None for one that can change other groups."""
    if "@package" in path.read_text(encoding="utf-8"):
        return None
    own, beside = OmegaConf.load(path), {file.stem: file for file in path.parent.glob("*.yaml")}
    assert isinstance(own, DictConfig)
    *first, last = own.pop("defaults", ["_self_"])  # a file begins with others of its group, or is composed by Hydra
    if last != "_self_" or not all(other in beside for other in first):
        return None
    parts = [part for other in first if (part := _file_node(beside[other]))]
    return pickle.dumps(OmegaConf.merge(*map(pickle.loads, parts), own)) if len(parts) == len(first) else None


def described(name: str) -> dict[str, Any]:
    """What conf/data says of a data set; nothing for one that is in no folder of configurations any more."""
    return _described(searchpath.folders(), name)


@cache
def _described(folders: tuple[Path, ...], name: str) -> dict[str, Any]:
    return composed([f"data={name}"])["data"] if name in searchpath.choices("data") else {}


def _is_single(word: Override) -> bool:
    """Whether a word sets one key to one value, or makes one choice, and adds nothing."""
    single = word.type is OverrideType.CHANGE and not word.package
    return single and not word.is_sweep_override() and not word.is_hydra_override()


@cache
def _cached(folders: tuple[Path, ...], choices: tuple[str, ...]) -> bytes:
    """The configuration of some choices in these folders, pickled: callers can't change what is in the cache."""
    return pickle.dumps(by_hydra(choices))


def command_here(*words: str, program: str = "capsexp") -> str:
    """A command line with these words, to be typed in the working folder."""
    return shlex.join([program, *searchpath.as_option(os.path.relpath), *words])


def command(overrides: Sequence[str], precision: str) -> str:
    """The command that repeats a run anywhere, in its precision: `auto` may be another one there."""
    words = [word for word in portable(overrides) if word != "trainer.precision=auto"]
    if not any(word.startswith("trainer.precision=") for word in words):
        words.append(f"trainer.precision={precision}")
    return shlex.join(["python", "-m", "capsexp", *searchpath.as_option(searchpath.portable_path), *words])


def portable(overrides: Sequence[str]) -> list[str]:
    """The overrides that repeat a run anywhere: without folders, device, progress display and launchers."""
    kept = [word for word in overrides if not word.lstrip("+~").startswith(_LOCAL)]
    for place, word in enumerate(kept):
        if matched := re.match(r"\+*(data\.(path|labels))=.", word):
            kept[place] = for_hydra(f"{matched[1]}={printable(searchpath.portable_path(str(parsed(word).value())))}")
    return kept


def distinguishing(commands: Sequence[Sequence[str]]) -> list[str]:
    """Of each of several command lines, the words that not all of them have."""
    common = set[str].intersection(*map(set, commands)) if len(commands) > 1 else set()
    return [" ".join(word for word in words if word not in common) for words in commands]


def varied(commands: Sequence[Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Of several command lines: the keys in which they differ, each with its value in each; and the words of all."""
    typed = [{key: value for key, _, value in (word.partition("=") for word in words)} for words in commands]
    keys = dict.fromkeys(key for pairs in typed for key in pairs)
    values = {key: [pairs.get(key, "") for pairs in typed] for key in keys}
    columns = {key: of_key for key, of_key in values.items() if len(set(of_key)) > 1}
    return columns, [f"{key}={of_key[0]}" for key, of_key in values.items() if key not in columns]
