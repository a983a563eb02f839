"""A run before it starts: what it is called, where it computes, where it writes, whether it is done already."""

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from capsexp.config.schema import Config
from capsexp.data import source
from capsexp.errors import InputError
from capsexp.run import records


@dataclass(frozen=True)
class Plan:
    """A run before it starts."""

    config: Config
    device: torch.device
    precision: str  # bf16 or float32
    note: str | None  # what the data files are, where they aren't the published ones
    command: str | None  # what repeats the run

    @property
    def identity(self) -> records.Json:
        """What its key is a hash of."""
        return records.identity(self.config, self.precision, self.note)

    @property
    def name(self) -> str:
        """`model-data-key`."""
        return records.run_name(self.identity)

    @property
    def path(self) -> Path:
        """Where its record goes."""
        return records.path_of(Path(self.config.paths.results), self.name)

    @property
    def folder(self) -> Path:
        """Where its checkpoints and TensorBoard's files go."""
        return Path(self.config.paths.logs) / self.name

    @property
    def epochs(self) -> int:
        """How many epochs it does."""
        return self.config.budget.epochs or self.config.optim.epochs

    @property
    def processes(self) -> int:
        """How many share its batches; null is as many as there are GPUs."""
        there = torch.cuda.device_count() if self.device.type == "cuda" else 1
        return self.config.trainer.processes or there

    @property
    def evaluated(self) -> str:
        """What is evaluated after each epoch."""
        return "heldout" if self.config.protocol == "heldout" else "test"


def plan(config: Config, command: str | None = None) -> Plan:
    """What a configuration means on this machine; raises InputError for a device or data that aren't there."""
    device, precision = find_place(config)
    repeated = None if command is None else with_precision(command, precision)
    return Plan(config, device, precision, source.identify(config.data).note, repeated)


def with_precision(command: str, precision: str) -> str:
    """A run's command that gives the same key on every machine: `auto` can be another precision there."""
    return command if " trainer.precision=" in command else f"{command} trainer.precision={precision}"


def finished(planned: Plan) -> records.Record | None:
    """The record of a run that came to its end, or None; raises InputError for a damaged record."""
    if not planned.path.exists():
        return None
    record = records.read(planned.path)
    return record if record.status == "finished" else None


def find_place(config: Config) -> tuple[torch.device, str]:
    """The device and the precision that `trainer` means here; raises InputError when it asks for what isn't there."""
    wanted = config.trainer.accelerator
    if wanted == "gpu" and not torch.cuda.is_available():
        raise InputError("trainer.accelerator=gpu: torch sees no CUDA device here (auto or cpu run on the CPU)")
    processes = config.trainer.processes or 1
    device = torch.device("cuda", 0) if wanted != "cpu" and torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda" and processes > torch.cuda.device_count():
        raise InputError(f"trainer.processes={processes}: each needs a GPU, and torch sees {torch.cuda.device_count()}")
    precision = config.trainer.precision
    if precision == "auto":
        precision = "bf16" if _computes_bfloat16(device) else "float32"
    return device, precision


def _computes_bfloat16(device: torch.device) -> bool:
    """By instructions of its own. Torch offers bfloat16 elsewhere too, imitated, and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if platform.machine() in ("x86_64", "AMD64"):
        return torch.cpu._is_avx512_bf16_supported()
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()
