"""A run's key: a hash of what can change its numbers, and of nothing else.

Paths, devices, workers, launchers and logging are left out, and so are options at their defaults, so that an option
added later moves no old key.
"""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from capsexp.config.checks import NAME, TARGET, Component, parameters
from capsexp.config.schema import Config, training_preprocess
from capsexp.config.searchpath import named_classes, portable_path

#: Former defaults, which keys leave out as those of older records do.
_FORMER_DEFAULTS = {"capsexp.nn.losses.SpreadLoss": {"steps": 136_850}}  # all of tsai's training

#: Callbacks that change no training; one's own may.
_OBSERVING = ("LearningRateMonitor", "DeviceStatsMonitor", "ModelCheckpoint")

Json = dict[str, Any]


def identity(config: Config, precision: str, note: str | None, unlisted: str | None = None) -> Json:
    """What can change a run's numbers.

    Args:
        precision: as resolved for the device, bf16 or float32.
        note: what the data files are, where they aren't the published ones.
        unlisted: the checksum of data files that conf/ doesn't list: anybody's note may stand for other files, too.
    """
    data: Json = {name: getattr(config.data, name) for name in ("name", "size", "channels", "classes")}
    data |= {"note": note, "reader": _component(config.data.reader)}
    if unlisted is not None:
        data["checksum"] = unlisted
    if config.data.synthesis is not None:
        data["synthesis"] = _component(config.data.synthesis)
    if config.preprocess.normalize:
        data |= {"mean": config.data.mean, "std": config.data.std}
    observing = {f"pytorch_lightning.callbacks.{name}" for name in _OBSERVING}
    changing = [callback for callback in config.callbacks.values() if callback[TARGET] not in observing]
    return {
        "data": data,
        "model": _component(config.model),
        "routing": _component(config.routing),
        "loss": _component(config.loss),
        "attention": _section(config.attention),
        "reconstruction": _section(config.reconstruction) if config.reconstruction.enabled else None,
        "preprocess": _section(training_preprocess(config)),
        "optim": _section(config.optim),
        "budget": _section(config.budget),
        "precision": precision,
        "protocol": config.protocol,
        "seed": config.seed,
        **({"callbacks": changing} if changing else {}),
    }


def key_of(identity: Json) -> str:
    """16 hexadecimal digits: the run's key."""
    return hashlib.sha256(canonical(identity)).hexdigest()[:16]


def name_of(identity: Json) -> str:
    """`model-data-key`: the name of a run's record and of its folder."""
    return f"{identity['model'][NAME]}-{identity['data'][NAME]}-{key_of(identity)}"


def stored_config(config: Config) -> Json:
    """The configuration as records hold it: without paths and what else is no part of a run.

    The names of classes stand in conf/, but for those of somebody's own images.
    """
    whole = dataclasses.asdict(config)
    for part in ("paths", "rerun", "logger", "callbacks"):
        del whole[part]
    for part in ("root", "download", "versions", "path", *([] if config.data.path else ["class_names"])):
        del whole["data"][part]
    if config.data.labels and Path(config.data.labels).is_absolute():
        whole["data"]["labels"] = portable_path(config.data.labels)
    whole |= {part: getattr(config, part).node for part in ("model", "routing", "loss")}
    whole["attention"]["first"] = config.attention.first and config.attention.first.node
    synthesis = config.data.synthesis
    whole["data"] |= {"reader": config.data.reader.node, "synthesis": synthesis and synthesis.node}
    return whole


def key_in(path: Path) -> str:
    """The key, or its beginning, in the name of a run's record, folder or curves, or alone; nothing in another name."""
    last = re.split("[-_]", path.name.removesuffix(".json"))[-1]
    return last if re.fullmatch("[0-9a-f]{4,16}", last) else ""


def canonical(content: Json) -> bytes:
    """The one text that a digest is of, whatever the order of the keys."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _section(section: Any) -> Json:
    """A dataclass's values, without those at a default; of a component also the class, which reading needs."""
    fields, none = dataclasses.fields(section), dataclasses.MISSING
    defaults = {f.name: f.default if f.default_factory is none else f.default_factory() for f in fields}
    values = {name: value for name, default in defaults.items() if (value := getattr(section, name)) != default}
    return {
        name: {TARGET: value.target, **_component(value)} if isinstance(value, Component) else value
        for name, value in values.items()
    }


def _component(component: Component) -> Json:
    """A component's name and arguments, without those at a default; with the path of a class from outside."""
    defaults = {key: parameter.default for key, parameter in parameters(component.cls).items()}
    defaults |= _FORMER_DEFAULTS.get(component.target, {})
    path = {} if (component.name, component.target) in named_classes() else {TARGET: component.target}
    changed = {key: value for key, value in component.arguments.items() if value != defaults[key]}
    return {NAME: component.name, **path, **changed}
