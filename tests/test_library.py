"""The package as a library: what its imports load and change, and what a user does with a network."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import Trained, composed_config, process, refused
from torch import nn

import capsexp
from capsexp import models
from capsexp.nn import Prediction, Routing
from capsexp.routing import fast
from capsexp.routing.fast import loops, selfcheck
from capsexp.run.build import count_parameters
from capsexp.run.restore import restore

#: Each network without its configuration, and the command line that makes it with one.
NETWORKS = {
    "CapsNet": ((1, 28, 28), "model=capsnet data=mnist"),
    "DACapsNet": ((3, 32, 32), "model=da_capsnet data=cifar10"),
    "DynamicCapsNet": ((3, 32, 32), "model=dynamic_capsnet data=cifar10"),
    "EMCapsNet": ((3, 32, 32), "model=em_capsnet data=cifar10"),
    "EfficientCapsNet": ((1, 28, 28), "model=efficient_capsnet data=mnist"),
    "HuangCNN": ((3, 32, 32), "model=huang_cnn data=cifar10"),
    "InvertedCapsNet": ((3, 32, 32), "model=inverted_capsnet data=cifar10"),
    "ResNet18": ((3, 32, 32), "model=resnet18 data=cifar10"),
    "SabourCNN": ((1, 28, 28), "model=sabour_cnn data=mnist"),
    "TsaiCNN": ((3, 32, 32), "model=tsai_cnn data=cifar10"),
    "TsaiMultiCNN": ((1, 36, 36), "model=tsai_cnn_multimnist data=diverse_multimnist"),
}

#: One for each `forward`: the convolutional networks share theirs.
FORWARDS = ("CapsNet", "DACapsNet", "DynamicCapsNet", "EMCapsNet", "EfficientCapsNet", "InvertedCapsNet", "ResNet18")


def small(name: str, *routing: str) -> tuple[nn.Module, torch.Tensor]:
    """A narrow network in evaluation mode, and two images for it."""
    torch.manual_seed(0)
    shape, _ = NETWORKS[name]
    return getattr(models, name)(shape, 10, *routing, width=0.05).eval(), torch.rand(2, *shape)


def test_imports_load_torch_alone_and_change_nothing() -> None:
    code = """
import sys, torch
before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, list(sys.meta_path)
import capsexp
from capsexp.models import CapsNet
from capsexp.nn import AttentionOptions, MarginLoss
from capsexp.routing import DynamicRouting
from capsexp.routing.fast import enable
enable(CapsNet((1, 28, 28), 10, width=0.1))
assert before == (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, list(sys.meta_path))
print(*{"hydra", "omegaconf", "pytorch_lightning", "pandas", "torchvision", "torchmetrics"} & set(sys.modules))
"""
    done = process("-c", code)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_all_networks_are_here() -> None:
    assert sorted(NETWORKS) == sorted(models.__all__)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_defaults_are_those_of_the_configuration(name: str) -> None:
    shape, words = NETWORKS[name]
    with torch.device("meta"):
        network = getattr(models, name)(shape, 10)
    parameters = sum(p.numel() for p in network.parameters())
    config = composed_config(*words.split())
    assert parameters == count_parameters(config)
    if "iterations" in config.routing.arguments:
        (procedure, *_) = [module for module in network.modules() if isinstance(module, Routing)]
        assert procedure.iterations == config.routing.arguments["iterations"]
        assert type(procedure).__name__ == config.routing.target.rpartition(".")[2]


@pytest.mark.parametrize("name", NETWORKS)
def test_copies_empty_batches_single_images_and_features(name: str) -> None:
    network, images = small(name)
    for switch in (fast.disable, fast.enable):
        switch(network)
        copied, (scores, poses) = copy.deepcopy(network), network(images)
        assert torch.equal(copied(images).scores, scores)
        nn.init.ones_(next(copied.parameters()))
        assert not torch.equal(copied(images).scores, network(images).scores)
        assert network(images[:0]).scores.shape == (0, 10)
        torch.testing.assert_close(network(images[:1]).scores, scores[:1])
        if poses is not None:  # of capsules, which another classifier may read
            assert torch.equal(network.classes(network.forward_features(images)).poses, poses)


@pytest.mark.parametrize("name", FORWARDS)
def test_torch_compiles_every_network_without_a_graph_break(name: str) -> None:
    network, images = small(name)
    torch.compiler.reset()  # of the networks before, which share a forward
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    scores, expected = compiled(images).scores, network(images).scores
    torch.testing.assert_close(scores, expected)
    weight = next(network.parameters())
    (ours,), (theirs,) = (torch.autograd.grad(found.square().sum(), weight) for found in (scores, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * theirs.abs().max().item())


@pytest.mark.parametrize("name", NETWORKS)
def test_torch_exports_every_network(name: str) -> None:
    network, images = small(name)
    with torch.no_grad():
        batch = ({0: torch.export.Dim("batch")},)
        exported = torch.export.export(network, (images,), dynamic_shapes=batch).module()
        for some in (images, torch.cat([images, images.flip(0)])):
            torch.testing.assert_close(exported(some)[0], network(some).scores)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_has_every_network_for_any_batch(name: str, tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    network, images = small(*name.split())
    file, batch = tmp_path / "net.onnx", ({0: torch.export.Dim("batch")},)
    fast.enable(network)
    torch.onnx.export(network, (images,), file, dynamo=True, dynamic_shapes=batch, verbose=False)
    loaded, more = reference.ReferenceEvaluator(str(file)), torch.cat([images, images.flip(0)])
    with torch.no_grad():
        expected = network(more).scores
    found = torch.from_numpy(loaded.run(None, {loaded.input_names[0]: more.numpy()})[0])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_images_need_not_be_square(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turned images have as many positions, and a network for them as many parameters."""
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
    made = getattr(models, name)
    network, turned = (made((3, *size), 10, width=0.1).eval() for size in ((40, 52), (52, 40)))
    images = torch.rand(2, 3, 40, 52)
    scores = network(images).scores
    fast.enable(network)
    torch.testing.assert_close(network(images).scores, scores, rtol=1e-4, atol=1e-5)
    network.train()(images)
    assert ("loops" in fast.paths(network)) is (name in ("CapsNet", "DynamicCapsNet", "EMCapsNet", "InvertedCapsNet"))
    counts = {sum(p.numel() for p in one.parameters()) for one in (network, turned)}
    assert (scores.shape, len(counts)) == ((2, 10), 1)


