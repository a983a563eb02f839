"""Checks plain values, as YAML gives them, against type annotations.

A schema is a dataclass, or the signature of a component's constructor: a configuration sets its keyword-only
parameters, the program those before them. An error is one line with the key, the value, what is allowed, and for a
misspelt key the nearest name.
"""

import dataclasses
import difflib
import importlib
import inspect
import operator
import re
import sys
import types
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from capsexp.config import searchpath
from capsexp.errors import InputError, first_line, located, raise_interruption

TARGET, NAME = "_target_", "name"

#: Names of PyTorch Lightning's that users know, and what does the same here.
_OF_LIGHTNING = {
    "max_epochs": "budget.epochs",
    "max_steps": "budget.steps",
    "limit_train_batches": "budget.train_images",
    "limit_test_batches": "budget.test_images",
    "devices": "torchrun --nproc-per-node",
    "gradient_clip_val": "optim.gradient_clip",
    "ckpt_path": "the same command, which continues an interrupted run",
}

OWN_FILES = "--config-dir=DIR adds a folder of your own files"


@dataclasses.dataclass(frozen=True)
class Component:
    """A class that a configuration chooses, and the arguments that it is made with."""

    name: str
    target: str  # the class, dotted; under `_target_`
    arguments: dict[str, Any]

    @cached_property
    def cls(self) -> Any:
        """The class, imported; raises what its module raises, or ValueError or AttributeError if there is none."""
        module, _, name = self.target.rpartition(".")
        return getattr(importlib.import_module(module), name)

    @property
    def iterations(self) -> int | None:
        """A routing's number of iterations; None of a component without."""
        return self.arguments.get("iterations")

    @property
    def node(self) -> dict[str, Any]:
        """As in a configuration."""
        return {NAME: self.name, TARGET: self.target, **self.arguments}

    def make(self, *positional: Any) -> Any:
        """An instance, from these arguments and the configured ones."""
        return self.cls(*positional, **self.arguments)


@dataclasses.dataclass(frozen=True)
class Matches:
    r"""The form of a text, as in `Annotated[str, Matches(r"\d+", "digits")]`: regular expression, and in words."""

    pattern: str
    words: str


#: What the class of a component is derived from, by the component's key.
BASES = {
    "model": "torch.nn.Module",
    "routing": "capsexp.nn.Routing",
    "attention.first": "torch.nn.Module",
    "loss": "torch.nn.Module",
    "data.reader": "capsexp.data.reader.Reader",
    "data.synthesis": "capsexp.data.synthesis.Synthesis",
}

_LARGEST = 10**12  # of whole numbers: no count is so large, and libraries fail at 64 bits

_LISTS: tuple[Any, ...] = (list, Sequence)

#: A name in names of files.
Name = Annotated[str, Matches(r"[A-Za-z0-9][\w-]{0,63}", "a name of at most 64 letters, digits, - and _")]

