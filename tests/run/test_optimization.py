"""Optimisation steps: captured and eager are equal, and none synchronises with the device."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints
from weakref import ref

import pytest
import torch
from support import composed_config, raising
from test_gpu import STEPPED, module_on
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from capsexp.config.schema import Optim
from capsexp.data.loader import Batch, moved
from capsexp.run.build import build
from capsexp.run.module import CapsuleModule, Metrics
from capsexp.run.optimization import (
    CapturedStep,
    EagerStep,
    StepOutput,
    capture_cuda_graph,
    fit_to_device,
    make_optimizer,
    make_schedule,
)
from capsexp.run.plan import plan

NETWORKS = [
    "model=capsnet data=mnist_sample reconstruction.enabled=true attention=cbam",
    "model=da_capsnet data=mnist_sample",
    "model=em_capsnet data=mnist_sample loss=spread",
    "model=inverted_capsnet data=mnist_sample routing.iterations=1",
    "model=inverted_capsnet data=mnist_sample routing.iterations=2",
    "model=dynamic_capsnet data=mnist_sample loss=binary_cross_entropy",
    "model=resnet18 data=mnist_sample",
]


def module_of(options: str) -> CapsuleModule:
    """The module of a narrow run, in float32 on the CPU."""
    config = composed_config(
        *options.split(), "budget=demo", "budget.width=0.02", "trainer=cpu", "reconstruction.hidden=[8]"
    )
    torch.manual_seed(0)
    return CapsuleModule(plan(config), build(config))


class Stub(nn.Module):
    """A network with dropout, buffers that a step changes, and one that is infinite."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
        self.register_buffer("limit", torch.tensor(torch.inf))

    def loss_and_scores(self, batch: Batch) -> StepOutput:
        scores = self.layers(batch.pixels)
        return StepOutput(nn.functional.cross_entropy(scores, batch.labels), scores)


def step_of(
    module: Stub | CapsuleModule, backward: Callable[[Tensor], object] = Tensor.backward, name: str = "adam"
) -> EagerStep:
    """The step of a network; of a module, as under Lightning."""
    optimizer = make_optimizer(module.parameters(), composed_config(f"optim.name={name}", f"optim.lr={2**-10}").optim)
    return EagerStep(module.loss_and_scores, lambda loss: backward(loss) and None, optimizer, [*module.buffers()])


def batches(*sizes: int) -> list[Batch]:
    """Random batches for the stub."""
    generator = torch.Generator().manual_seed(1)
    return [
        Batch(torch.rand(size, 4, generator=generator), torch.randint(3, (size,), generator=generator))
        for size in sizes
    ]


