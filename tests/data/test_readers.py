"""Each reader returns exactly the pixels and labels in files of its format, and refuses other files."""

import gzip
import pickle
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets
from data_formats import (
    NORB_TRAIN,
    Svhn,
    cifar_batch,
    configuration,
    idx,
    idx_set,
    mat,
    md5,
    mnist_files,
    norb,
    norb_files,
    pixels,
    png,
    refusal,
    write,
    write_zip,
)
from support import refused

from capsexp.config.schema import Data
from capsexp.data import coil20
from capsexp.data.mnist import idx_array
from capsexp.data.reader import fit, labelled
from capsexp.data.source import ImageSet, load
from capsexp.errors import InputError


def planes(images: np.ndarray) -> list[Any]:
    """[N, H, W] or [N, H, W, 3] → [N, C, H, W] as lists."""
    return (images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)).tolist()


@pytest.mark.parametrize(("dataset", "suffix"), [("MNIST", ""), ("FashionMNIST", ".gz"), ("KMNIST", ".gz")])
def test_idx(tmp_path: Path, dataset: str, suffix: str):
    images = load(idx_set(tmp_path, mnist_files(), dataset, suffix))
    assert images.train_images.tolist() == planes(pixels(3, 4, 4))
    assert images.test_images.tolist() == planes(pixels(2, 4, 4))
    assert (images.train_labels.tolist(), images.test_labels.tolist()) == ([3, 0, 9], [1, 2])


CIFAR = {"CIFAR10": "labels", "CIFAR100": "fine_labels"}


def cifar(root: Path, dataset: str, files: dict[str, bytes] | None = None) -> Data:
    theirs, key = getattr(torchvision.datasets, dataset), CIFAR[dataset]
    train, ((test, _),) = [name for name, _ in theirs.train_list], theirs.test_list
    every = pixels(2 * len(train), 32, 32, 3)
    written = {name: cifar_batch(every[2 * i : 2 * i + 2], [i, i + 1], key) for i, name in enumerate(train)}
    written[test] = cifar_batch(pixels(2, 32, 32, 3), [4, 0], key)
    written[theirs.meta["filename"]] = cifar_batch(pixels(0, 32, 32, 3), ["a"], theirs.meta["key"])
    written |= files or {}
    for name, contents in written.items():
        write(root / theirs.base_folder / name, contents)
    return configuration(root, "cifar", written, options={"dataset": dataset}, size=32, channels=3)


@pytest.mark.parametrize(("dataset", "count"), [("CIFAR10", 5), ("CIFAR100", 1)])
def test_cifar_in_torchvisions_files(tmp_path: Path, dataset: str, count: int):
    images = load(cifar(tmp_path, dataset))
    assert images.train_images.tolist() == planes(pixels(2 * count, 32, 32, 3))
    assert images.train_labels.tolist() == [label for i in range(count) for label in (i, i + 1)]
    assert images.test_images.tolist() == planes(pixels(2, 32, 32, 3))
    assert images.test_labels.tolist() == [4, 0]


class Huge:
    """Pickled as an empty array of 10¹⁵ bytes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return np.zeros(0).__reduce__()[0], (np.ndarray, (10**15,), b"b")


@pytest.mark.parametrize("name", ["builtins\nexec", "posix\nsystem", "numpy\nload", "capsexp.data.cifar\npickle.loads"])
def test_a_pickle_runs_no_code(tmp_path: Path, name: str):
    evil = b"c%b\n(Vopen(%r, 'w')\ntR." % (name.encode(), str(tmp_path / "opened").encode())
    data = cifar(tmp_path, "CIFAR100")
    write(tmp_path / "cifar-100-python" / "train", evil)
    assert md5(evil) in refusal(data)  # of no accepted version
    message = refusal(cifar(tmp_path, "CIFAR100", files={"train": evil}))
    assert f"refused: it holds more than bytes and arrays ({name.replace(chr(10), '.')})" in message
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("place", [".", "svhn", "SVHN", "svhn-part"])
def test_svhn(tmp_path: Path, place: str):
    svhn = Svhn(tmp_path, place=place)
    images = load(svhn.data())
    assert images.train_images.tolist() == planes(svhn.train)
    assert images.train_labels.tolist() == [1, 0, 3, 9, 0]
    assert images.test_images.tolist() == planes(svhn.test)
    assert images.test_labels.tolist() == [2, 0, 1]


def norb_set(root: Path, files: dict[str, bytes], camera: str = "left", suffix: str = "", **changes: Any) -> Data:
    for name, contents in files.items():
        write(root / "smallnorb" / (name + suffix), contents)
    return configuration(root, "norb", files, options={"camera": camera}, **{"size": 6, "classes": 5} | changes)


@pytest.mark.parametrize(("camera", "index", "suffix"), [("left", 0, ""), ("left", 0, ".gz"), ("right", 1, ".gz")])
def test_smallnorb(tmp_path: Path, camera: str, index: int, suffix: str):
    images = load(norb_set(tmp_path, norb_files(), camera, suffix))
    assert images.train_images.tolist() == planes(pixels(5, 2, 6, 6)[:, index])
    assert images.test_images.tolist() == planes(pixels(2, 2, 6, 6)[:, index])
    assert (images.train_labels.tolist(), images.test_labels.tolist()) == ([0, 1, 2, 3, 4], [4, 0])


def test_smallnorb_with_one_camera_has_no_right_one(tmp_path: Path):
    data = norb_set(tmp_path, norb_files(cameras=1), "right")
    assert refusal(data).startswith("data.reader.camera=right: must be left, since ")
    assert len(load(norb_set(tmp_path, norb_files(cameras=1))).train_images) == 5


OBJECTS, VIEWS = 3, 20


def coil_files(objects: int = OBJECTS) -> dict[str, bytes]:
    """Object o's view v: its first pixel is o, its second v. Written in the order of the names, so 10 before 2."""
    files = {}
    for number in range(1, objects + 1):
        for view in range(VIEWS):
            image = np.zeros((4, 4), np.uint8)
            image[0, :2] = number, view
            files[f"obj{number}__{view}.png"] = png(image)
    return dict(sorted(files.items()))


