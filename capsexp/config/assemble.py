"""Composes configurations as Hydra does, in milliseconds: studies have hundreds of command lines.

A file is read once a process, and a combination of choices merged once. The rules are Hydra's:

- config.yaml lists the groups, each with a choice, or a list of choices. A file of a group sets keys of that group or,
  as models do, of the root (`# @package _global_`). It can include files of its folder, and choose for other groups
  (`override /optim: x`), if these stand before its own in config.yaml.
- A choice on the command line takes precedence over `override`, in an including file over an included one, and these
  over config.yaml's choice.
- The first of several folders that has a file counts.
- Files are merged in config.yaml's order, itself last; then the command line's single values are set.

Anything else raises an error of any kind: `compose` then leaves the command line, or the error's message, to Hydra.
"""

import pickle
import re
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

Choice = str | tuple[str, ...]


def assembled(folders: tuple[Path, ...], overrides: list[str]) -> DictConfig:
    """What a command line makes of the files in some folders; raises an error where it takes Hydra."""
    words = [_parsed(override) for override in overrides]
    choices = {word.key_or_group: _choice(word.value()) for word in words if (folders[0] / word.key_or_group).is_dir()}
    values = [word for word in words if word.key_or_group not in choices]
    if len(choices) + len(values) < len(words):
        raise ValueError("a group is chosen twice")
    config: DictConfig = pickle.loads(_merged(folders, tuple(choices.items())))
    for value in values:
        OmegaConf.update(config, value.key_or_group, value.value(), merge=True)
    return config


def _choice(value: Any) -> Choice:
    return tuple(map(str, value)) if isinstance(value, list) else str(value)


@cache
def _parsed(override: str) -> Override:
    word = OverridesParser.create().parse_override(override)
    if word.type is not OverrideType.CHANGE or word.is_sweep_override() or word.package or word.is_hydra_override():
        raise ValueError(f"{override}: more than a choice or a value")
    return word


@cache
def _merged(folders: tuple[Path, ...], typed: tuple[tuple[str, Choice], ...]) -> bytes:
    """The merged files of a combination of choices; pickled, so that callers can't change what is in the cache."""
    own, lines = read(folders[0] / "config.yaml")
    groups: dict[str, Choice] = {group: _choice(choice) for line in lines[:-1] for group, choice in line.items()}
    chosen, layers = dict(typed), [own]
    if lines[-1] != "_self_" or not chosen.keys() <= groups.keys():
        raise ValueError("not a choice for each group, and then the file itself")
    while groups:
        group, choice = groups.popitem()  # the last one: models choose for the groups before them
        choice = chosen.get(group, choice)
        for name in [choice] if isinstance(choice, str) else reversed(choice):
            content, brought = _file(folders, group, name)
            if not brought.keys() <= groups.keys():
                raise ValueError(f"{group}: chooses for a group that is composed already, or not at all")
            chosen = {**brought, **chosen}
            layers.insert(0, content)
    config = OmegaConf.merge(*layers)
    OmegaConf.set_struct(config, True)
    return pickle.dumps(config)


@cache
def _file(folders: tuple[Path, ...], group: str, choice: str) -> tuple[DictConfig, dict[str, str]]:
    """What a choice sets, from the root of the configuration on, and its choices for other groups."""
    path = next(path for folder in folders if (path := folder / group / f"{choice}.yaml").exists())
    own, lines = read(path)
    packages = re.findall(r"@package[ :]*(\S*)", path.read_text(encoding="utf-8"))
    if not re.fullmatch(r"[\w-]+", choice) or packages not in ([], ["_global_"]) or "_self_" in lines[:-1]:
        raise ValueError(f"{path}: not a file of the group that goes on top of those that it includes")
    layers: list[DictConfig] = []
    brought: dict[str, str] = {}
    overrides: dict[str, str] = {}
    for line in lines:
        if isinstance(line, dict):
            overrides |= {group.partition("override /")[2]: choice for group, choice in line.items()}
        elif line != "_self_":
            content, theirs = _file(folders, group, line)
            layers.append(content)
            brought |= theirs
    merged = OmegaConf.merge(*layers, own if packages else {group: own})
    assert isinstance(merged, DictConfig)
    return merged, brought | overrides


@cache
def read(path: Path) -> tuple[DictConfig, list[Any]]:
    """A file without what is about Hydra itself, and its defaults list."""
    content = OmegaConf.load(path)
    assert isinstance(content, DictConfig)
    content.pop("hydra", None)
    lines = OmegaConf.to_container(content.pop("defaults", OmegaConf.create([])))
    assert isinstance(lines, list)
    return content, [line for line in lines if not str(line).startswith("{'override hydra/")]
