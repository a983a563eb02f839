"""A run before it starts: its name, device, precision and files."""

import logging
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import torch

from capsexp.config.checks import Component
from capsexp.config.compose import command
from capsexp.config.schema import Config
from capsexp.data import source
from capsexp.errors import InputError
from capsexp.routing.em import EMRouting
from capsexp.routing.fast.bfloat16 import is_faster_in_bfloat16
from capsexp.run import keys
from capsexp.run.optimization import optimizer_arguments

log = logging.getLogger("capsexp")

#: In a run's folder. BEFORE: the one before LAST, while it trains; OUTPUT: of a run of the launcher.
LAST, BEFORE, BEST, OUTPUT = "last.ckpt", "before.ckpt", "best.ckpt", "output.txt"


@dataclass(frozen=True)
class Plan:
    """A run before it starts."""

    config: Config
    device: torch.device
    precision: str  # bf16 or float32
    note: str | None  # what the data files are, where they aren't the published ones
    command: str | None  # that repeats the run
    unlisted: str | None = None  # the checksum of data files that conf/ doesn't list
    varied: tuple[str, ...] = ()  # the keys in which it differs from the runs beside it, of many runs

    @property
    def identity(self) -> keys.Json:
        """What the run's key is a hash of."""
        return keys.identity(self.config, self.precision, self.note, self.unlisted)

    @cached_property  # a sweep compares the names of all its runs twice a second
    def name(self) -> str:
        """`model-data-key`."""
        return keys.name_of(self.identity)

    @property
    def path(self) -> Path:
        """The record's file."""
        return Path(self.config.paths.results) / "runs" / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        """The folder of checkpoints."""
        return Path(self.config.paths.logs) / self.name

    @property
    def epochs(self) -> int:
        return self.config.budget.epochs or self.config.optim.epochs

    @property
    def processes(self) -> int:
        """The number of processes that split each batch, on all nodes: torchrun's."""
        return torchrun("WORLD_SIZE", 1)

    @property
    def eval_split(self) -> str:
        """The split that is evaluated after each epoch."""
        return "heldout" if self.config.protocol == "heldout" else "test"


def plan(config: Config, overrides: Sequence[str] | None = None) -> Plan:
    """The run of a configuration on this machine, with the published data files where they will be downloaded.

    Raises InputError for wrong arguments of the optimiser, for a missing device, and for files that are missing
    and can't be downloaded.
    """
    optimizer_arguments(config.optim)
    device, precision = find_device(config)
    repeating = None if overrides is None else command(overrides, precision)
    files = source.identify(config.data, download=False)
    return Plan(config, device, precision, files.note, repeating, files.unlisted)


def torchrun(variable: str, default: int) -> int:
    """A number that torchrun gives its processes, such as RANK; `default` in a process that it didn't start."""
    least = 1 if variable.endswith("SIZE") else 0
    return from_environment(variable, least) if "TORCHELASTIC_RUN_ID" in os.environ else default


def from_environment(variable: str, least: int) -> int:
    """The number that a launcher has put into the environment; raises InputError for anything else."""
    text = os.environ.get(variable, "")
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise InputError(f"{variable}={text}: must be a whole number at least {least}, in the environment")
    return int(text)


def cores() -> int:
    """The threads of a process on the CPU: Slurm's cores of the task, else torch's number of them."""
    if not os.environ.get("SLURM_CPUS_PER_TASK"):
        return torch.get_num_threads()
    return min(from_environment("SLURM_CPUS_PER_TASK", 1), os.cpu_count() or 1)


def is_first() -> bool:
    """Whether this process is the run's only one, or the first of torchrun's."""
    return torchrun("RANK", 0) == 0


def find_device(config: Config) -> tuple[torch.device, str]:
    """The device and the precision that `trainer` means on this machine; raises InputError for a missing device."""
    accelerator = config.trainer.accelerator
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise InputError("trainer.accelerator=gpu: torch sees no CUDA device here (auto or cpu run on the CPU)")
    device, processes = torch.device("cpu"), torchrun("LOCAL_WORLD_SIZE", 1)
    if (world := torchrun("WORLD_SIZE", 1)) % processes:
        raise InputError(f"WORLD_SIZE={world}: must be a multiple of LOCAL_WORLD_SIZE={processes}")
    torchrun("MASTER_PORT", 0)  # for its error
    if accelerator != "cpu" and torch.cuda.is_available():
        if processes > (gpus := torch.cuda.device_count()):
            raise InputError(f"torchrun --nproc-per-node={processes}: each needs a GPU, and torch sees {gpus}")
        gpu = torch.device("cuda", torchrun("LOCAL_RANK", 0))
        device = gpu if _has_kernels(gpu, accelerator) else device
    cores, threads = os.cpu_count() or 1, config.trainer.threads or 1
    if threads > cores:
        raise InputError(f"trainer.threads={threads}: this machine has {cores} cores")
    precision = config.trainer.precision
    if precision == "auto":
        # For one or two iterations too, so that all numbers of iterations can be compared.
        precision = "bf16" if is_faster_in_bfloat16(device) and not _is_em_with_sum(config.routing) else "float32"
    return device, precision


@cache  # for one line a process
def _has_kernels(device: torch.device, accelerator: str) -> bool:
    """Whether this build of torch has kernels for an NVIDIA GPU; raises InputError where the run has to have it."""
    with warnings.catch_warnings(action="ignore"):  # torch's own, of 15 lines
        major, minor = torch.cuda.get_device_capability(device)
    built = torch.cuda.get_arch_list()
    # Kernels of sm_80 run on 8.6, but not on 9.0; compute_80 is compiled for any later GPU when it is loaded.
    kernels = [(kind, int(x), int(y)) for kind, x, y in re.findall(r"\b(sm|compute)_(\d+)(\d)", " ".join(built))]
    if not kernels or any((x, y) <= (major, minor) and (x == major or kind == "compute") for kind, x, y in kernels):
        return True
    line = (
        f"torch {torch.__version__} has kernels for {', '.join(built)}, and {torch.cuda.get_device_name(device)} is "
        f"sm_{major}{minor}: install a build of torch for it (those for CUDA 12.6 have older GPUs), or set trainer=cpu"
    )
    if accelerator == "gpu":
        raise InputError(f"trainer.accelerator=gpu: {line}")
    log.warning("runs on the CPU: %s", line)
    return False


def forbid_tf32() -> None:
    """Makes float32 on a GPU float32: by default torch convolves in TF32 there, with the mantissa of float16."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def check_precision(config: Config) -> None:
    """Raises InputError for bf16 where the routing can't be trained in it. Checkpoints of such runs can be restored."""
    iterations = config.routing.iterations or 0
    if config.trainer.precision == "bf16" and iterations > 2 and _is_em_with_sum(config.routing):
        why = "the gradient of EM routing is rounding error; set trainer.precision=float32 or routing.density=mean"
        raise InputError(f"trainer.precision=bf16: with routing.iterations={iterations} and routing.density=sum {why}")


def _is_em_with_sum(routing: Component) -> bool:
    """Whether it is EM routing with the procedure's density, see `capsexp.routing.em`."""
    return routing.cls is EMRouting and routing.arguments.get("density", "sum") == "sum"
