"""What only a GPU shows: `make test-gpu`."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launching import records_in, reproduce
from support import AFFINE, PAIRS, ROOT, composed_config, folders, interrupt_after, numbers

from capsexp.config.schema import Preprocess
from capsexp.data.loader import Batch, TrainingLoader, moved
from capsexp.nn import BinaryCrossEntropyLoss, MarginLoss, SpreadLoss
from capsexp.routing.fast import selfcheck
from capsexp.run import records
from capsexp.run.build import build
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule, Metrics
from capsexp.run.optimization import EagerStep, make_optimizer, make_step
from capsexp.run.plan import Plan, forbid_tf32, plan

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("model", ["capsnet", "da_capsnet", "inverted_capsnet", "em_capsnet", "resnet18"])
@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_a_run_learns_on_the_gpu(model: str, precision: str, tiny: tuple[str, ...]) -> None:
    changed = (
        "trainer=gpu",
        "trainer.deterministic=false",
        f"trainer.precision={precision}",
        "budget.width=0.1",
        "optim.gradient_clip=1.0",
    )
    kept = [option for option in tiny if not option.startswith(("trainer", "budget.width"))]
    record = run(composed_config(f"model={model}", *kept, *changed, "attention.cbam=true"))
    assert record.status == "finished"
    assert record.peak_memory_mb["device"] > 0
    if model != "em_capsnet":  # the margin of its loss grows
        assert record.epochs[-1]["train_loss"] < record.epochs[0]["train_loss"]


def test_deterministic_runs_repeat_and_continue_on_the_cpu(
    tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [option for option in tiny if not option.startswith("trainer=")]
    found = []
    for place in ("first", "second"):
        found.append(run(composed_config(*kept, *folders(tmp_path / place), "trainer=gpu")))
    assert numbers(found[0]) == numbers(found[1])
    interrupt_after(1, composed_config(*kept, "trainer=gpu", "trainer.steps_at_once=1"), monkeypatch)
    continued = run(composed_config(*kept, "trainer=cpu"))
    assert continued.provenance["resumed_after_epochs"] == [1]


@pytest.mark.parametrize(("drawn", "loss"), [(PAIRS, "binary_cross_entropy"), (AFFINE, "margin")])
def test_images_are_synthesised_on_the_gpu(drawn: str, loss: str, tiny: tuple[str, ...]) -> None:
    kept = [option for option in tiny if not option.startswith("trainer")]
    config = composed_config(*kept, drawn, "data.size=40", f"loss={loss}", "trainer=gpu")
    assert run(config).status == "finished"


def test_an_epoch_on_the_gpu_has_every_image_once_and_repeats() -> None:
    images = torch.randint(0, 256, (50, 3, 20, 20), dtype=torch.uint8, device="cuda")
    moving = Preprocess(normalize=False, shift=0.1, crop_padding=0, flip=True)

    def epoch() -> tuple[torch.Tensor, torch.Tensor]:
        loader = TrainingLoader(images, torch.arange(50, device="cuda"), 8, moving, 0, lambda: 3)
        pixels, labels, _ = zip(*loader, strict=True)
        return torch.cat(pixels), torch.cat(labels)

    pixels, labels = epoch()
    assert pixels.device.type == "cuda"
    assert sorted(labels.tolist()) == list(range(50))
    assert torch.equal(pixels, epoch()[0])


def test_shifted_images_equal_those_of_the_cpu() -> None:
    images = torch.randint(0, 256, (30, 3, 20, 20), dtype=torch.uint8)
    shifts, mirrored = torch.randint(-4, 5, (30, 2)), torch.rand(30) < 0.5
    assert torch.equal(moved(images.cuda(), shifts.cuda(), mirrored.cuda()).cpu(), moved(images, shifts, mirrored))


@pytest.mark.parametrize(
    "options",
    [
        "model=inverted_capsnet data=cifar10 routing.iterations=1",
        "model=inverted_capsnet data=cifar10 routing.iterations=3",
        "model=inverted_capsnet data=cifar10 routing.order=sequential",
        "model=inverted_capsnet_cifar100 data=cifar100",
        "model=inverted_capsnet_multimnist data=diverse_multimnist budget.width=0.25",
        "model=em_capsnet data=cifar10",
        "model=em_capsnet data=cifar10 routing.iterations=3 routing.density=mean",
    ],
)
def test_fast_routing_equals_the_reference(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck, "agrees", lambda *_: True)  # else the reference replaces a path that fails its check
    forbid_tf32()
    results = []
    for way in ("fast", "reference"):
        config = composed_config(*options.split(), f"trainer.routing={way}")
        torch.manual_seed(0)
        network = build(config).network.cuda()
        images = torch.rand(4, config.data.channels, config.data.size, config.data.size).cuda()
        scores = network(images).scores
        scores.square().sum().backward()
        gradients = [part.grad.flatten() for part in network.parameters() if part.grad is not None]
        results.append([scores.detach(), torch.cat(gradients)])  # that of a bias before a batch norm is rounding error
    for fast, reference in zip(*results, strict=True):
        assert (fast - reference).norm() <= 1e-3 * reference.norm()


def test_float32_is_not_tf32() -> None:
    """TF32's products would be a thousand times as far from those in float64."""
    forbid_tf32()
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    images, weight = torch.randn(8, 64, 16, 16), torch.randn(64, 64, 3, 3)
    product, convolved = a.double() @ b.double(), torch.nn.functional.conv2d(images.double(), weight.double())
    for found, exact in (
        (a.cuda() @ b.cuda(), product),
        (torch.nn.functional.conv2d(images.cuda(), weight.cuda()), convolved),
    ):
        assert (found.cpu() - exact).norm() < 1e-5 * exact.norm()