class Capture:
    """Stands for a CUDA graph on the CPU: each replay writes its output where the first did. Counts captures.

    Args:
        fault: of the capture, or of its replay; none if empty.
    """

    def __init__(self, step: EagerStep, fault: str) -> None:
        self.captures, self.step, self.fault = 0, CapturedStep(step, self), fault
        self.scores = list[ref[Tensor]]()  # of captures that failed

    def __call__(self, captured: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1
        step, memory = self.step, list[StepOutput]()

        def replay() -> None:
            if self.fault == "another input":
                step.input.pixels.zero_()
            kept = [value.clone() for value in step.step.state()]
            captured()
            memory.append(step.output)
            for first, new in zip(memory[0], memory[-1], strict=True):
                first.copy_(new)
            step.output = memory[0]
            for value, old in zip(step.step.state(), kept, strict=True) if self.fault == "no update" else []:
                value.copy_(old)
            if self.fault == "not a number":
                step.output.loss.fill_(torch.nan)

        if self.fault == "no memory":
            captured()
            self.scores.append(ref(step.output.scores))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return replay


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("", ""),
        ("no memory", "OutOfMemoryError: CUDA out of memory"),
        ("no update", "its first replay differs from the eager step by "),
        ("another input", "its first replay differs from the eager step by "),
        ("not a number", "its first replay differs from the eager step by inf"),
    ],
)
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_captured_step_is_the_eager_step_and_with_a_fault_steps_stay_eager(
    name: str, fault: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain, network = Stub(), Stub()
    eager, capture = step_of(plain, name=name), Capture(step_of(network, name=name), fault)
    outputs: list[list[StepOutput]] = []
    for step in (eager, capture.step):
        torch.manual_seed(0)
        outputs.append([])
        for number, batch in enumerate(batches(3, 3, 3, 3, 3, 2, 3, 3)):
            if number == 6:  # which needs no new capture
                (eager if step is eager else capture.step.step).optimizer.param_groups[0]["lr"] = 2**-12
            outputs[-1].append(step(batch))
    for expected, output in zip(*outputs, strict=True):  # later steps don't change earlier outputs
        assert torch.equal(expected.loss, output.loss)
        assert torch.equal(expected.scores, output.scores)
    tolerance = 0 if fault else 1e-6  # a captured rate is a number of float32
    for one, other in zip(network.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance / 10)
    assert all(isinstance(group["lr"], float) for group in capture.step.step.optimizer.param_groups)
    assert capture.step.failed.startswith(line)
    assert capture.captures == 1
    assert caplog.messages == ([f"no CUDA graph ({capture.step.failed}): steps are eager, and slower"] if fault else [])
    assert all(scores() is None for scores in capture.scores)  # the capture's memory is free
    assert len(capture.scores) == (fault == "no memory")


def test_a_step_that_changes_nothing_agrees_with_itself() -> None:
    weight = nn.Parameter(torch.zeros(3))
    eager = EagerStep(lambda _: StepOutput(weight.sum(), weight * 0), Tensor.backward, torch.optim.SGD([weight], 0.0))
    step = CapturedStep(eager, lambda captured: captured)
    for batch in batches(*[2] * 5):
        step(batch)
    assert step.replay


def test_in_a_region_of_autocast_weights_are_cast_again_in_each_step_and_backward_runs_outside() -> None:
    def backward(loss: Tensor) -> None:
        assert not torch.is_autocast_enabled("cpu")
        loss.backward()

    (batch,), losses = batches(8), list[list[float]]()
    for regions in (1, 3):
        step = step_of(Stub().eval(), backward, "sgd")
        step.optimizer.param_groups[0]["lr"] = 1.0
        losses.append([])
        for _ in range(regions):
            with torch.autocast("cpu", torch.bfloat16):
                losses[-1] += [step(batch).loss.item() for _ in range(3 // regions)]
                assert torch.is_autocast_enabled("cpu")
    assert losses[0] == losses[1]
    assert losses[0][2] < losses[0][1] < losses[0][0]


def test_a_batch_weight_scales_the_gradient_not_the_loss() -> None:
    whole, half = Stub().eval(), Stub().eval()
    (batch,) = batches(8)
    output = step_of(whole)(batch)
    assert output.loss == step_of(half)(batch._replace(weight=0.5)).loss
    assert not output.loss.requires_grad
    assert not output.scores.requires_grad
    for a, b in zip(whole.parameters(), half.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad / 2)  # type: ignore[operator]


@pytest.mark.parametrize("cuda", [False, True])
def test_an_optimiser_from_a_checkpoint_of_any_device_suits_this_one(cuda: bool) -> None:
    """On CUDA a fused update takes tensors of equal strides only, and any other a step on the device."""
    parameter, average = nn.Parameter(torch.ones(2, 3, 4, 4)), torch.rand(2, 3, 4, 4)
    optimizer = torch.optim.Adam([parameter], capturable=not cuda, fused=not cuda)
    optimizer.state[parameter] = {"step": 1, "exp_avg": average.to(memory_format=torch.channels_last)}
    fit_to_device(optimizer, cuda, captured=cuda)
    (group,), state = optimizer.param_groups, optimizer.state[parameter]
    assert (group["capturable"], group["fused"]) == (cuda, cuda or None)
    assert state["step"].dtype == torch.float32
    assert state["exp_avg"].is_contiguous()
    assert torch.equal(state["exp_avg"], average)
    elsewhere = nn.Parameter(torch.ones(3, device="meta"))
    unfused = torch.optim.Adamax([elsewhere])
    unfused.state[elsewhere] = {"step": torch.tensor(1.0)}
    fit_to_device(unfused, cuda, captured=cuda)
    assert unfused.state[elsewhere]["step"].device.type == ("meta" if cuda else "cpu")


def test_memory_that_is_exhausted_while_recording_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        """The end of a capture that failed fails too, and hides why."""

        def __init__(self, graph: object, capture_error_mode: str) -> None:
            assert capture_error_mode == "thread_local"  # other threads, such as a logger's, may use the GPU

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    streams, before = list[object](), SimpleNamespace(device_index=0)
    generator = SimpleNamespace(clone_state=lambda: "state", graphsafe_set_state=streams.append)
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: before)
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=None))
    monkeypatch.setattr(torch.cuda, "graph", Graph)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 9 * 10**9)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (9 * 10**9, 24 * 10**9))
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        capture_cuda_graph(raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")))
    with pytest.raises(RuntimeError, match="operation failed"):
        capture_cuda_graph(lambda: None)
    assert streams == 2 * [before, "state"]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8 * 10**9, 16 * 10**9))
    with pytest.raises(torch.OutOfMemoryError, match="up to 9,000 MB more, and 8,000 are free"):
        capture_cuda_graph(lambda: pytest.fail("a capture that can't fit"))


