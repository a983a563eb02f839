"""Primary capsules, linear capsules and the decoder: which inputs each output depends on."""

from types import SimpleNamespace

import pytest
import torch

from capsexp.nn import capsules
from capsexp.nn.capsules import LinearCapsules, PrimaryCapsules
from capsexp.nn.decoder import Decoder, mask
from capsexp.nn.routing import Capsules
from capsexp.nn.squash import squash
from capsexp.routing.dynamic import DynamicRouting


def test_a_primary_capsules_components_come_from_one_position() -> None:
    layer = PrimaryCapsules(channels=3, types=4, pose=8, kernel=3, stride=2)
    features = torch.randn(2, 3, 9, 11)
    maps = layer.convolution(features)  # [2, 32, 4, 5]
    poses = layer(features).poses
    assert poses.shape == (2, 4 * 4 * 5, 8)
    kind, row, column = 2, 3, 1
    expected = squash(maps[:, kind * 8 : kind * 8 + 8, row, column])
    torch.testing.assert_close(poses[:, (kind * 4 + row) * 5 + column], expected)


def test_changing_one_position_of_the_map_changes_only_its_capsules() -> None:
    layer = PrimaryCapsules(channels=1, types=2, pose=4, kernel=1, stride=1)
    features = torch.randn(1, 1, 3, 3)
    changed = features.clone()
    changed[0, 0, 1, 2] += 1
    differs = (layer(features).poses != layer(changed).poses).any(-1)[0].view(2, 3, 3)
    assert differs.nonzero().tolist() == [[0, 1, 2], [1, 1, 2]]


def test_each_pair_of_capsules_has_its_own_matrix() -> None:
    layer = LinearCapsules(5, 3, 4, 6, DynamicRouting(3, 6))
    poses = torch.randn(2, 5, 4)
    votes = layer.votes(Capsules(poses)).poses
    assert votes.shape == (2, 5, 3, 6)
    torch.testing.assert_close(votes[1, 4, 2], layer.matrices.weight[4, 2] @ poses[1, 4])


def test_the_decoders_input_is_the_chosen_capsule_at_its_place() -> None:
    poses = torch.randn(2, 10, 16)
    masked = mask(poses, torch.tensor([3, 0])).view(2, 10, 16)
    torch.testing.assert_close(masked[0, 3], poses[0, 3])
    torch.testing.assert_close(masked[1, 0], poses[1, 0])
    assert masked.abs().sum((0, 2)).nonzero().flatten().tolist() == [0, 3]
    decoder = Decoder(10, 16, [512, 1024], (1, 28, 28))
    assert decoder.layers[0].in_features == 160
    assert sum(p.numel() for p in decoder.parameters()) == 1_411_344
    pixels = decoder(poses, torch.tensor([3, 0]))
    assert pixels.shape == (2, 1, 28, 28)
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    same_pose_elsewhere = poses[:, torch.tensor([0, 1, 2, 4, 3, 5, 6, 7, 8, 9])]
    assert not torch.equal(decoder(same_pose_elsewhere, torch.tensor([4, 0]))[0], pixels[0])


def test_the_limits_of_votes_follow_the_gpus_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([16 * 2**30, 80 * 2**30])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=next(sizes)))
    found = [capsules.vote_limits(torch.device("cuda")) for _ in range(2)]
    assert found == [(2**28, 2**30), (5 * 2**28, 5 * 2**30)]
    assert capsules.vote_limits(torch.device("cpu")) == (capsules.MAX_CHUNK, capsules.MAX_KEPT)
