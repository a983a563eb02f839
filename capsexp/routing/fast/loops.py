"""The loops of votes.c: routing on the CPU with votes that exist in its first cache only.

Made of torch's operations, routing reads and writes the votes a dozen times; these loops take a fourth to a tenth of
the time. Like Triton's kernels, they are compiled when they are first used, by the system's C compiler, for this
processor and the layer's sizes, in about a second for each size, and kept in the user's cache folder. `Loops.of` gives
None where there is no compiler, or where the batch is too small to be worth it.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from capsexp.errors import first_line
from capsexp.files import write_file
from capsexp.nn.capsules import output_size
from capsexp.routing.em import WEIGHT_FLOOR

SOURCE = Path(__file__).parent / "votes.c"

#: For this processor's instructions; the terms of a sum may be added in any order.
FLAGS = "-O3 -march=native -fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math -shared -fPIC"

#: Min vote elements of a batch: below, compiling takes longer than hundreds of steps.
MIN_VOTES = 2**21

#: Max vote elements of a child, J · D, numbers of a matrix, and twice those of a pose: a thread has such arrays on its
#: stack, which on macOS is half a MB.
MAX_ELEMENTS = 2**12

#: Seconds that a compiler may take.
COMPILER_TIMEOUT = 60

log = logging.getLogger("capsexp")

#: Positions of a kernel that are handled together.
PLACES = 8

#: The most numbers in a vector of votes.c.
LANES = 16


class Loops:
    """The loops for one layer and batch, and their layouts: parents are innermost, in `order` [K · I, Y, Z, J].

    Args:
        library: made for J, Z, Y and X.
        children: [B, H, W, I, C].
        weight: [K · I, J, Z, Y].
        kernel, stride: of the layer.
    """

    order: tuple[int, ...] = (0, 3, 2, 1)

    def __init__(self, library: ctypes.CDLL, children: Tensor, weight: Tensor, kernel: int, stride: int) -> None:
        self.library, self.factors = library, weight.dtype
        images, height, width, types, pose = children.shape
        _, self.parents, self.rows, self.columns = weight.shape
        self.inner = pose // self.columns
        self.places = output_size(children.shape[1:3], kernel, stride)
        self.sizes = height, width, types, *self.places, kernel, stride
        self.threads = min(torch.get_num_threads(), images)
        self.children = children.to(weight.dtype).to(children.dtype).contiguous()
        self.matrices = weight.to(children.dtype).permute(self.order).contiguous()

    @classmethod
    def of(cls, children: Tensor, weight: Tensor, kernel: int, stride: int) -> Self | None:
        """The loops, or None; children are in float32 or float64, the factors of products in the weight's type."""
        library = library_for(children, weight, kernel, stride)
        return None if library is None else cls(library, children, weight, kernel, stride)

    def run(self, name: str, shared: Sequence[Tensor], split: Sequence[Tensor | None]) -> None:
        """Calls a loop for parts of the images, in as many threads as torch has.

        Args:
            name: of the function in votes.c.
            shared: its first arguments but for the matrices, [threads, ...].
            split: its other arguments, [B, ...]; None for a null pointer.
        """
        images = len(self.children)

        def call(part: int) -> None:
            first, last = part * images // self.threads, (part + 1) * images // self.threads
            tensors: list[Tensor | None] = [self.matrices, *(tensor[part] for tensor in shared)]
            tensors += [None if tensor is None else tensor[first:last] for tensor in split]
            dtype = self.children.dtype
            assert all(tensor is None or (tensor.is_contiguous() and tensor.dtype == dtype) for tensor in tensors)
            grid = (ctypes.c_long * 8)(last - first, *self.sizes)  # Grid of votes.c
            pointers = [None if tensor is None else ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
            getattr(self.library, name)(grid, *pointers)

        if self.threads == 1:
            call(0)
            return
        list(_pool(self.threads, os.getpid()).map(call, range(self.threads)))

    def new(self, *shape: int) -> Tensor:
        """Zeros [B, H', W', ...], to which the loops add."""
        return self.children.new_zeros(len(self.children), *self.places, *shape)

    def pack(self, poses: Tensor) -> Tensor:
        """[B, H', W', J, D] -> [B, H', W', X, Z, J]."""
        return poses.reshape(*poses.shape[:4], self.rows, self.inner).permute(0, 1, 2, 5, 4, 3).contiguous()

    def unpack(self, poses: Tensor) -> Tensor:
        """[B, H', W', X, Z, J] -> [B, H', W', J, D]."""
        return poses.permute(0, 1, 2, 5, 4, 3).flatten(4)

    def zeros(self) -> tuple[Tensor, Tensor]:
        """Zeros to which the loops add the gradients by children and, [threads, ...], by matrices."""
        return torch.zeros_like(self.children), self.matrices.new_zeros(self.threads, *self.matrices.shape)

    def summed(self, grad_matrices: Tensor) -> Tensor:
        """[threads, K · I, Y, …] -> the gradient by the weight, [K · I, J, Z, Y]."""
        inverse = [self.order.index(dimension) for dimension in range(4)]
        return grad_matrices.sum(dim=0).permute(inverse).to(self.factors).contiguous()


class LanesLoops(Loops):
    """The loops of dynamic routing: a vector is over images, matrices are [K · I, Y, J, Z]."""

    order = (0, 3, 1, 2)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """The threads of a process: a forked one has none of its parent's."""
    return ThreadPoolExecutor(threads)


def library_for(children: Tensor, weight: Tensor, kernel: int, stride: int) -> ctypes.CDLL | None:
    """votes.c compiled for a layer, or None; arguments as of `Loops`."""
    height, width = output_size(children.shape[1:3], kernel, stride)
    _, parents, rows, columns = weight.shape
    inner = children.shape[4] // columns
    votes = len(children) * height * width * len(weight) * parents * rows * inner
    if children.device.type != "cpu" or votes < MIN_VOTES:
        return None
    dtype = torch.float64 if children.dtype == torch.float64 else torch.float32
    return _library(dtype, parents, rows, columns, inner)


@cache
def _library(dtype: torch.dtype, parents: int, rows: int, columns: int, inner: int) -> ctypes.CDLL | None:
    """votes.c compiled for these sizes, or None."""
    if max(parents * rows * inner, columns * max(rows, 2 * inner)) > MAX_ELEMENTS:
        return None
    sizes = {"J": parents, "Z": rows, "Y": columns, "X": inner, "FLOOR": f"(NUMBER){WEIGHT_FLOOR}", "PLACES": PLACES}
    defined = [f"-D{name}={value}" for name, value in sizes.items()] + ["-DDOUBLE"] * (dtype == torch.float64)
    try:
        command, version = compiler()
        command = [*command, *FLAGS.split(), *defined, str(SOURCE), "-lm", "-o"]
        content = repr((command, version, instructions())).encode() + SOURCE.read_bytes()
        name = f"votes-{hashlib.sha256(content).hexdigest()[:32]}.so"
        try:
            return _loaded(_cache() / name, command)
        except (OSError, RuntimeError):  # a full, read-only, foreign or unknown folder; a damaged file
            with tempfile.TemporaryDirectory() as folder:
                return _loaded(Path(folder) / name, command)  # stays mapped when its file is removed
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = first_line(Exception(getattr(error, "stderr", None) or error))  # what the compiler printed
        log.warning("no compiled loops (%s): routing takes many times as long; set CC to a C compiler", why)
        return None


def _loaded(path: Path, command: Sequence[str]) -> ctypes.CDLL:
    """The library at `path`, compiled unless it is there; raises OSError, SubprocessError."""
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / path.name
            subprocess.run([*command, str(file)], capture_output=True, check=True, timeout=COMPILER_TIMEOUT, text=True)
            write_file(path, file.read_bytes())
    return ctypes.CDLL(str(path))


def _cache() -> Path:
    """The folder of compiled loops, into which nobody but the user can write; raises OSError."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capsexp"
    folder.mkdir(parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder}: is another user's")
    folder.chmod(0o700)
    return folder


@cache
def compiler() -> tuple[list[str], str]:
    """The compiler's command and version; raises OSError, ValueError, SubprocessError."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    asked = [*command, "--version"]
    printed = subprocess.check_output(asked, stderr=subprocess.PIPE, timeout=COMPILER_TIMEOUT, text=True)
    return command, printed.partition("\n")[0]


@cache
def instructions() -> str:
    """The processor's model and instruction sets, as /proc/cpuinfo lists them; elsewhere the architecture alone."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def inverted_forward(loops: Loops, parents: Tensor) -> Tensor:
    """s of inverted routing, [B, H', W', J, D], from the parents' poses before."""
    total = loops.new(loops.inner, loops.rows, loops.parents)
    queries = loops.pack(parents) / parents.shape[-1] ** 0.5
    loops.run("inverted_forward", [], [loops.children, queries, total])
    return loops.unpack(total)


def inverted_backward(loops: Loops, parents: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by children, weight and parents, from that by s."""
    root = parents.shape[-1] ** 0.5
    queries, grad_total = loops.pack(parents) / root, loops.pack(gradient)
    (grad_children, grad_matrices), grad_queries = loops.zeros(), torch.zeros_like(queries)
    split = [loops.children, queries, grad_total, grad_children, grad_queries]
    loops.run("inverted_backward", [grad_matrices], split)
    return grad_children, loops.summed(grad_matrices), loops.unpack(grad_queries) / root


def em_forward(loops: Loops, activations: Tensor, assignment: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """T, μ and σ² of EM routing; `assignment` as of `em.fitted_without_votes`."""
    total = loops.new(loops.parents)
    mean, variance = (loops.new(loops.inner, loops.rows, loops.parents) for _ in range(2))
    kept = loops.children.new_empty(loops.threads, PLACES * loops.matrices.shape[0] * loops.parents)
    split = [loops.children, activations.contiguous(), *_packed(loops, assignment), total, mean, variance]
    loops.run("em_forward", [kept], split)
    return total, loops.unpack(mean), loops.unpack(variance)


def em_backward(
    loops: Loops, activations: Tensor, assignment: Sequence[Tensor], moments: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients by children, weight, activations and, where there is one, assignment.

    `moments` are μ, and the constant, linear and quadratic coefficients of ∂w, see `em`.
    """
    packed = _packed(loops, assignment)
    mean, constant, linear, quadratic = moments
    reads = [*packed, loops.pack(mean), constant.contiguous(), loops.pack(linear), loops.pack(quadratic)]
    (grad_children, grad_matrices), grad_activations = loops.zeros(), torch.zeros_like(activations.contiguous())
    grad_assignment = [None if part is None else torch.zeros_like(part) for part in packed]
    split = [loops.children, activations.contiguous(), *reads, grad_children, grad_activations, *grad_assignment]
    loops.run("em_backward", [grad_matrices], split)
    of_assignment = [part if part.ndim == 4 else loops.unpack(part) for part in grad_assignment if part is not None]
    return grad_children, loops.summed(grad_matrices), grad_activations, *of_assignment


def dynamic_forward(loops: LanesLoops, queries: Tensor | None) -> Tensor:
    """s of dynamic routing, [B, H', W', J, D], from the queries of `dynamic`, or from None: they are 0."""
    total = loops.new(loops.parents, loops.rows * loops.inner)
    loops.run("dynamic_forward", [_room(loops)], [loops.children, queries, total])
    return total


def dynamic_backward(
    loops: LanesLoops, queries: Tensor | None, grad_total: Tensor, sums: Sequence[Tensor], constant: bool
) -> Tensor | None:
    """Adds the gradients by children and matrices to `sums`; returns that by the queries.

    With `constant`, the coefficients are constants, and there is no gradient by the queries.
    """
    grad_queries = None if constant else torch.zeros_like(grad_total)
    grad_children, grad_matrices = sums
    split = [loops.children, queries, grad_total, grad_children, grad_queries]
    loops.run("dynamic_backward", [grad_matrices, _room(loops)], split)
    return grad_queries


def _room(loops: LanesLoops) -> Tensor:
    """Room for the vectors of `dynamic_backward` in votes.c."""
    pose = loops.inner * loops.columns
    vectors = loops.parents * (4 * loops.rows * loops.inner + 2) + 2 * pose
    return loops.children.new_empty(loops.threads, vectors * LANES)


def _packed(loops: Loops, assignment: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Mean, precision and offset, or queries, in the layout of the loops; null pointers for what isn't there."""
    packed = [loops.pack(part) if part.ndim == 5 else part.contiguous() for part in assignment]
    return packed + [None] * (3 - len(packed))