@pytest.mark.parametrize("options", STEPPED)
def test_what_the_gpu_tests_step_needs_no_data_files(options: str) -> None:
    assert module_on("meta", options).device.type == "meta"


class OnOneDevice(TorchDispatchMode):
    """Fails when anything is copied between devices. Reading a number of a meta tensor fails by itself."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            devices = {part.device.type for part in (*args, result) if isinstance(part, Tensor) and part.dim()}
            assert len(devices) <= 1, f"{func} between {devices}"
        return result


def test_convolutions_on_a_cpu_are_channels_last() -> None:
    weight = module_of("model=da_capsnet data=cifar10").network.convolution.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()


@pytest.mark.parametrize("options", NETWORKS)
def test_no_step_synchronises_with_the_device(options: str) -> None:
    module = module_of(options).to("meta")
    metrics = Metrics().to("meta")
    step = step_of(module)
    shifts = torch.randint(-2, 3, (6, 2), device="meta")
    images, labels = torch.empty(6, 1, 28, 28, device="meta"), torch.empty(6, dtype=torch.int64, device="meta")
    with OnOneDevice():
        for _ in range(2):
            pixels = moved(images, shifts, torch.empty(6, dtype=torch.bool, device="meta"))
            metrics.update(*step(Batch(pixels, labels)), labels)


def test_reading_and_copying_between_devices_are_detected() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        torch.empty((), device="meta").item()
    with OnOneDevice(), pytest.raises(AssertionError, match="between"):
        torch.ones(3).to("meta")


def test_metrics_add_up_over_batches_of_any_size() -> None:
    metrics = Metrics()
    metrics.update(torch.tensor(1.0), torch.eye(3), torch.tensor([0, 1, 0]))
    metrics.update(torch.tensor(3.0), torch.eye(3)[:1], torch.tensor([0]))
    assert metrics.results("test") == {"test_loss": 1.5, "test_accuracy": 75.0}
    metrics.reset()
    metrics.update(torch.tensor(2.0), torch.eye(3), torch.tensor([2, 2, 2]))
    assert metrics.results("train") == {"train_loss": 2.0, "train_accuracy": 33.33333}


@pytest.mark.parametrize("words", ["", " loss=spread reconstruction.reduction=mean reconstruction.weight=0.4"])
def test_the_error_of_reconstructions_is_measured_beside_the_loss(words: str) -> None:
    module = module_of(f"model=capsnet data=mnist_sample reconstruction.enabled=true{words}").eval()
    drawn = [Batch(torch.rand(size, 1, 28, 28), torch.randint(10, (size,))) for size in (2, 4)]
    with torch.inference_mode():
        module.validation_step(drawn, 0)
        errors = [
            (module.decoder(module(pixels).poses, labels) - pixels).square().flatten(1) for pixels, labels, _ in drawn
        ]
    error = torch.cat(errors).mean() if words else torch.cat(errors).sum(dim=1).mean()
    assert module.eval_metrics.results("test")["test_reconstruction"] == pytest.approx(error.item(), rel=1e-3)
    weightless = module_of("model=capsnet data=mnist_sample reconstruction.enabled=true reconstruction.weight=0")
    weightless.validation_step(drawn, 0)
    assert "test_reconstruction" not in weightless.eval_metrics.results("test")


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        ("model=inverted_capsnet", [0.1]),  # milestones [150, 250] of 350; none is before the first epoch
        ("model=inverted_capsnet", [0.1] * 3 + [0.01] * 2 + [0.001] * 2),
        ("optim.schedule=cosine optim.epochs=4", [0.1, 0.08535534, 0.05, 0.01464466]),
        ("optim.schedule=exponential optim.factor=0.5 optim.epochs=6 budget.epochs=3", [0.1, 0.025, 0.00625]),
        ("optim.schedule=constant optim.warmup=3 optim.epochs=6", [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]),
        ("optim.schedule=cosine optim.warmup=2 optim.epochs=8 budget.epochs=4", [0.05, 0.1, 0.075, 0.025]),
        ("optim.schedule=steps optim.warmup=1 optim.milestones=[2] optim.epochs=4", [0.05, 0.1, 0.01, 0.01]),
    ],
)
def test_schedules_are_scaled_to_the_epochs(words: str, rates: list[float]) -> None:
    config = composed_config("data=mnist_sample", "optim.name=sgd", "optim.lr=0.1", *words.split())
    optimizer = make_optimizer([nn.Parameter(torch.zeros(1))], config.optim)
    schedule = make_schedule(optimizer, config.optim, len(rates))
    found = []
    for _ in rates:
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()  # type: ignore[union-attr,call-arg]
    assert found == pytest.approx(rates)


@pytest.mark.parametrize(("of", "improving"), [("train_loss", [3.0, 2.0, 1.0]), ("test_accuracy", [1.0, 2.0, 3.0])])
def test_a_plateaus_loss_improves_downwards_and_an_accuracy_upwards(of: str, improving: list[float]) -> None:
    config = composed_config("data=mnist_sample", "optim.lr=0.1", "optim.patience=0", f"optim.plateau_of={of}")
    optimizer = make_optimizer([nn.Parameter(torch.zeros(1))], config.optim)
    schedule, rates = make_schedule(optimizer, config.optim, 6), []
    for value in [*improving, *reversed(improving)]:
        schedule.step(value)  # type: ignore[union-attr,arg-type]
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[2] == 0.1 > rates[-1]


@pytest.mark.parametrize("name", get_args(get_type_hints(Optim)["name"]))
def test_an_optimiser_of_torch_steps_as_torch_does(name: str) -> None:
    optim = composed_config("data=mnist_sample", f"optim.name={name}", "optim.lr=0.01").optim
    (kind,) = (value for key, value in vars(torch.optim).items() if key.lower() == name and isinstance(value, type))
    ours, theirs = (nn.Parameter(torch.ones(3)) for _ in range(2))
    own = make_optimizer([ours], optim)
    fit_to_device(own, cuda=False, captured=False)
    decay = {"weight_decay": 0} if name == "adamw" else {}
    for parameter, optimizer in ((ours, own), (theirs, kind([theirs], lr=0.01, **decay))):
        for _ in range(3):
            optimizer.zero_grad()
            (parameter**2 * torch.arange(1.0, 4.0)).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, torch.ones(3))