def coil(root: Path, files: dict[str, bytes] | None = None, packed: bool = False, **changes: Any) -> Data:
    files = coil_files() if files is None else files
    if packed:
        root.mkdir(exist_ok=True)
        write_zip(root / "coil-20-proc.zip", files, "coil-20-proc")
    else:
        for name, contents in files.items():
            write(root / "coil-20-proc" / name, contents)
    order = [f"obj{number}__{view}.png" for number in range(1, 21) for view in range(VIEWS)]
    content = b"".join(name.encode() + b"\0" + files[name] for name in order if name in files)
    return configuration(root, "coil20", {"coil-20-proc": content}, **{"classes": OBJECTS} | changes)


def views(images: ImageSet) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """(object, view) of the training and of the test images, which must agree with the labels."""
    splits = []
    for pictures, labels in ((images.train_images, images.train_labels), (images.test_images, images.test_labels)):
        assert (pictures[:, 0, 0, 0] - 1).tolist() == labels.tolist()
        splits.append([tuple(row) for row in pictures[:, 0, 0, :2].tolist()])
    return splits[0], splits[1]


def test_coil_is_divided_nine_to_one_at_random_by_a_seed(tmp_path: Path):
    (train, test), again, other = (
        views(load(coil(tmp_path, packed=packed, options={"split_seed": seed})))
        for packed, seed in ((False, 5), (True, 5), (False, 6))
    )
    assert sorted(train + test) == [(number, view) for number in (1, 2, 3) for view in range(VIEWS)]
    assert train == sorted(train)
    assert (train, test) == again != other
    assert [VIEWS * (number - 1) + view for number, view in test] == [19, 31, 34, 42, 52, 56]  # fixed for good


def test_coil_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    train, test = views(load(coil(tmp_path, options={"test_fraction": 0.5}, classes=2)))
    assert (len(train), len(test)) == (20, 20)
    assert {number for number, _ in train + test} == {1, 2}
    assert "test_fraction=0.001: leaves a split" in refusal(coil(tmp_path, options={"test_fraction": 0.001}))
    assert "of the objects 1 to 4" in refusal(coil(tmp_path, classes=4))
    with_zeros = coil(tmp_path / "zip", {"obj1__0.png": bytes(1_000_000)}, packed=True)
    monkeypatch.setattr(coil20, "_MOST", 10_000)
    assert "coil-20-proc.zip: can't be read, truncated or damaged: more than 10,000 bytes" in refusal(with_zeros)
    assert "of one size" in refusal(coil(tmp_path, coil_files() | {"obj2__3.png": png(pixels(5, 5))}))


TRAIN, TEST = "MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/t10k-images-idx3-ubyte"
MATRIX = f"smallnorb/{NORB_TRAIN}-dat.mat"


def damaged(root: Path, file: str, contents: bytes) -> Data:
    """The set that has this file, with other contents, which are accepted."""
    folder, name = file.rsplit("/", 1)
    if folder == "MNIST/raw":
        return idx_set(root, mnist_files() | {name: contents})
    if folder == "smallnorb":
        return norb_set(root, norb_files() | {name: contents})
    if folder == "svhn":
        return Svhn(root).with_file(name, contents)
    return coil(root, coil_files() | {name: contents}) if "coil" in folder else cifar(root, "CIFAR10", {name: contents})


