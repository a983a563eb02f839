"""Capsules, linear and on a grid, and the decoder: positions, types and components stay in order."""

from functools import partial

import pytest
import torch
from torch import nn

from capsexp.nn import (
    Capsules,
    ClassScores,
    ConvCapsules,
    Decoder,
    LinearCapsules,
    PrimaryCapsules,
    Routing,
    TransformationMatrices,
    make_routing,
    squash,
)
from capsexp.nn.capsules import patches
from capsexp.nn.decoder import mask
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting

PROCEDURES = [DynamicRouting, EMRouting, InvertedRouting]


@pytest.mark.parametrize("stride", [1, 2])
def test_the_centre_of_a_patch_is_the_input_there(stride: int):
    grid = torch.randn(2, 7, 7, 3, 4)
    found = patches(grid, 3, stride)
    assert found.shape == (2, (7 - 3) // stride + 1, (7 - 3) // stride + 1, 9, 3, 4)
    assert torch.equal(found[:, :, :, 4], grid[:, 1:-1:stride, 1:-1:stride])
    assert torch.equal(found[:, 1, 0, 5], grid[:, stride + 1, 2])  # k = 5: row 1, column 2


def test_activations_go_with_their_poses():
    poses = torch.randn(2, 5, 5, 3, 4, dtype=torch.float64)
    layer = ConvCapsules(3, 2, 4, 4, 3, 1, EMRouting(parents=2)).double()
    votes = layer.votes(Capsules(poses, poses[..., 0]))
    found = patches(poses, 3, 1).flatten(3, 4)
    assert torch.equal(votes.activations, found[..., 0])
    torch.testing.assert_close(votes.poses, layer.matrices(found))


def test_a_printed_layer_says_what_it_is() -> None:
    layer = ConvCapsules(3, 2, 4, 4, 3, 1, EMRouting(parents=2, iterations=5))
    assert repr(layer).splitlines()[:5] == [
        "ConvCapsules(",
        "  kernel=3, stride=1",
        "  (matrices): TransformationMatrices(children=27, parents=2, 2×2)",
        "  (routing): EMRouting(",
        "    iterations=5",
    ]


@pytest.mark.parametrize(("structure", "fan"), [("vector", 16), ("matrix", 4)])
def test_a_vote_is_a_product_and_the_initial_scale_that_of_tsais_release(structure: str, fan: int):
    matrices, poses = TransformationMatrices(50, 10, 16, 16, structure), torch.randn(50, 16)  # type: ignore[arg-type]
    assert matrices.weight.std().item() == pytest.approx((10 / (fan * 50)) ** 0.5, rel=0.05)
    pose = poses[7].view(4, 4) if structure == "matrix" else poses[7]
    torch.testing.assert_close(matrices(poses)[7, 3], (matrices.weight[7, 3] @ pose).flatten())


def test_shared_matrices_are_the_same_at_every_position():
    poses = torch.randn(2, 3, 3, 4, 5, dtype=torch.float64)
    layer = LinearCapsules(4, 2, 5, 6, DynamicRouting(), shared=True).double()
    votes = layer.votes(Capsules(poses)).poses
    assert votes.shape == (2, 3 * 3 * 4, 2, 6)
    torch.testing.assert_close(votes.view(2, 3, 3, 4, 2, 6)[1, 2, 0], layer.matrices(poses[1, 2, 0]))


@pytest.mark.parametrize("kind", PROCEDURES)
def test_the_components_of_a_primary_capsule_are_of_one_position(kind: type[Routing]):
    needed = {"presence": kind.presence, "activations": kind is EMRouting}
    layer = PrimaryCapsules(3, 2, 4, 1, **needed, squash_constant=0.5).double()
    features = torch.randn(1, 3, 5, 5, dtype=torch.float64)
    moved = features.clone()
    moved[0, :, 3, 1] += 1
    before, after = layer(features), layer(moved)
    changed = (before.poses != after.poses).any(dim=-1)[0]
    assert changed.nonzero().tolist() == [[3, 1, 0], [3, 1, 1]]  # both types there
    raw = layer.convolution(features)[0, 4:8, 3, 1]  # the second type
    if kind is EMRouting:
        torch.testing.assert_close(before.poses[0, 3, 1, 1], raw)
        torch.testing.assert_close(before.activations[0, 3, 1, 1], layer.activation(features).sigmoid()[0, 1, 3, 1])
    elif kind is InvertedRouting:
        torch.testing.assert_close(before.poses[0, 3, 1, 1], nn.functional.layer_norm(raw, (4,)))
    else:
        torch.testing.assert_close(before.poses[0, 3, 1, 1], squash(raw, 0.5))
        torch.testing.assert_close(before.activations, before.poses.norm(dim=-1))


def test_frozen_matrices_get_no_gradient_but_pass_it_on():
    layer = LinearCapsules(5, 3, 4, 4, DynamicRouting(gradient="none"))
    assert not any(p.requires_grad for p in layer.parameters())
    poses = torch.randn(2, 5, 4, requires_grad=True)
    layer(Capsules(poses)).poses.square().sum().backward()
    assert poses.grad.abs().sum() > 0


def test_one_classifier_reads_every_class_capsule():
    scores = ClassScores(InvertedRouting(parents=3, pose=4), 4)
    assert sum(p.numel() for p in scores.parameters()) == 5
    poses = torch.randn(2, 3, 4)
    torch.testing.assert_close(scores(Capsules(poses)).flip(1), scores(Capsules(poses.flip(1))))
    halved = scores(Capsules(poses, torch.full((2, 3), 0.5)))
    torch.testing.assert_close(halved, scores(Capsules(poses)) / 2)


@pytest.mark.parametrize("squash_constant", [0.5, None])
def test_a_procedure_keeps_its_squash_constant_in_a_network_without_one(squash_constant: float | None) -> None:
    made = make_routing(partial(DynamicRouting, squash_constant=0.3), 4, 5, 6, 7, squash_constant)
    assert isinstance(made, DynamicRouting)
    assert made.squash_constant == (squash_constant or 0.3)


@pytest.mark.parametrize("types_first", [True, False])
def test_the_order_in_which_the_children_of_a_grid_are_numbered(types_first: bool) -> None:
    layer = LinearCapsules(2 * 3 * 4, 5, 6, 7, DynamicRouting(), types_first=types_first)
    poses, activations = torch.randn(1, 2, 3, 4, 6), torch.rand(1, 2, 3, 4)
    votes, present = layer.votes(Capsules(poses, activations))
    number = 2 * 2 * 3 + 0 * 3 + 1 if types_first else 0 * 3 * 4 + 1 * 4 + 2  # of row 0, column 1, type 2
    torch.testing.assert_close(votes[0, number, 4], layer.matrices.weight[number, 4] @ poses[0, 0, 1, 2])
    assert present[0, number] == activations[0, 0, 1, 2]


def test_a_decoder_may_have_tanh_behind_its_last_hidden_layer() -> None:
    relu, tanh = (Decoder((1, 4, 4), 3, 2, [5, 6], last) for last in ("relu", "tanh"))
    kinds = [[type(layer).__name__ for layer in one.layers] for one in (relu, tanh)]
    assert kinds[0] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert kinds[1] == ["Linear", "ReLU", "Linear", "Tanh", "Linear"]


def test_the_decoders_input_is_the_chosen_capsule_at_its_place() -> None:
    poses = torch.randn(2, 10, 16)
    decoder = Decoder((1, 28, 28), 10)
    assert decoder.layers[0].in_features == 160
    assert sum(p.numel() for p in decoder.parameters()) == 1_411_344
    pixels = decoder(poses, torch.tensor([3, 0]))
    assert pixels.shape == (2, 1, 28, 28)
    torch.testing.assert_close(pixels.flatten(1), decoder.layers(mask(poses, torch.tensor([3, 0]))).sigmoid())
    same_pose_elsewhere = poses[:, torch.tensor([0, 1, 2, 4, 3, 5, 6, 7, 8, 9])]
    assert not torch.equal(decoder(same_pose_elsewhere, torch.tensor([4, 0]))[0], pixels[0])
