"""Size and channels: exact area means, grey repeated, and what isn't possible refused."""

import numpy as np
import pytest
from data_formats import pixels

from capsexp.data.pixels import fit
from capsexp.errors import InputError


@pytest.mark.parametrize(("side", "size"), [(96, 32), (128, 32), (8, 4)])
def test_whole_factors_give_block_means_rounded_half_up(side: int, size: int):
    images, factor = pixels(3, side, side), side // size
    blocks = images.reshape(3, size, factor, size, factor).astype(np.int64).sum((2, 4))
    assert (fit(images, size, 1, "x")[:, 0] == np.floor(blocks / factor**2 + 0.5)).all()


def test_other_factors_weigh_pixels_by_their_part():
    row = np.array([0, 30, 90], np.uint8)
    images = np.tile(row, (1, 3, 1))
    assert fit(images, 2, 1, "x")[0, 0].tolist() == [[10, 70], [10, 70]]
    assert (fit(images.transpose(0, 2, 1), 2, 1, "x")[0, 0] == [[10, 10], [70, 70]]).all()


def test_many_images_are_averaged_like_few():
    images = pixels(1100, 4, 4)
    assert (fit(images, 2, 1, "x")[1000:] == fit(images[1000:], 2, 1, "x")).all()


def test_the_same_size_changes_nothing():
    images = pixels(2, 5, 5, 3)
    fitted = fit(images, 5, 3, "x")
    assert (fitted == images.transpose(0, 3, 1, 2)).all()
    assert fitted.flags.writeable
    assert fitted.flags.c_contiguous


def test_grey_is_repeated_to_three_channels():
    images = pixels(2, 4, 4)
    fitted = fit(images, 4, 3, "x")
    assert fitted.shape == (2, 3, 4, 4)
    assert all((fitted[:, channel] == images).all() for channel in range(3))


def test_refusals():
    with pytest.raises(InputError, match=r"^data.channels=1: must be 3"):
        fit(pixels(2, 4, 4, 3), 4, 1, "x")
    with pytest.raises(InputError, match=r"^data.size=5: must be at most 4"):
        fit(pixels(2, 4, 4), 5, 1, "x")
    with pytest.raises(InputError, match=r"^data.size=4: .* 4×6"):
        fit(pixels(2, 4, 6), 4, 1, "x")
