"""docs/library.md: each of its snippets runs, and does what it says."""

import re

import torch
from support import ROOT, Trained

from capsexp.models import CapsNet, DACapsNet
from capsexp.nn import AttentionOptions

TEXT = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(contains: str, **replaced: str) -> dict[str, object]:
    """The variables of the one snippet with these words."""
    (snippet,) = [snippet for snippet in SNIPPETS if contains in snippet]
    for old, new in replaced.items():
        assert old in snippet
        snippet = snippet.replace(old, new)
    variables: dict[str, object] = {}
    exec(snippet, variables)
    return variables


def test_every_snippet_is_short_and_run_below() -> None:
    tested = ("MarginLoss", "partial", "fast.enable", "CapsuleResNet", "capsexp.load")
    assert [sum(words in snippet for snippet in SNIPPETS) for words in tested] == [1] * len(SNIPPETS)
    assert all(len(snippet.splitlines()) <= 18 for snippet in SNIPPETS)


def test_training_moves_every_parameter() -> None:
    found = run("MarginLoss", **{"(128": "(32"})  # one step of four
    assert found["scores"].shape == (32, 10)
    assert found["poses"].shape == (32, 10, 16)
    assert all(parameter.grad is not None for parameter in found["net"].parameters())


def test_options_make_networks() -> None:
    run("partial")


def test_a_fast_network_has_a_score_a_class() -> None:
    network = run("fast.enable")["net"]
    assert network(torch.rand(2, 3, 32, 32)).scores.shape == (2, 10)


def test_a_capsule_layer_in_a_resnet_learns() -> None:
    network = run("CapsuleResNet")["CapsuleResNet"](5)
    scores = network(torch.rand(2, 3, 224, 224))
    assert scores.shape == (2, 5)
    assert ((scores > 0) & (scores < 1)).all()
    scores.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_trained_run_is_loaded(trained: Trained) -> None:
    for path in ("sample", str(trained.folder)):
        found = run("capsexp.load", **{'("sample")': f'("{path}")'})
        assert found["scores"].shape == (2, 10)


def test_the_pictures_shapes_are_those_of_the_layers() -> None:
    picture = (ROOT / "docs" / "networks.svg").read_text(encoding="utf-8")
    printed = [tuple(map(int, shape.split(" × "))) for shape in re.findall(r"shape small\">([^<]*)<", picture)]
    given: list[tuple[int, ...]] = []
    for network, image in (
        (CapsNet((1, 28, 28), 10, attention=AttentionOptions(cbam=True)), (1, 28, 28)),
        (DACapsNet((3, 32, 32), 10), (3, 32, 32)),
    ):
        given.append(image)
        for module in network.modules():
            module.register_forward_hook(lambda _, __, output: given.append(shape_of(output)))
        network(torch.rand(1, *image))
        assert f"{sum(parameter.numel() for parameter in network.parameters()):,} parameters" in picture
    given += [(1152, 8), (10,)]  # the primary capsules without their positions, and scores
    assert len(printed) == 17
    assert set(printed) <= set(given)


def shape_of(output: object) -> tuple[int, ...]:
    """Of a layer's first tensor, without the batch and sides of 1."""
    tensor = output[0] if isinstance(output, tuple) else output
    assert isinstance(tensor, torch.Tensor)
    return tuple(side for side in tensor.shape[1:] if side > 1)
