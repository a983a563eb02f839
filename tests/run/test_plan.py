"""The device and the precision of a run, its command and its commit."""

import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import TINY, composed_config, folders, process, raising, refused

from capsexp.data.svhn import SVHN
from capsexp.routing.fast import bfloat16
from capsexp.run import plan, provenance, train


@pytest.mark.parametrize(
    ("machine", "name", "instructions", "tiles", "offered", "precision"),
    [
        ("x86_64", "AMD EPYC", True, False, True, "bf16"),
        ("x86_64", "Intel(R) Xeon(R) Processor", True, True, True, "bf16"),
        ("x86_64", "Intel(R) Xeon(R) Processor", True, False, True, "float32"),
        ("x86_64", "AMD EPYC", False, False, True, "float32"),  # for torch, AVX-512 is enough, with which it's emulated
        ("aarch64", "", False, False, True, "bf16"),
        ("aarch64", "", False, False, False, "float32"),
        ("arm64", "", False, False, None, "float32"),  # of a Mac, whose wheels lack the operator
    ],
)
def test_a_processor_gets_bfloat16_where_it_is_faster(
    machine: str,
    name: str,
    instructions: bool,
    tiles: bool,
    offered: bool | None,
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(bfloat16, "instructions", lambda: name)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: instructions)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: offered)
    if offered is None:  # torch raises AttributeError for its name
        monkeypatch.setattr(torch.ops, "mkldnn", torch.ops.no_such_library)
    assert plan.find_device(composed_config("trainer=cpu")) == (torch.device("cpu"), precision)
    assert plan.find_device(composed_config("trainer=cpu", "trainer.precision=bf16"))[1] == "bf16"


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ("model=em_capsnet data=cifar10 routing.iterations=3", "float32"),
        ("model=em_capsnet data=cifar10 routing.iterations=1", "float32"),
        ("model=em_capsnet data=cifar10 routing.iterations=3 routing.density=mean", "bf16"),
        ("model=em_capsnet data=cifar10 routing=inverted", "bf16"),
        ("model=resnet18", "bf16"),
    ],
)
def test_auto_is_float32_for_em_routing_with_the_sum(
    words: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "is_faster_in_bfloat16", lambda device: True)
    assert plan.find_device(composed_config(*words.split()))[1] == precision


@pytest.mark.parametrize(("native", "precision"), [(False, "float32"), (True, "bf16")])
def test_a_gpu_before_ampere_gets_float32(native: bool, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For torch they support bfloat16, unless emulation is excluded."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or native)
    monkeypatch.setattr(plan, "_has_kernels", lambda device, accelerator: True)
    assert plan.find_device(composed_config("trainer=gpu")) == (torch.device("cuda", 0), precision)


@pytest.mark.parametrize(
    ("capability", "built", "device"),
    [
        ((7, 5), ["sm_75", "sm_120"], "cuda"),
        ((8, 9), ["sm_75", "sm_86"], "cuda"),
        ((9, 0), ["sm_75", "sm_86"], "cpu"),
        ((9, 0), ["sm_75", "compute_86"], "cuda"),
        ((6, 1), ["sm_75", "sm_120"], "cpu"),
        ((12, 1), ["sm_90a", "sm_120"], "cuda"),
        ((9, 4), ["gfx90a"], "cuda"),  # AMD's
    ],
)
def test_a_gpu_is_used_where_torch_has_kernels_for_it(
    capability: tuple[int, int],
    built: list[str],
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    plan._has_kernels.cache_clear()
    auto, gpu = (composed_config(f"trainer={name}", "trainer.precision=bf16") for name in ("auto", "gpu"))
    for _ in range(2):
        assert plan.find_device(auto)[0].type == device
    if device == "cuda":
        assert plan.find_device(gpu)[0].type == device
    else:
        (line,) = caplog.messages
        reason = refused(plan.find_device, gpu).removeprefix("trainer.accelerator=gpu: ")
        assert line == f"runs on the CPU: {reason}"
        assert reason.endswith("set trainer=cpu")
    plan._has_kernels.cache_clear()


def test_the_commit_is_that_of_the_code_and_of_no_repository_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / ".venv" / "capsexp"
    (package / "run").mkdir(parents=True)
    (package / "errors.py").touch()
    monkeypatch.setattr(provenance, "__file__", str(package / "run" / "provenance.py"))

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "another project")
    assert provenance.start()["commit"] is None
    git("add", "-f", ".")
    git("commit", "-m", "the code")
    assert len(provenance.start()["commit"]) == 40
    assert provenance.start()["clean_tree"]
    (package / "errors.py").write_text("changed")
    assert not provenance.start()["clean_tree"]


def test_a_plan_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SVHN, "download", lambda self, folder: pytest.fail("a download"))
    planned = plan.plan(composed_config("data=svhn", f"data.root={tmp_path}"))
    assert (planned.note, planned.unlisted) == (None, None)  # as the published files, which a download brings
    config = composed_config("data=svhn", f"data.root={tmp_path}", "data.download=false")
    assert refused(plan.plan, config).startswith("svhn: put train_32x32.mat")


def test_what_cannot_be_recorded_is_refused_before_the_training(tmp_path: Path) -> None:
    planned = plan.plan(composed_config(*TINY, *folders(tmp_path)))
    line = refused(train.prepare, replace(planned, command="data.path=im\udce4ges"))
    assert "data.path=im\\udce4ges" in line
    assert "surrogates not allowed" in line


def test_a_system_without_a_load_average_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan.plan(composed_config(*TINY))
    monkeypatch.setattr(os, "getloadavg", raising(OSError("no /proc")))
    assert provenance.of_run(planned, {}, [])["load"] is None


def test_counting_parameters_imports_no_compiler() -> None:
    code = """
import sys
from capsexp.config.compose import composed
from capsexp.config.schema import check
from capsexp.run.build import count_parameters
counted = count_parameters(check(composed(["model=capsnet", "attention=cbam"])))
print(counted, [name for name in ("sympy", "torch._dynamo") if name in sys.modules])
"""
    assert process("-c", code).stdout == "6812788 []\n"
