"""The Triton kernels compiled for an H100 (sm_90), which needs no GPU: no registers are spilled, no votes stored."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_equality import Largest
from torch import Tensor

triton = pytest.importorskip("triton")
nvidia = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

BATCH = 128  # of fewer images, a program has fewer children, and needs no loop over them

# side, children, C, kernel, stride, parents, Z, Y
SHAPES = {
    "CIFAR-10": (16, 32, 16, 3, 2, 32, 4, 4),
    "CIFAR-10, classes": (5, 32, 16, 5, 1, 10, 4, 4),
    "CIFAR-100, classes": (1, 20, 36, 1, 1, 100, 6, 6),
    "MultiMNIST": (5, 4, 64, 3, 1, 4, 64, 64),
    "as many as fit": (1, 20, 36, 1, 1, 64, 6, 6),
}
CASES = [
    (name, dtype, known) for name in SHAPES for dtype in (torch.float32, torch.bfloat16) for known in (True, False)
]
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}


class Compiled:
    """Stands for a kernel: a launch compiles it as Triton would, and notes what it needs."""

    def __init__(self, kernel: Any, found: list[tuple[str, int, int]], folder: Path) -> None:
        self.kernel, self.found, self.folder = kernel, found, folder

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.launch

    def launch(self, *arguments: Tensor | int, num_warps: int, enable_fp_fusion: bool, **constants: int) -> None:
        """Adds name, stack (bytes a thread; 0 if all registers fit) and shared memory (bytes)."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        given = dict(zip(self.kernel.arg_names, arguments, strict=False))
        constants |= {name: 1 for name, value in given.items() if isinstance(value, int) and value == 1}
        aligned = [isinstance(value, Tensor) or value % 16 == 0 for value in given.values()]
        attributes = {(i,): [["tt.divisibility", 16]] for i, is_so in enumerate(aligned) if is_so}
        types = {name: TYPES[value.dtype] if isinstance(value, Tensor) else "i32" for name, value in given.items()}
        source = ASTSource(self.kernel, types | dict.fromkeys(constants, "constexpr"), constants, attributes)
        options = {"num_warps": num_warps, "enable_fp_fusion": enable_fp_fusion}
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        binary = self.folder / "kernel.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        command = [nvidia / "cuobjdump", "--dump-resource-usage", binary]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        registers, stack = (int(number) for number in re.findall(r"REG:(\d+) STACK:(\d+)", text)[0])
        print(f"{self.kernel.__name__} {constants}: {num_warps} warps, {registers} registers, {stack} bytes of stack,")
        print(f"    {compiled.metadata.shared} bytes of shared memory")
        self.found.append((self.kernel.__name__, stack, compiled.metadata.shared))


@pytest.mark.skipif(not (nvidia / "cuobjdump").exists(), reason="Triton comes without CUDA's tools")
@pytest.mark.parametrize(
    ("name", "dtype", "known"), [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])]
)
def test_no_kernel_spills_or_stores_votes(
    name: str, dtype: torch.dtype, known: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from capsexp.routing.fast import triton_em, triton_inverted

    side, types, pose, kernel, stride, count, rows, columns = SHAPES[name]
    children, present = torch.zeros(BATCH, side, side, types, pose), torch.zeros(BATCH, side, side, types)
    weight = torch.zeros(kernel**2 * types, count, rows, columns, dtype=dtype)
    places = (side - kernel) // stride + 1
    parents = torch.zeros(BATCH, places, places, count, rows * (pose // columns))
    found: list[tuple[str, int, int]] = []
    module: ModuleType
    for module in (triton_em, triton_inverted):
        for part in ("_forward", "_backward", "_backward_matrices"):
            monkeypatch.setattr(module, part, Compiled(getattr(module, part), found, tmp_path))
    em = triton_em.applies(children, weight)
    assert em is (name != "CIFAR-100, classes")
    assignment = [parents, parents, parents[..., 0]] if known else []
    window = kernel, stride
    moments = [parents, parents[..., 0], parents, parents]
    with Largest() as observed:
        if em:
            triton_em.forward(children, weight, present, assignment, *window)
            triton_em.backward(children, weight, present, assignment, moments, *window)
        if known:
            triton_inverted.forward(children, weight, parents, *window)
            triton_inverted.backward(parents, children, weight, parents, *window)
    assert len(found) == 3 * (em + known)
    spilled = 8 if name == "as many as fit" else 0  # two registers, in the first iteration
    assert all(stack <= spilled and shared <= 48 * 1024 for _, stack, shared in found), found
    if name == "CIFAR-10":  # of smaller layers, the partial sums of the matrices are the largest
        assert observed.elements <= parents.numel() * len(weight) / 8


def test_parents_that_do_not_fit_a_programs_registers_are_left_to_torch() -> None:
    from capsexp.routing.fast import triton_em

    children = torch.empty(2, 1, 1, 3, 256, device="meta")
    assert triton_em.applies(children, torch.empty(3, 16, 16, 16, device="meta"))
    assert not triton_em.applies(children, torch.empty(3, 17, 16, 16, device="meta"))
