"""Reconstructions with one component of the predicted capsule changed."""

import numpy as np
import torch
from matplotlib.figure import Figure
from support import Trained

from capsexp.figures.traversal import OFFSETS, draw_traversal, traverse
from capsexp.run.restore import restore


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


def test_the_picture_has_differences_beside_the_reconstruction() -> None:
    reconstructions = torch.full((2, 11, 1, 4, 4), 0.5)
    reconstructions[1, 10] += 0.02  # too little to be seen as it is
    axis = Figure().subplots()
    drawn = draw_traversal(axis, reconstructions)
    picture = np.asarray(axis.images[0].get_array())
    tiles = {
        (row, column): picture[5 * row + 1 : 5 * row + 5, 5 * column + 1 : 5 * column + 5]
        for row, column in ((0, 5), (1, 5), (0, 10), (1, 0), (1, 10))
    }
    np.testing.assert_allclose(tiles[0, 5], 0.5)
    np.testing.assert_allclose(tiles[1, 5], 0.5)
    assert drawn.get_clim() == (-np.float32(0.52) + np.float32(0.5), np.float32(0.52) - np.float32(0.5))
    for place, value in (((0, 10), 0.0), ((1, 0), 0.0), ((1, 10), 0.02)):
        np.testing.assert_allclose(tiles[place][0, 0], drawn.to_rgba(value)[:3], atol=1e-3)
    assert np.ptp(tiles[1, 10].mean(axis=(0, 1))) > 0.2  # coloured
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["1", "2"]
