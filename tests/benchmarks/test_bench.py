"""The benchmark times the steps of runs, and on a GPU it ends."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support import raising, script

from capsexp.config.schema import Config


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("benchmarks/bench.py", monkeypatch)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_steps_are_those_of_runs(device: str, bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Made(Exception):
        pass

    def make_step(*arguments: object) -> None:
        raise Made(arguments[2])

    monkeypatch.setattr(bench, "find_device", lambda config: (torch.device(device), "bf16"))
    monkeypatch.setattr(bench.CapsuleModule, "to", lambda self, where: self)
    monkeypatch.setattr(bench, "make_step", make_step)
    with pytest.raises(Made) as made:
        bench._step("data=mnist_sample budget=demo", "fast", bench._options([]))
    assert made.value.args == (device == "cuda",)


def test_no_measurement_begins_after_the_end(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]

    def case(index: int, options: object) -> list[Any]:
        clock.append(clock[-1] + 3)
        return [bench.Timings(bench.CASES[index][0], "fast", [1.0], 1.0, 1.0, 1e9, 2)]

    monkeypatch.setattr(bench.time, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(bench, "_ceilings", lambda device, precision: {})
    monkeypatch.setattr(bench, "_case", case)
    bench.main(["trainer=cpu", "--cases", "0", "1", "2", "3", "--seconds=5", f"--output={tmp_path}"])
    assert (clock, capsys.readouterr().err) == ([0, 3, 6], "2 of 4 left out: no time left\n")


def test_a_step_that_does_not_fit_the_memory_has_no_peak(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_step", lambda case, way, options: (lambda: torch.empty(10**15), None))
    assert bench._peak(bench._options(["--alone=0", "--way=reference"])) is None
    monkeypatch.setattr(bench, "_step", lambda case, way, options: (lambda: torch.empty(10), None))
    assert bench._peak(bench._options(["--alone=0", "--way=reference"])) > 0.1


def test_a_routing_that_does_not_fit_the_memory_is_left_out(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CASES", [("small", "data=mnist_sample budget=demo optim.batch_size=2")])
    monkeypatch.setattr(bench, "_memory", lambda index, way, options: {"fast": 1.0}.get(way))
    (fast,) = bench._case(0, bench._options(["--rounds=1", "budget.width=0.1"]))
    assert (fast.way, fast.memory_gb) == ("fast", 1.0)
    page = bench._page("a device", 7.5, {}, [fast])
    assert "| small | " in page
    assert "doesn't fit the memory" in page
    assert "7.5" in page
    monkeypatch.setattr(bench, "_memory", lambda index, way, options: None)
    assert bench._case(0, bench._options([])) == []


def test_operations_are_counted_in_another_step_than_the_first(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a counter's hooks autograd refuses the proof of a fast path: the reference would be timed in its place."""
    hooked: list[bool] = []

    def step(case: str, way: str, options: object) -> tuple[Callable[[], None], Config]:
        return lambda: hooked.append(bool(torch.nn.modules.module._global_forward_pre_hooks)), bench._config(case, [])

    monkeypatch.setattr(bench, "_memory", lambda index, way, options: {"fast": 1.0}.get(way))
    monkeypatch.setattr(bench, "_step", step)
    bench._case(0, bench._options(["--rounds=1"]))
    assert hooked == [False, True, False]


@pytest.mark.parametrize(("too_large", "ways"), [("", ["fast", "reference"]), ("reference", ["fast"]), ("fast", [])])
def test_memory_of_a_gpu_and_a_way_that_does_not_fit_it_loses_nothing_else(
    too_large: str, ways: list[str], bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(case: str, way: str, options: object) -> tuple[Callable[[], None], Config]:
        if way == too_large:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return lambda: None, bench._config(case, [])

    monkeypatch.setattr(bench.subprocess, "run", raising(AssertionError()))  # in which a CPU's memory is measured
    monkeypatch.setattr(bench, "find_device", lambda config: (torch.device("cuda"), "bf16"))
    monkeypatch.setattr(bench, "_step", step)
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 10**9)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 10**9)
    measured = bench._case(0, bench._options([]))
    assert [(steps.way, steps.memory_gb) for steps in measured] == [(way, 2.0) for way in ways]


def test_what_is_measured_is_written_before_the_next_case(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def case(index: int, options: object) -> list[Any]:
        if index == 1:
            raise RuntimeError("the device is gone")
        return [bench.Timings("first", "fast", [1.0], 1.0, 1.0, 1e9, 2)]

    monkeypatch.setattr(bench, "CASES", [("first", "data=mnist_sample"), ("second", "data=mnist_sample")])
    monkeypatch.setattr(bench, "_ceilings", lambda device, precision: {})
    monkeypatch.setattr(bench, "_case", case)
    with pytest.raises(RuntimeError, match="the device is gone"):
        bench.main(["trainer=cpu", "--cases", "0", "1", f"--output={tmp_path}"])
    (page,) = tmp_path.glob("*.md")
    assert "| first | 1 (1 – 1) |" in page.read_text()


def test_emulated_bfloat16_is_not_timed(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_best", lambda act, device: 1.0)
    found = {precision: list(bench._ceilings(torch.device("cpu"), precision)) for precision in ("float32", "bf16")}
    assert found["float32"] == ["matrix product, float32", "convolution, float32"]
    assert found["bf16"] == [*found["float32"], "matrix product, bfloat16", "convolution, bfloat16"]
