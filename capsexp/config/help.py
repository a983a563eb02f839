"""The text of --help: every key with its value and the comment that stands beside it in conf/, the only such text.

A key that has none in the chosen file has that of a file which this includes, or of another one of its group.
"""

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from capsexp.config import searchpath
from capsexp.config.checks import NAME, TARGET, shown
from capsexp.config.compose import composed

_NARROWEST, _WIDEST, _COLUMN = 60, 100, 34

Comments = dict[str, str]  # by key, from the root of the configuration on


def page(overrides: Sequence[str]) -> str:
    """What --help prints: of the typed choices, as in `--help model=da_capsnet`, or else of everything."""
    config = composed(list(overrides))
    chosen = [
        "\n".join(_choice(group, name, config))
        for group, _, names in (word.partition("=") for word in overrides)
        for name in re.findall(r"[\w-]+", names)
        if group in _groups() and name in searchpath.choices(group)
    ]
    if chosen:
        return "\n\n".join(chosen)
    texts = OmegaConf.load(searchpath.CONF / "help.yaml")
    sections = ["\n".join(_group(group, config)) for group in [*_groups(), ""]]
    return "\n\n".join([texts.header.strip(), *sections, texts.footer.strip()])


def _choice(group: str, name: str, config: dict[str, Any]) -> Iterator[str]:
    """A choice: its description, what it chooses for other groups, its keys."""
    path = searchpath.choices(group)[name]
    yield f"{group}={name}"
    yield from _filled(description(path), "  ")
    brought: dict[str, Any] = {}
    for line in (line for one in _included(group, name) for line in _defaults(searchpath.choices(group)[one])):
        brought |= line | brought if isinstance(line, dict) else {}
    yield from (f"  brings {key.removeprefix('override /')}={value}" for key, value in brought.items())
    yield from _keys(config.get(group, {}), group, comments(group, name))


def _group(group: str, config: dict[str, Any]) -> Iterator[str]:
    """A group with its choices and the keys of the one that is chosen; "": the keys outside of groups."""
    if not group:
        yield "Keys of no group"
        rest = {key: value for key, value in config.items() if key not in _groups()}
        yield from _keys(rest, "", _of_file(searchpath.CONF / "config.yaml", ""))
        return
    chosen = _groups()[group]
    yield from _filled(f"{group}=  {', '.join(searchpath.choices(group))}", "    ", first="")
    yield from _keys(config.get(group, {}), group, comments(group, chosen if isinstance(chosen, str) else None))


def _keys(node: dict[str, Any], where: str, texts: Comments) -> Iterator[str]:
    """A line for each key; a key with a comment of its own is one line, also if it holds keys."""
    for key, value in node.items():
        path = f"{where}.{key}" if where else key
        if key == TARGET or (key == NAME and path not in texts):
            continue
        if isinstance(value, dict) and path not in texts:
            yield from _keys(value, path, texts)
        else:
            yield from _filled(texts.get(path, ""), " " * _COLUMN, first=f"  {path}={_shown(value)}".ljust(_COLUMN - 1))


def _shown(value: Any) -> str:
    """A value as it is typed, a long list without its end."""
    if isinstance(value, dict):
        return str(value.get(NAME, "{...}"))
    if isinstance(value, list):
        text = f"[{','.join(map(_shown, value))}]"
        return text if len(text) <= _COLUMN else f"{text[: _COLUMN - 4]}...]"
    return shown(value)


def _filled(text: str, indent: str, first: str | None = None) -> list[str]:
    first = indent if first is None else f"{first} " if first else ""
    width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))  # 80 in a pipe
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=indent) or [first.rstrip()]


def comments(group: str, name: str | None) -> Comments:
    """The comments on a choice's keys: its file's, then those of the files that it includes, then of any other."""
    files, usual = searchpath.choices(group), _groups()[group]
    first = [*(_included(group, name) if name else []), usual if isinstance(usual, str) else None]
    texts: Comments = {}
    for choice in dict.fromkeys(choice for choice in [*first, *files] if choice in files):
        texts = _of_file(files[choice], group) | texts
    return texts


def _included(group: str, name: str) -> list[str]:
    """A choice, and the files of its group that it includes, directly or not."""
    files = searchpath.choices(group)
    lines = [line for line in _defaults(files[name]) if isinstance(line, str) and line in files]
    return [name, *(one for line in lines for one in _included(group, line))]


@cache
def _of_file(path: Path, group: str) -> Comments:
    """The comments in a YAML file, beside its keys and continued on the lines below."""
    text = path.read_text(encoding="utf-8")
    parents = [(-1, "" if "@package _global_" in text else group)]
    texts: Comments = {}
    key = ""
    for line in text.splitlines():
        if matched := re.fullmatch(r"( *)([\w-]+):(?: .*?)??(?:\s+# (.*))?", line):
            indent, name, comment = len(matched[1]), matched[2], matched[3]
            parents = [(depth, parent) for depth, parent in parents if depth < indent]
            key = f"{parents[-1][1]}.{name}".lstrip(".")
            parents.append((indent, key))
            if comment:
                texts[key] = comment
        elif (more := re.fullmatch(r" *# (.*)", line)) and key in texts:
            texts[key] += f" {more[1]}"
        else:
            key = ""
    return texts


def description(path: Path) -> str:
    """The comment at the head of a YAML file."""
    head = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
    lines = head[0].splitlines() if head else []
    return " ".join(line.lstrip("# ") for line in lines if "@package" not in line)


@cache
def _groups() -> dict[str, Any]:
    """The groups in config.yaml's order, each with the choice there."""
    lines = _defaults(searchpath.CONF / "config.yaml")
    return {group: choice for line in lines if isinstance(line, dict) for group, choice in line.items()}


@cache
def _defaults(path: Path) -> list[Any]:
    """A file's defaults list, without what is about Hydra itself."""
    content = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(content, dict)
    return [line for line in content.get("defaults", []) if not str(line).startswith("{'override hydra/")]
