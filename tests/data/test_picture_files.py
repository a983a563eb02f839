"""From a picture's file to pixels of one size and number of channels."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_formats import pixels
from photos import save
from PIL import Image
from support import raising, refused

from capsexp.data.pictures import Conversion, converted, files_below, is_colour, listed, pictures
from capsexp.errors import CapsexpError


def test_transparent_pixels_show_the_background(tmp_path: Path) -> None:
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[:4, :, 3] = 255  # black above, and nothing below
    save(tmp_path / "rgba.png", ink)
    Image.fromarray(ink).convert("LA").save(tmp_path / "la.png")
    Image.fromarray(ink).quantize().save(tmp_path / "palette.png")
    files = [tmp_path / f"{name}.png" for name in ("rgba", "la", "palette")]
    for channels, colour, value in ((1, "white", 255), (3, "white", 255), (1, "black", 0), (3, "black", 0)):
        images = pictures(files, Conversion(8, channels, background=colour))
        assert (images[:, :4] == 0).all()
        assert (images[:, 4:] == value).all()


def test_other_shapes_are_stretched_padded_or_cropped(tmp_path: Path) -> None:
    image = np.repeat(np.uint8([[10, 20, 30, 40]]), 2, axis=0)
    shown = {shape: pictures([image], Conversion(4, 1, shape=shape))[0] for shape in ("stretch", "pad")}
    assert (shown["stretch"] == image[0]).all()
    assert shown["pad"].tolist() == [[255] * 4, *image.tolist(), [255] * 4]
    assert pictures([image], Conversion(2, 1, shape="crop"))[0].tolist() == [[20, 30], [20, 30]]


def test_sixteen_bits_are_scaled_on_request(tmp_path: Path) -> None:
    save(tmp_path / "deep.png", np.uint16([[0, 65535], [257 * 5, 257 * 100]]))
    assert not is_colour(tmp_path / "deep.png")
    line = "must have 8 bits a colour; a run with data.reader.sixteen_bits=true takes 16"
    assert refused(pictures, [tmp_path / "deep.png"], Conversion(2, 1)) == f"{tmp_path}/deep.png: can't be used: {line}"
    floats = [np.float32([[0, 1], [0.2, 0.4]])]
    line = "image 0: can't be used: has floats; a run with data.reader.float_range=[0,1] takes those from 0 to 1"
    assert refused(pictures, floats, Conversion(2, 1)) == line
    assert pictures(floats, Conversion(2, 1, float_range=[0, 1]))[0].tolist() == [[0, 255], [51, 102]]
    line = "image 0: can't be used: has values from 0 to 1; must be from 0 to 0.5"
    assert refused(pictures, floats, Conversion(2, 1, float_range=[0, 0.5])) == line
    line = "data.reader.float_range=[1]: must be two numbers, the smaller first"
    assert refused(lambda: Conversion(2, 1, float_range=[1])) == line
    assert pictures([tmp_path / "deep.png"], Conversion(2, 1, sixteen_bits=True))[0].tolist() == [[0, 255], [5, 100]]


def test_only_the_named_formats_are_decoded(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF")
    (tmp_path / "b.png").touch()
    line = (
        f"{tmp_path}/a.png: not a PNG, JPEG, BMP, GIF, TIFF, WEBP or PPM image; {tmp_path}/b.png: can't be used: empty"
    )
    assert refused(pictures, [tmp_path / "a.png", tmp_path / "b.png"], Conversion(8, 1)) == line


def test_images_of_any_size_and_mode_are_brought_to_one_shape(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for file, shape in zip(files, ((8, 8), (3, 90), (20, 10, 3), (4, 4, 3), (8, 8, 3)), strict=True):
        save(file, np.full(shape, 77, np.uint8))
    assert pictures(files, Conversion(8, 1)).tolist() == np.full((5, 8, 8), 77).tolist()
    assert pictures(files, Conversion(8, 3)).tolist() == np.full((5, 8, 8, 3), 77).tolist()


def test_pixels_are_means_over_areas_and_stay_as_they_are_in_the_same_size() -> None:
    image = pixels(12, 24, 3)
    means = image.reshape(4, 3, 4, 6, 3).mean(axis=(1, 3))
    assert np.abs(pictures([image], Conversion(4, 3))[0] - means).max() <= 1
    assert (pictures([image[:, :12]], Conversion(12, 3))[0] == image[:, :12]).all()


def test_the_orientation_that_a_camera_notes_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown after a quarter turn clockwise
    image = pixels(8, 8)
    save(tmp_path / "a.png", image, exif=exif)
    assert (pictures([tmp_path / "a.png"], Conversion(8, 1))[0] == np.rot90(image, -1)).all()


def test_the_order_of_files_is_that_of_their_names_on_any_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk, names = os.walk, ["1.png", "2.png", "a/1.png", "b/1.png"]

    def backwards(*args: Any, **options: Any) -> Iterator[Any]:
        for place, folders, files in walk(*args, **options):
            folders.sort(reverse=True)
            yield place, folders, sorted(files, reverse=True)

    for name in names:
        save(tmp_path / name, pixels(2, 2))
    monkeypatch.setattr(os, "walk", backwards)
    assert [str(file.relative_to(tmp_path)) for file in files_below(tmp_path)] == names


@pytest.mark.parametrize(("count", "end"), [(20, "19"), (21, "19; and 1 more file"), (22, "19; and 2 more files")])
def test_of_many_problems_twenty_are_listed(count: int, end: str) -> None:
    assert listed(map(str, range(count))) == "; ".join([*map(str, range(19)), end])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "a.png: out of memory; "),
        (OSError(errno.EMFILE, "Too many open files"), r"a.png: can't be read \(Too many open files\)$"),
        (OSError(errno.EIO, "Input/output error"), r"a.png: can't be read \(Input/output error\)$"),
        (PermissionError(errno.EACCES, "Permission denied"), r"a.png: can't be read \(Permission denied\)$"),
    ],
)
def test_an_error_of_the_machine_is_no_damaged_picture(
    error: Exception, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a.png", pixels(4, 4))
    monkeypatch.setattr(Image, "open", raising(error))
    for look in (lambda file: converted([file], Conversion(4, 1)), is_colour):
        with pytest.raises(CapsexpError, match=line):
            look(tmp_path / "a.png")


def test_a_picture_is_measured_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (20_000, 10_000)).save(tmp_path / "scan.png")
    monkeypatch.setattr(Image.Image, "load", raising(AssertionError("decoded")))
    line = "has 200,000,000 pixels; a run with data.reader.max_pixels=200000000 takes it"
    assert refused(pictures, [tmp_path / "scan.png"], Conversion(4, 1)) == f"{tmp_path}/scan.png: can't be used: {line}"
    monkeypatch.undo()
    assert pictures([tmp_path / "scan.png"], Conversion(4, 1, max_pixels=200_000_000)).tolist() == [[[0] * 4] * 4]
