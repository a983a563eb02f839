"""Hydra's own composition of a command line."""

from collections.abc import Sequence
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from capsexp.config import searchpath
from capsexp.config.searchpath import CONF


def by_hydra(overrides: Sequence[str], own_part: bool = False) -> DictConfig:
    """The configuration of any command line, composed by Hydra, slowly, with its own part or not; raises its errors."""
    instance = GlobalHydra.instance()
    running, instance.hydra = instance.hydra, None  # while Hydra runs a command line, it refuses to compose another
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("config", [*overrides, *searchpath.as_overrides()], return_hydra_config=own_part)
    finally:
        GlobalHydra.instance().hydra = running  # Hydra's context has put another instance in place of the first


def to_containers(config: DictConfig) -> dict[str, Any]:
    """A configuration, resolved, as dictionaries and lists."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
