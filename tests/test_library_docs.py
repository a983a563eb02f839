"""docs/library.md: each of its snippets runs, and does what it says."""

import re

import pytest
import torch
from support import ROOT, Trained

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
    tested = ("MarginLoss", "partial", "fast.enable", "MeanRouting", "CapsuleResNet", "capsexp.load")
    assert [sum(words in snippet for snippet in SNIPPETS) for words in tested] == [1] * len(SNIPPETS)
    assert all(len(snippet.splitlines()) <= 18 for snippet in SNIPPETS)


def test_training_moves_every_parameter() -> None:
    found = run("MarginLoss")
    assert found["scores"].shape == (32, 10)
    assert found["poses"].shape == (32, 10, 16)
    assert all(parameter.grad is not None for parameter in found["net"].parameters())


def test_options_make_networks() -> None:
    run("partial")


@pytest.mark.parametrize("snippet", ["fast.enable", "MeanRouting"])
def test_a_network_has_a_score_a_class(snippet: str) -> None:
    network = run(snippet)["net"]
    images = torch.rand(2, 1, 28, 28) if snippet == "MeanRouting" else torch.rand(2, 3, 32, 32)
    assert network(images).scores.shape == (2, 10)


def test_a_capsule_layer_in_a_resnet_learns() -> None:
    network = run("CapsuleResNet")["CapsuleResNet"](5)
    scores = network(torch.rand(2, 3, 64, 64))
    assert scores.shape == (2, 5)
    assert ((scores > 0) & (scores < 1)).all()
    scores.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_trained_run_is_loaded(trained: Trained) -> None:
    for path in ("sample", str(trained.folder)):
        found = run("capsexp.load", **{'("sample")': f'("{path}")'})
        assert found["scores"].shape == (2, 10)