#: The bounds of annotated_types, as in `Annotated[float, Ge(0), Lt(1)]`: attribute and operator, and in words.
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def typed_key(word: str) -> str:
    """The key of an override."""
    return word.partition("=")[0].lstrip("+~")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` with the most similar name in small letters, else one that begins so, or nothing."""
    written = {name.lower(): name for name in names}
    similar = difflib.get_close_matches(name.lower(), list(written), n=1, cutoff=0.6)
    similar += [other for other in written if name and other.startswith(f"{name.lower()}_")]
    return f"; did you mean {written[similar[0]]}?" if similar else ""


def unknown_name(name: str, what: str, names: Iterable[str]) -> InputError:
    """The error for a name of nothing that is there."""
    return InputError(f"{name}: no such {what}{did_you_mean(name, names)} (there are {', '.join(names)})")


def unknown_key(key: str, allowed: Iterable[str], where: str) -> InputError:
    """The error for a key that `where` does not have."""
    names = sorted(allowed)
    prefix = f"{where}." if where else ""
    whole = f"{where or 'the configuration'} has {', '.join(names) or 'none'}"
    hint = f"; here it is {_OF_LIGHTNING[key]}" if key in _OF_LIGHTNING else did_you_mean(key, names)
    return InputError(f"{prefix}{key}: no such key{hint} ({whole})")


def check_dataclass(schema: type, node: object, where: str = "") -> Any:
    """An instance of the dataclass `schema` made from a mapping; raises InputError."""
    return schema(**_check_mapping(node, schema, where))


def check_component(component: Component, key: str) -> Component:
    """`component` with its arguments checked against the signature of its class, which is imported.

    Raises InputError for a class that no file of the group names, without importing it, for one that can't be imported
    or isn't derived from the class in BASES, and for arguments that it doesn't take.
    """
    check_target(component.target, key)
    where = f"{key}.{TARGET}={component.target}"
    try:
        cls = component.cls
    except Exception as error:  # the module may be the user's
        raise_interruption(error)
        raise InputError(f"{where}: can't be imported: {located(error)}") from error
    if not (isinstance(cls, type) and issubclass(cls, Component("", BASES[key], {}).cls)):
        raise InputError(f"{where}: must be a class derived from {BASES[key]}")
    if unwritten := getattr(cls, "__abstractmethods__", None):
        raise InputError(f"{where}: must define {', '.join(sorted(unwritten))}")
    try:
        _arguments(cls)
    except (TypeError, ValueError, NameError) as error:
        raise InputError(f"{where}: {first_line(error)}") from error
    return dataclasses.replace(component, arguments=_check_mapping(component.arguments, cls, key))


def check_target(target: object, key: str) -> None:
    """Raises InputError for a class that no file of the key's group names."""
    group = key.partition(".")[0]
    if str(target) not in searchpath.classes(group):
        raise InputError(f"{key}.{TARGET}={shown(target)}: no file of conf/{group} names this class; {OWN_FILES}")


def check_value(value: object, annotation: Any, key: str) -> Any:
    """`value`, normalised to `annotation` (an int given for a float becomes one); raises InputError."""
    try:
        return _fitted(value, annotation, key)
    except ValueError:
        allowed = describe(annotation)
        if type(value) is int and abs(value) > _LARGEST and "at most" not in allowed:
            allowed = f"at most {_LARGEST:,}"
        raise InputError(f"{key}={shown(value)}: must be {allowed}") from None


def shown(value: object) -> str:
    """A value as it is typed."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def describe(annotation: Any) -> str:
    """What an annotation allows, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if forms := _forms(annotation):
            return forms[0].words
        bounds = " and ".join(f"{_BOUNDS[name]} {limit:,}" for name, limit in _bounds(annotation))
        return f"{describe(arguments[0])} {bounds}".strip()
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(kind) for kind in sorted(arguments, key=lambda kind: get_origin(kind) in _LISTS))
    if origin in _LISTS:
        return f"a list, each {describe(arguments[0])}"
    if origin is dict or dataclasses.is_dataclass(annotation):
        return "a group of keys"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    return words.get(annotation, str(annotation))


def _bounds(annotation: Any) -> list[tuple[str, float]]:
    """Operator and limit of each bound of an Annotated type."""
    marks = get_args(annotation)[1:]
    return [(name, limit) for mark in marks for name in _BOUNDS if (limit := getattr(mark, name, None)) is not None]


def _forms(annotation: Any) -> list[Matches]:
    return [mark for mark in get_args(annotation)[1:] if isinstance(mark, Matches)]


def _fitted(value: Any, annotation: Any, key: str) -> Any:
    """As `check_value`, but that it raises ValueError where `value` itself is wrong and nothing inside of it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any or (value is None and type(None) in arguments):
        return value
    if annotation is Component:
        return _component(value, key)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return check_dataclass(annotation, value, key)
    if origin is Annotated:
        fitted = _fitted(value, arguments[0], key)
        formed = all(re.fullmatch(form.pattern, fitted, re.ASCII | re.DOTALL) for form in _forms(annotation))
        if formed and all(getattr(operator, name)(fitted, limit) for name, limit in _bounds(annotation)):
            return fitted
    elif origin is Literal and any(value == choice and type(value) is type(choice) for choice in arguments):
        return value
    elif origin in (Union, types.UnionType):
        for kind in arguments:
            with suppress(ValueError):
                return _fitted(value, kind, key)
    elif origin in _LISTS and isinstance(value, list):
        return [check_value(item, arguments[0], f"{key}[{index}]") for index, item in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        free = arguments[1] is Any  # nothing to check: records hold thousands of epochs
        return {
            str(name): item if free else check_value(item, arguments[1], f"{key}.{name}")
            for name, item in value.items()
        }
    elif annotation is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    elif annotation is not float and type(value) is annotation and (annotation is not int or abs(value) <= _LARGEST):
        return value
    raise ValueError


def _check_mapping(node: object, target: Any, where: str) -> dict[str, Any]:
    """Arguments of `target`, by name."""
    hints, optional = _arguments(target)
    if not isinstance(node, dict):
        given = f"{where}={shown(node)}" if where else shown(node)
        raise InputError(f"{given}: must be a group of keys ({', '.join(sorted(hints))})")
    for key in node:
        if key not in hints:
            raise unknown_key(str(key), hints, where)
    prefix = f"{where}." if where else ""
    for key in hints:
        if key not in node and key not in optional:
            raise InputError(f"{prefix}{key}: missing; must be {describe(hints[key])}")
    return {key: check_value(value, hints[key], prefix + str(key)) for key, value in node.items()}


@cache
def _arguments(target: Any) -> tuple[dict[str, Any], set[str]]:
    """The annotations of what a configuration may set, and which of these have a default."""
    schema = "__dataclass_fields__" in vars(target)  # is_dataclass is true for what is derived from one, too
    given = getattr(target, "of_layer", ())  # a routing's, which imports torch
    settable = [p for p in parameters(target).values() if schema or (p.kind is p.KEYWORD_ONLY and p.name not in given)]
    if bare := [p.name for p in settable if p.annotation is p.empty]:
        raise TypeError(f"its argument {bare[0]} must have an annotation, such as {bare[0]}: int")
    return {p.name: p.annotation for p in settable}, {p.name for p in settable if p.default is not p.empty}


@cache
def parameters(target: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a class's constructor; where it takes **keys, those of the class it is derived from, too.

    Annotations are evaluated; raises what that raises, NameError for example.
    """
    by_name: dict[str, inspect.Parameter] = {}
    for cls in (base for base in target.__mro__ if "__init__" in vars(base)):
        own = inspect.signature(cls).parameters.values()
        hints = get_type_hints(cls.__init__, include_extras=True)
        by_name = {p.name: p.replace(annotation=hints.get(p.name, p.empty)) for p in own} | by_name
        if all(p.kind is not p.VAR_KEYWORD for p in own):
            break
    return by_name


def _component(value: object, key: str) -> Component:
    """A component that isn't checked against its class yet."""
    if not isinstance(value, dict):
        wanted = f"a group of keys with {NAME} and {TARGET}; choose one with {key.partition('.')[0]}=…"
        raise InputError(f"{key}={shown(value)}: must be {wanted}")
    for needed, what in ((NAME, "the name of its file"), (TARGET, "its class, dotted")):
        if needed not in value:
            raise InputError(f"{key}.{needed}: missing; must be {what}")
    arguments = {str(name): argument for name, argument in value.items() if name not in (NAME, TARGET)}
    target = check_value(value[TARGET], str, f"{key}.{TARGET}")
    return Component(check_value(value[NAME], Name, f"{key}.{NAME}"), target, arguments)