@pytest.mark.parametrize("name", ["CapsNet", "EMCapsNet", "InvertedCapsNet"])
def test_a_network_that_is_traced_has_no_fast_paths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled, exported, traced and transformed by torch.func; before and after, the paths are used."""
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
    monkeypatch.setattr(selfcheck, "_failures", {})
    network, images = small(name)
    expected = network(images).scores
    fast.enable(network)
    exported = torch.export.export(network, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    torch.compiler.reset()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    traced = torch.jit.trace(network, images, check_trace=False)
    weights = dict(network.named_parameters())
    torch.func.grad(lambda one: torch.func.functional_call(network, one, (images,)).scores.sum())(weights)
    for found in (exported(images)[0], compiled(images).scores, traced(images)[0]):
        torch.testing.assert_close(found, expected)
    network.train()(images)
    assert fast.paths(network) not in ("reference", "stored votes")
    assert not any(selfcheck._failures.values())


def test_a_trained_run_is_loaded_in_evaluation_mode(trained: Trained) -> None:
    network = capsexp.load(trained.folder)
    assert not any(module.training for module in network.modules())
    pixels = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        prediction: Prediction = network(pixels)
        torch.testing.assert_close(network(pixels), restore(trained.folder)(pixels))
        drawn = network.decoder(prediction.poses, prediction.scores.argmax(dim=1))
        traced = torch.jit.trace(network, pixels, check_trace=False)
        torch.testing.assert_close(traced(pixels[:2])[0], network(pixels[:2]).scores)
    assert drawn.shape == pixels.shape


def test_a_loaded_network_makes_its_images_of_any_picture(trained: Trained, tmp_path: Path) -> None:
    network = capsexp.load(trained.folder)
    assert (network.size, network.classes) == (28, tuple("0123456789"))
    grey = np.full((20, 30), 51, np.uint8)
    Image.fromarray(grey).save(tmp_path / "a.png")
    for image in (str(tmp_path / "a.png"), tmp_path / "a.png", grey, Image.fromarray(grey).convert("RGB")):
        torch.testing.assert_close(network.preprocess(image), torch.full((1, 28, 28), 0.2))
    for pixels, kind in ((torch.rand(1, 28, 28), "float32 [1, 28, 28]"), (grey[..., None], "uint8 [20, 30, 1]")):
        line = refused(network.preprocess, pixels)
        assert line == f"pixels must be uint8 [H, W] or [H, W, 3]; they are {kind}"
