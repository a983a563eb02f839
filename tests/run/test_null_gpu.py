"""torch's own code for CUDA, on libraries that allocate, copy and capture, but run no kernel: see null_gpu.c.

Devices and types of operators, the limit of memory, what waits for the device and what may not happen in a capture are
as on a GPU. Numbers are not.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch
from support import ROOT, composed_config, folders, process

missing = torch.version.cuda is None or torch.cuda.is_available() or not (which("cc") and which("nm"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing, reason="needs a torch for CUDA, no GPU, cc and nm")]

SHORT = "data=mnist_sample budget.epochs=2 budget.train_images=700 trainer=gpu trainer.steps_at_once=1 logger=[]"
NETWORKS = [
    "model=capsnet reconstruction.enabled=true attention=cbam",
    "model=da_capsnet trainer.precision=float32",
    "model=em_capsnet loss=spread routing.iterations=3",
    "model=inverted_capsnet routing.iterations=3",
    "model=dynamic_capsnet loss=binary_cross_entropy",
    "model=huang_cnn",
    "model=resnet18",
]


@pytest.fixture(scope="module")
def null_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has one."""
    folder, packages = tmp_path_factory.mktemp("null_gpu"), Path(torch.__file__).parents[1]
    headers, written = next(packages.glob("nvidia/cu[0-9]*/include")), ROOT / "tests/run/null_gpu.c"
    needed = set(re.findall(r"CUDAAPI (cu\w+)\(", (headers / "cuda.h").read_text()))
    for library in packages.glob("torch/lib/lib*.so"):
        listed = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
        needed |= set(re.findall(r"U ((?:__)?cu(?:da|blas|dnn)\w+)@", listed.stdout))
    needed -= set(re.findall(r"\w+", written.read_text()))
    (folder / "rest.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in needed))
    version = "-DCUDART_VERSION={}0{}0".format(*str(torch.version.cuda).split("."))
    included = [version, f"-I{headers}", f"-I{packages}/triton/backends/nvidia/include"]
    options = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", *included, "-o", folder / "libcuda.so.1"]
    subprocess.run(["cc", *options, written, folder / "rest.c"], check=True)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    places = {"LD_PRELOAD": f"{folder}/libcuda.so", "LD_LIBRARY_PATH": f"{folder}", "TRITON_CACHE_DIR": f"{folder}"}
    return {**os.environ, **places, "PYTHONPATH": os.pathsep.join(sys.path)}


def trained(null_gpu: dict[str, str], place: Path, words: str, **limits: str) -> str:
    """The last line of a run: see `main`."""
    ended = process(__file__, *SHORT.split(), *words.split(), *folders(place), **null_gpu, **limits)
    return (ended.stderr if ended.returncode else ended.stdout).splitlines()[-1]


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_trains_by_torchs_code_for_cuda(
    network: str, graph: bool, null_gpu: dict[str, str], tmp_path: Path
) -> None:
    """Its operators are on the device and deterministic; in the second epoch, neither steps nor evaluation wait."""
    words = f"{network} budget=demo trainer.deterministic=true trainer.cuda_graphs={graph}"
    assert trained(null_gpu, tmp_path, words) == f"finished, graph: {graph}"


@pytest.mark.parametrize(("memory", "graph"), [(800, False), (1800, True)])
def test_a_run_that_fits_the_memory_without_a_graph_finishes(
    memory: int, graph: bool, null_gpu: dict[str, str], tmp_path: Path
) -> None:
    words = "model=capsnet trainer.eval_batch_size=64"
    assert trained(null_gpu, tmp_path, words, NULL_MB=str(memory)) == f"finished, graph: {graph}"


def test_a_run_whose_capture_fails_goes_on_without(null_gpu: dict[str, str], tmp_path: Path) -> None:
    """Adagrad reads its steps on the host; dropout draws from the generator that the capture used."""
    words = "model=huang_cnn optim.name=adagrad budget=demo budget.epochs=1"
    assert trained(null_gpu, tmp_path, words) == "finished, graph: False"


def test_a_gpu_that_torch_has_no_kernels_for_is_one_line(null_gpu: dict[str, str], tmp_path: Path) -> None:
    assert "InputError: trainer.accelerator=gpu: torch" in trained(null_gpu, tmp_path, NETWORKS[0], NULL_MAJOR="6")


def main() -> None:
    """Trains, and prints the record's status and whether the last step had a CUDA graph."""
    from capsexp.routing.fast import selfcheck
    from capsexp.run import execute, optimization, records, train
    from capsexp.run.module import CapsuleModule

    selfcheck.difference = lambda *_: None  # what compares numbers finds them equal
    optimization._difference = lambda *_: 0.0
    train.constant_guess = lambda _: 10.0
    records._contradiction = lambda _: None  # numbers without kernels contradict each other
    torch.backends.cudnn.enabled = False  # convolutions are products
    graphs = []

    def strict(step: Any) -> Any:
        def act(self: Any, batches: Any, index: int) -> None:
            torch.cuda.set_sync_debug_mode("error" if self.current_epoch else "default")
            step(self, batches, index)
            torch.cuda.set_sync_debug_mode("default")
            graphs.append(bool(getattr(self.step, "replay", None)))

        return act

    for name in ("training_step", "validation_step"):
        setattr(CapsuleModule, name, strict(getattr(CapsuleModule, name)))
    record = execute.run(composed_config(*sys.argv[1:]))
    print(f"{record.status}, graph: {graphs[-1]}")


if __name__ == "__main__":
    main()
