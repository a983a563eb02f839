"""What is drawn when one number of a class capsule changes."""

import pytest
import torch
from support import composed_config

from capsexp.inspect.traversal import OFFSETS, traverse
from capsexp.run.build import build
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan


@pytest.fixture
def module() -> CapsuleModule:
    """A small CapsNet whose decoder draws differently when a capsule changes."""
    torch.manual_seed(0)
    config = composed_config(
        "data=mnist_sample", "budget=demo", "budget.width=0.04", "reconstruction.enabled=true", "model.class_pose=5"
    )
    return CapsuleModule(Plan(config, torch.device("cpu"), "float32", None, None), build(config)).eval()


def test_the_offsets_are_sabours() -> None:
    assert OFFSETS == (-0.25, -0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.25)


def test_each_dimension_is_moved_alone(module: CapsuleModule) -> None:
    pixels = torch.rand(1, 28, 28)
    drawn = traverse(module, pixels)
    assert drawn.shape == (5, 11, 1, 28, 28)
    with torch.no_grad():
        scores, poses = module(pixels[None])
        winner = scores.argmax(dim=1)
        for dimension, step in ((0, 0), (3, 10), (4, 7)):
            changed = poses.clone()
            changed[0, winner, dimension] += OFFSETS[step]
            torch.testing.assert_close(drawn[dimension, step], module.decoder(changed, winner)[0])
        torch.testing.assert_close(drawn[:, 5], module.decoder(poses, winner).expand(5, -1, -1, -1))
    assert not torch.allclose(drawn[0, 0], drawn[0, 10], atol=1e-5)
    assert not torch.allclose(drawn[0, 0], drawn[1, 0], atol=1e-5)


def test_another_class_can_be_asked_for(module: CapsuleModule) -> None:
    pixels = torch.rand(1, 28, 28)
    with torch.no_grad():
        scores, poses = module(pixels[None])
        for label in (0, 7):
            drawn = traverse(module, pixels, label)
            torch.testing.assert_close(drawn[2, 5], module.decoder(poses, torch.tensor([label]))[0])
        torch.testing.assert_close(traverse(module, pixels), traverse(module, pixels, int(scores.argmax())))