@pytest.mark.parametrize(
    ("file", "contents", "line"),
    [
        (TRAIN, idx(pixels(3, 4, 4))[:-5], "can't be read"),
        (TEST, b"", "can't be read"),
        ("MNIST/raw/train-labels-idx1-ubyte", idx(np.array([3, 0], np.uint8)), "3 images, but labels"),
        ("MNIST/raw/t10k-labels-idx1-ubyte", idx(np.array([3, 10], np.uint8)), "label 10 is outside 0..9"),
        *(  # these dimensions take no memory
            (TRAIN, bytes([0, 0, 8, 3]) + struct.pack(">3I", *shape), "can't be read")
            for shape in ((2**32 - 1,) * 3, (2**31, 1, 1))
        ),
        ("cifar-10-batches-py/test_batch", cifar_batch(pixels(2, 32, 32, 3), [4, 10]), "label 10 is outside 0..9"),
        ("cifar-10-batches-py/data_batch_3", b"\x80\x02}", "can't be read"),
        ("cifar-10-batches-py/data_batch_2", cifar_batch(pixels(2, 32, 32, 3), [1]), "2 images, but labels"),
        ("cifar-10-batches-py/data_batch_1", pickle.dumps({"data": Huge(), "labels": [1]}, 2), "0 images, but labels"),
        ("svhn/train_32x32.mat", mat(pixels(5, 4, 4, 3), [1, 2, 11, 3, 4]), "label 11 is outside 0..9"),
        ("svhn/train_32x32.mat", mat(pixels(5, 4, 4, 3), [1, 2, 3]), "5 images, but labels"),
        ("svhn/test_32x32.mat", mat(pixels(3, 4, 4, 3), [2, 10, 1])[:200], "can't be read"),
        (MATRIX, norb(pixels(5, 2, 6, 6))[:-1], "can't be read"),
        (MATRIX, norb(pixels(5, 2, 6, 6)) + b"!", "can't be read"),
        (MATRIX, b"MATLAB 5.0 MAT-file, some other thing", "can't be read"),
        (MATRIX, b"\x55\x4c", "can't be read"),
        (MATRIX, b"", "can't be read"),
        (MATRIX, norb(pixels(5, 6, 6)), r"holds \[5, 6, 6\], not \[images, cameras"),
        ("coil-20-proc/obj2__3.png", coil_files()["obj2__3.png"][:-30], "can't be read"),
        ("coil-20-proc/obj2__3.png", b"not a picture", "can't be read"),
        ("coil-20-proc/obj2__3.png", png(pixels(4, 4, 3), "RGB"), "can't be read"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, contents: bytes, line: str):
    assert re.match(f"{tmp_path}/{file}: {line}", refusal(damaged(tmp_path, file, contents)))


# Size and channels


@pytest.mark.parametrize(("count", "side", "size"), [(3, 96, 32), (3, 128, 32), (1100, 8, 4)])
def test_whole_factors_give_block_means_rounded_half_up(count: int, side: int, size: int):
    images, factor = pixels(count, side, side), side // size
    blocks = images.reshape(count, size, factor, size, factor).astype(np.int64).sum((2, 4))
    assert (fit(images, size, 1, "x")[:, 0] == np.floor(blocks / factor**2 + 0.5)).all()


def test_other_factors_weigh_pixels_by_their_part():
    row = np.array([0, 30, 90], np.uint8)
    images = np.tile(row, (1, 3, 1))
    assert fit(images, 2, 1, "x")[0, 0].tolist() == [[10, 70], [10, 70]]
    assert (fit(images.transpose(0, 2, 1), 2, 1, "x")[0, 0] == [[10, 10], [70, 70]]).all()


def test_the_same_size_changes_nothing_but_repeats_grey_to_three_channels():
    images = pixels(2, 5, 5, 3)
    fitted = fit(images, 5, 3, "x")
    assert (fitted == images.transpose(0, 3, 1, 2)).all()
    assert fitted.flags.writeable
    assert fitted.flags.c_contiguous
    assert (fit(images[..., 0], 5, 3, "x") == np.stack([images[..., 0]] * 3, axis=1)).all()


def test_refusals():
    assert refused(labelled, np.zeros((2, 4, 4)), np.zeros(2), 1, "x").startswith(
        "x: holds float64 [2, 4, 4], not grey"
    )
    assert refused(fit, pixels(2, 4, 4, 3), 4, 1, "x").startswith("data.channels=1: must be 3")
    assert refused(fit, pixels(2, 4, 4), 5, 1, "x").startswith("data.size=5: must be at most 4")
    assert refused(fit, pixels(2, 4, 5), 3, 1, "x") == "x: images must be square; they are 4×5"
    assert refused(fit, pixels(2, 4, 6), 4, 1, "x").endswith("4×6")


def test_no_more_of_an_idx_file_is_unpacked_than_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(pixels(2, 28, 28)) + bytes(1 << 26)))
    tracemalloc.start()
    with pytest.raises(InputError, match="cannot reshape"):
        idx_array(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()