def module_on(device: str, options: str) -> CapsuleModule:
    """A run's module, on the device; planned without looking for the data's files."""
    config = composed_config(*options.split(), "budget=demo", "trainer.precision=bf16")
    torch.manual_seed(0)
    return CapsuleModule(Plan(config, torch.device(device), "bf16", None, None), build(config)).to(device)


def random_batches(module: CapsuleModule, count: int, size: int = 32) -> list[Batch]:
    data = composed_config(f"data={module.planned.config.data.name}").data
    shape = (size, data.channels, data.size, data.size)
    return [
        Batch(torch.rand(shape, device="cuda"), torch.randint(data.classes, (size,), device="cuda"))
        for _ in range(count)
    ]


STEPPED = [
    "model=capsnet data=mnist reconstruction.enabled=true attention=cbam",
    "model=da_capsnet data=cifar10",
    "model=inverted_capsnet data=cifar10 routing.iterations=1",
    "model=inverted_capsnet data=cifar10 routing.iterations=2 model.backbone=resnet",
    "model=em_capsnet data=cifar10 loss=spread",
    "model=huang_cnn data=cifar10",
    "model=efficient_capsnet data=mnist",
]


@pytest.mark.parametrize("options", STEPPED)
def test_a_captured_step_is_the_eager_step(options: str) -> None:
    losses = []
    for captured in (False, True):
        module = module_on("cuda", options)
        optimizer = make_optimizer(module.parameters(), module.planned.config.optim)
        eager = EagerStep(module.loss_and_scores, torch.Tensor.backward, optimizer)
        step = make_step(eager, cuda=True, captured=captured)
        torch.manual_seed(1)
        batches = [*random_batches(module, 8), *random_batches(module, 1, 20), *random_batches(module, 2)]
        with torch.autocast("cuda", torch.bfloat16):
            found = []
            for number, batch in enumerate(batches):
                if number == 9:
                    optimizer.param_groups[0]["lr"] /= 10
                found.append(step(batch).loss)
        assert not captured or step.replay
        losses.append(torch.stack(found))
    torch.testing.assert_close(losses[1], losses[0], rtol=2e-2, atol=1e-4)


def test_a_capture_that_finds_no_memory_leaves_steps_with_theirs() -> None:
    """An eager step's and half of another one; the limit is torch's own, and more of the device is free."""
    module = module_on("cuda", "model=capsnet data=mnist")
    optimizer = make_optimizer(module.parameters(), module.planned.config.optim)
    eager = EagerStep(module.loss_and_scores, torch.Tensor.backward, optimizer)
    step = make_step(eager, cuda=True, captured=True)
    batches = random_batches(module, 8, 128)
    torch.cuda.empty_cache()
    with torch.autocast("cuda", torch.bfloat16):
        for batch in batches[:3]:
            step(batch)
        stored, whole = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        limit = whole + (whole - stored) / 2
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        try:
            losses = [step(batch).loss for batch in batches[3:]]
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    assert "OutOfMemoryError" in step.failed
    assert torch.stack(losses).isfinite().all()


@pytest.mark.parametrize("options", STEPPED)
def test_no_step_waits_for_the_gpu(options: str) -> None:
    module = module_on("cuda", options)
    optimizer = make_optimizer(module.parameters(), module.planned.config.optim)
    eager = EagerStep(module.loss_and_scores, torch.Tensor.backward, optimizer)
    step = make_step(eager, cuda=True, captured=True)
    metrics = Metrics().cuda()
    batches = random_batches(module, 8)
    with torch.autocast("cuda", torch.bfloat16):
        for batch in batches[:5]:  # with the capture, which waits once
            metrics.update(*step(batch), batch.labels)
        assert step.replay
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches[5:]:
                metrics.update(*step(batch), batch.labels)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("loss", [MarginLoss(), SpreadLoss(), BinaryCrossEntropyLoss(logits=False)])
def test_a_loss_of_presences_is_taken_under_autocast(loss: torch.nn.Module) -> None:
    """By a loop of one's own, which doesn't leave the region of autocast for it."""
    scores = torch.rand(4, 10, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss.cuda()(scores, torch.arange(4, device="cuda")).backward()
    assert scores.grad.isfinite().all()


def test_an_epoch_of_training_images_does_not_synchronise() -> None:
    images = torch.randint(0, 256, (500, 3, 20, 20), dtype=torch.uint8, device="cuda")
    moving = Preprocess(normalize=False, shift=0.1, crop_padding=0, flip=True)
    loader = TrainingLoader(images, torch.arange(500, device="cuda"), 64, moving, 0, lambda: 3)
    batches = iter(loader)
    next(batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(batches)) == 7
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_two_gpus_train_as_one_does(tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        options = ("data=mnist_sample", "model=resnet18", "budget=demo", "trainer=gpu", "trainer.precision=float32")
        words = (*options, *folders(tmp_path / str(processes)), "budget.epochs=1")
        started = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "capsexp")
        subprocess.run([sys.executable, *started, *words], check=True, cwd=ROOT)
        found.append(records.read(plan(composed_config(*words)).path).epochs[0])
    assert found[1]["train_loss"] == pytest.approx(found[0]["train_loss"], rel=1e-3)
    assert found[1]["test_loss"] == pytest.approx(found[0]["test_loss"], rel=1e-2)


def test_two_runs_share_the_gpu(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "trainer=gpu", "trainer.deterministic=false") == 0
    found = records_in(tmp_path).values()
    assert len(found) == 4
    assert all(record.peak_memory_mb["device"] > 0 for record in found)
