"""The loops of votes.c equal the procedures in value and gradient, and routing without them is the same."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.routing.fast import em, inverted, loops
from capsexp.routing.fast.loops import Loops
from capsexp.run.build import build

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("loops_for_every_batch"),
]

# batch, side, children, C, kernel, stride, parents, Z, Y
SHAPES = {
    "matrix, an edge that no kernel sees": (3, 6, 2, 4, 3, 2, 5, 2, 2),
    "vector": (2, 4, 3, 3, 2, 1, 2, 5, 3),
    "linear, more places than a block": (11, 1, 7, 9, 1, 1, 3, 3, 3),
}


def made(name: str) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Children, matrices and parents in float64; kernel and stride."""
    batch, side, types, pose, kernel, stride, parents, rows, columns = SHAPES[name]
    places = (side - kernel) // stride + 1
    children = torch.randn(batch, side, side, types, pose, dtype=torch.float64)
    weight = torch.randn(kernel**2 * types, parents, rows, columns, dtype=torch.float64)
    before = torch.randn(batch, places, places, parents, rows * (pose // columns), dtype=torch.float64)
    return children, weight, before, (kernel, stride)


def test_the_path_names_tritons_version_whatever_its_distribution_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="9.8.7"))
    assert em.FastEMRouting(parents=1).path(torch.device("cuda")) == "Triton 9.8.7"


@pytest.mark.parametrize("name", SHAPES)
def test_float32_is_exact_to_its_rounding(name: str) -> None:
    children, weight, parents, window = made(name)
    exact = inverted._Iteration.apply(*window, children, weight, parents)
    found = inverted._Iteration.apply(*window, children.float(), weight.float(), parents.float())
    assert ((found - exact).norm() / exact.norm()).item() < 5e-7


def test_one_hot_assignments_have_no_denormal_numbers() -> None:
    children, weight, mean, window = made("linear, more places than a block")
    arguments = [tensor.float() for tensor in (children, weight, torch.ones(children.shape[:-1]), mean)]
    precision, offset = torch.full_like(arguments[3], 60.0), torch.zeros(mean.shape[:-1])
    total, means, variance = em._Iteration.apply(*window, *arguments, precision, offset)
    assert bool(((total == 0) | (total > 1e-34)).all())
    assert bool(means.isfinite().all())
    assert bool((variance >= 0).all())


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of compiled loops, empty; they are compiled quickly."""
    monkeypatch.setattr(loops, "FLAGS", "-O0 -shared -fPIC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caches = loops._library, loops.compiler
    for cache in caches:
        cache.cache_clear()
    yield tmp_path / "capsexp"
    for cache in caches:
        cache.cache_clear()


def program(folder: Path, text: str) -> str:
    """A shell script in place of the compiler, which says its version."""
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "compiler 1" && exit\n{text}\n')
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("no-such-compiler", "No such file or directory: 'no-such-compiler'"),
        ('gcc "', "No closing quotation"),
        ("echo an error >&2; exit 1", "an error"),
        ("sleep 30", "timed out after 0.3 seconds"),
        ("shift $(($# - 1)); echo no library > $1", "invalid ELF header|file too short"),
    ],
)
def test_without_a_working_compiler_there_are_no_loops_and_a_line(
    compiler: str,
    why: str,
    compiling: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(loops, "COMPILER_TIMEOUT", 0.3)
    scripted = any(word in compiler for word in ("exit", "sleep", "shift"))
    monkeypatch.setenv("CC", program(tmp_path, compiler) if scripted else compiler)
    children, weight, _, window = made("vector")
    assert Loops.of(children, weight, *window) is None
    assert Loops.of(children, weight, *window) is None
    (line,) = caplog.messages
    assert re.search(why, line)


def test_loops_are_compiled_at_first_use_once_for_all_processes(
    compiling: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", f"{os.environ.get('CC') or 'cc'} -pthread")  # the compiler may have arguments
    build(composed_config("model=em_capsnet", "data=mnist_sample", "budget.width=0.1"))
    assert not compiling.exists()
    children, weight, _, window = made("vector")
    assert Loops.of(children, weight, *window)
    kept = {path: path.stat().st_mtime_ns for path in compiling.iterdir()}
    assert [path.suffix for path in kept] == [".so"]
    assert compiling.stat().st_mode & 0o777 == 0o700
    loops._library.cache_clear()
    assert Loops.of(children, weight, *window)
    assert {path: path.stat().st_mtime_ns for path in compiling.iterdir()} == kept  # nothing more was compiled


def test_two_may_compile_the_same_at_the_same_time(compiling: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        libraries = [pool.submit(loops._library.__wrapped__, torch.float32, 3, 4, 5, 6) for _ in range(2)]
    assert all(library.result() for library in libraries)
    assert [path.suffix for path in compiling.iterdir()] == [".so"]


@pytest.mark.parametrize("problem", ["read-only", "another user's", "no temporary folder either"])
def test_without_a_folder_of_ones_own_they_are_compiled_for_this_process(
    problem: str, compiling: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if problem == "another user's":
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    else:
        compiling.write_text("a file in its place")
    if problem.startswith("no"):
        monkeypatch.setattr(loops.tempfile, "TemporaryDirectory", (tmp_path / "no" / "folder").mkdir)
    children, weight, _, window = made("vector")
    assert (Loops.of(children, weight, *window) is None) == problem.startswith("no")
    assert not compiling.is_dir() or not any(compiling.iterdir())


def test_a_forked_process_has_threads_of_its_own() -> None:
    loops._pool(2, os.getpid()).submit(int).result()
    child = os.fork()
    if not child:
        os._exit(loops._pool(2, os.getpid()).submit(lambda: 7).result(timeout=10))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_small_batch_and_votes_that_no_stack_holds_take_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MIN_VOTES", 10**6)
    children, weight, _, window = made("vector")
    assert Loops.of(children, weight, *window) is None
    assert loops._library(torch.float64, 2000, 1280, 8, 1) is None
