"""The contract of routing procedures, with procedures that are not part of the package."""

import dataclasses
from typing import Annotated, Any

import pytest
import torch
from annotated_types import Ge
from support import composed_config
from torch import Tensor, nn

from capsexp.nn import capsules
from capsexp.nn.capsules import use_reference
from capsexp.nn.routing import Capsules, Routing, VoteInputs
from capsexp.run.build import build, routing_factory


class MeanRouting(Routing):
    """Parents are the means of their votes; only what the contract requires."""

    presence = "pose"

    def __init__(self, parents: int, pose: int, *, iterations: Annotated[int, Ge(1)] = 1) -> None:
        super().__init__()
        self.iterations = iterations

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        coefficients = self.softmax(votes.new_zeros(votes.shape[:-1]))
        return Capsules(torch.einsum("...ij,...ijd->...jd", coefficients, votes))


class ChunkedMeanRouting(MeanRouting):
    """The same, in chunks of images."""

    chunked = True


class ConcurrentMeanRouting(MeanRouting):
    """The mean of the parents' previous poses and their votes' mean."""

    concurrent = True

    def iteration(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        mean = super().forward(votes)
        return mean if parents is None else Capsules((parents + mean.poses) / 2)


class FusedMeanRouting(ConcurrentMeanRouting):
    """The same without votes, except in layers with two parents."""

    def iteration_fused(self, inputs: VoteInputs, parents: Tensor | None) -> Capsules | None:
        mean = inputs.sum() / inputs.weight.shape[1]
        if mean.shape[-2] == 2:
            return None
        return Capsules(mean if parents is None else (parents + mean) / 2)


class SquashingRouting(MeanRouting):
    """Takes the network's squash constant."""

    def __init__(self, parents: int, pose: int, squash_constant: float = 1.0) -> None:
        super().__init__(parents, pose)
        self.squash_constant = squash_constant


def node(procedure: type[Routing], **options: Any) -> dict[str, Any]:
    """The configuration of a procedure."""
    return {"name": "mine", "_target_": f"{__name__}.{procedure.__name__}", **options}


def network(model: str, procedure: type[Routing], **options: Any) -> nn.Module:
    """A small network with the procedure in all layers."""
    torch.manual_seed(0)
    config = composed_config(f"model={model}", "data=mnist_sample", "model.width=0.1", "data.classes=2")
    return build(dataclasses.replace(config, routing=node(procedure, **options))).network.double()


@pytest.mark.parametrize("model", ["capsnet", "da_capsnet", "inverted_capsnet"])
@pytest.mark.parametrize("procedure", [MeanRouting, ChunkedMeanRouting, ConcurrentMeanRouting, FusedMeanRouting])
def test_every_network_takes_any_procedure(
    model: str, procedure: type[Routing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capsules, "MAX_CHUNK", 1)  # one image at a time
    fast = network(model, procedure, iterations=2)
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    scores, poses = fast(images)
    assert scores.shape == (3, 2)
    use_reference(fast)
    torch.testing.assert_close(fast(images), (scores, poses))
    (scores.square().sum() + poses.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in fast.parameters())


def test_votes_are_computed_only_where_a_fused_iteration_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = network("inverted_capsnet", FusedMeanRouting, iterations=2)
    *lower, classes = fast.capsules.layers
    for layer in lower:
        monkeypatch.setattr(layer, "votes", None)
    calls = []
    votes = classes.votes
    monkeypatch.setattr(classes, "votes", lambda children: calls.append(children) or votes(children))
    fast(torch.rand(3, 1, 28, 28, dtype=torch.float64))
    assert len(calls) == 1  # the second iteration has the same children: their votes are stored


def test_the_squash_constant_goes_to_procedures_that_take_one() -> None:
    assert routing_factory(node(SquashingRouting))(3, 4, 0.5).squash_constant == 0.5
    assert not hasattr(routing_factory(node(MeanRouting))(3, 4, 0.5), "squash_constant")
