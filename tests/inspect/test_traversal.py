"""Reconstructions with one component of the predicted capsule changed."""

import torch
from support import Trained

from capsexp.inspect.restore import restore
from capsexp.inspect.traversal import OFFSETS, traverse


def test_the_offsets_are_sabours() -> None:
    assert OFFSETS == (-0.25, -0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.25)


def test_each_dimension_is_changed_alone(trained: Trained) -> None:
    module, pixels = restore(trained.folder).module, torch.rand(1, 28, 28)
    assert module.decoder is not None
    reconstructions = traverse(module, pixels)
    assert reconstructions.shape == (16, 11, 1, 28, 28)
    with torch.no_grad():
        scores, poses = module(pixels[None])
        predicted = scores.argmax(dim=1)
        for dimension, step in ((0, 0), (3, 10), (4, 7)):
            changed = poses.clone()
            changed[0, predicted, dimension] += OFFSETS[step]
            torch.testing.assert_close(reconstructions[dimension, step], module.decoder(changed, predicted)[0])
        unchanged = module.decoder(poses, predicted)
        torch.testing.assert_close(reconstructions[:, 5], unchanged.expand(16, -1, -1, -1))
    assert not torch.allclose(reconstructions[0, 0], reconstructions[0, 10], atol=1e-5)
    assert not torch.allclose(reconstructions[0, 0], reconstructions[1, 0], atol=1e-5)
