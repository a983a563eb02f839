"""Linear capsules and the decoder: which inputs each output depends on."""

from functools import partial

import pytest
import torch

from capsexp.nn import Capsules, Decoder, LinearCapsules
from capsexp.nn.decoder import mask
from capsexp.nn.routing import make_routing
from capsexp.routing.dynamic import DynamicRouting


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
