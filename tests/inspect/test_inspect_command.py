"""python -m capsexp.inspect: the picture, the numbers, and one line for whatever is wrong."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support import TINY, composed_config

from capsexp.cli import end_with
from capsexp.data import source
from capsexp.errors import InputError
from capsexp.inspect import __main__ as inspect
from capsexp.inspect.analysis import Asked, look
from capsexp.inspect.analysis import numbers as numbers_of
from capsexp.inspect.picture import picture
from capsexp.inspect.restore import Restored, restore
from capsexp.run.build import build
from capsexp.run.checkpoints import load
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan

RUNS = {
    "capsnet": ("attention=cbam", "reconstruction.enabled=true", "model.class_pose=4"),
    "inverted": ("model=inverted_capsnet", "budget.width=0.1", "attention=dual"),
    "cnn": ("model=huang_cnn", "attention=cbam"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of one run of each kind."""
    found = {}
    for name, words in RUNS.items():
        logs = tmp_path_factory.mktemp(name)
        paths = (f"paths.results={logs}/results", f"paths.logs={logs}/logs", "trainer.progress=none")
        run(composed_config(*TINY, "budget.epochs=1", *words, *paths), None, lambda line: None)
        (found[name],) = (logs / "logs").iterdir()
    return found


@pytest.fixture(scope="module")
def looked(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the command wrote about test image 11 of each run: the pictures' paths."""
    output = tmp_path_factory.mktemp("looked")
    for name, folder in folders.items():
        inspect.main([f"checkpoint={folder}", "image=11", f"output={output}/{name}.png"])
    return {name: output / f"{name}.png" for name in folders}


def packaged() -> tuple[NDArray[np.uint8], list[int]]:
    """The packaged test images [N, 28, 28], and their labels."""
    images = source.load(composed_config("data=mnist_sample").data)
    return images.test_images[:, 0].numpy(), images.test_labels.tolist()


def numbers(path: Path) -> dict[str, Any]:
    """What stands beside a picture."""
    return json.loads(path.with_suffix(".json").read_text())


def one_line(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the one line of the error."""
    monkeypatch.setattr(sys, "argv", ["inspect", *words])
    with pytest.raises(SystemExit) as ended:
        end_with(inspect.main, inspect.__doc__)
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert said.out == ""
    assert isinstance(ended.value.code, int)
    return ended.value.code, line


def test_the_prediction_is_the_networks(folders: dict[str, Path], looked: dict[str, Path]) -> None:
    images, labels = packaged()
    for name, path in looked.items():
        restored = restore(folders[name])
        scores = restored(torch.from_numpy(images[11])[None, None] / 255).scores[0]
        found = numbers(path)
        assert found["scores"] == pytest.approx(dict(zip("0123456789", scores.tolist(), strict=True)), abs=1e-4)
        assert found["prediction"] == str(int(scores.argmax()))
        assert found["classes"] == [str(labels[11])]
        assert (found["run"], found["epoch"]) == (folders[name].name, 1)
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.width == 1210
    assert numbers(looked["capsnet"])["score_is"] == "length"
    assert numbers(looked["capsnet"])["lengths"] == pytest.approx(numbers(looked["capsnet"])["scores"])
    assert numbers(looked["inverted"])["score_is"] == numbers(looked["cnn"])["score_is"] == "logit"
    assert numbers(looked["cnn"])["lengths"] is None


def test_the_routing_of_a_linear_layer(looked: dict[str, Path]) -> None:
    (layer,) = numbers(looked["capsnet"])["routing"]
    children = layer["children"]
    lengths = np.array(children["lengths"])
    assert lengths.shape == (children["rows"], children["columns"], children["types"]) == (6, 6, 1)
    assert np.array(layer["given"]).shape == (3, 6, 6)
    np.testing.assert_allclose(np.array(layer["given"])[0], lengths.sum(axis=2) / 10, rtol=1e-5)
    assert layer["entropies"][0] == pytest.approx(math.log(10), abs=1e-5)
    given = [child["presence"] * child["shares"][-1] for child in layer["strongest"]]
    assert len(given) == 6
    assert given == sorted(given, reverse=True)
    assert given[0] == pytest.approx(np.array(layer["given"])[-1].max(), rel=1e-5)
    for child in layer["strongest"]:
        top, left = 2 * child["row"], 2 * child["column"]
        assert child["box"] == [top, left, top + 17, left + 17]
        assert child["presence"] == pytest.approx(lengths[child["row"], child["column"], child["type"]], rel=1e-5)


def test_the_routing_through_several_layers(looked: dict[str, Path]) -> None:
    layers = numbers(looked["inverted"])["routing"]
    assert [layer["children"]["rows"] for layer in layers] == [14, 6, 4]
    assert [len(layer["entropies"]) for layer in layers] == [1, 1, 2]
    for layer in layers:
        given, types = np.array(layer["given"]), layer["children"]["types"]
        assert given.shape[0] == 2
        heard = slice(13 if given.shape[1] == 14 else None)  # 3×3 with stride 2 leaves out the last of 14
        np.testing.assert_allclose(given[0, heard, heard], types / 10, rtol=1e-5)


def test_reconstruction_and_traversal(folders: dict[str, Path], looked: dict[str, Path]) -> None:
    restored, (images, _) = restore(folders["capsnet"]), packaged()
    pixels = torch.from_numpy(images[11])[None, None] / 255
    found = numbers(looked["capsnet"])["reconstruction"]
    prediction = restored(pixels)
    assert restored.module.decoder is not None
    with torch.no_grad():
        drawn = restored.module.decoder(prediction.poses, prediction.scores.argmax(dim=1))
    torch.testing.assert_close(torch.tensor(found["pixels"])[None], drawn, atol=1e-4, rtol=1e-3)
    assert found["squared_error"] == pytest.approx(float((drawn - pixels).square().sum()), rel=1e-3)
    changes = np.array(found["mean_change"])
    assert changes.shape == (4, 11)
    assert found["offsets"][5] == 0
    np.testing.assert_allclose(changes[:, 5], 0, atol=1e-6)
    assert changes[:, [0, 10]].max() > 0
    assert numbers(looked["inverted"])["reconstruction"] is None


def test_the_attention_maps(looked: dict[str, Path]) -> None:
    maps = {name: {m["kind"]: np.array(m["factors"]) for m in numbers(looked[name])["attention"]} for name in looked}
    assert maps["capsnet"]["spatial"].shape == (20, 20)
    assert maps["capsnet"].keys() == maps["cnn"].keys() == {"channel", "spatial"}
    assert maps["inverted"].keys() == {"conv", "caps"}
    assert maps["inverted"]["caps"].shape == (4, 4, numbers(looked["inverted"])["routing"][-1]["children"]["types"])
    assert all((factors > 0).all() and (factors < 1).all() for factors in maps["capsnet"].values())


def test_a_file_is_what_its_pixels_are(
    folders: dict[str, Path], looked: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test image, four times as large and in colour, is averaged down to itself."""
    large = np.kron(packaged()[0][11], np.ones((4, 4), np.uint8))
    Image.fromarray(np.stack([large] * 3, axis=-1)).save(tmp_path / "a digit.png")
    folder = folders["cnn"]
    inspect.main([f"checkpoint={folder}/last.ckpt", f"image={tmp_path}/a digit.png"])
    written, printed = folder / "inspect" / "a digit.png", capsys.readouterr().out.splitlines()
    expected = numbers(looked["cnn"])
    found = numbers(written)
    assert found["image"] == "a digit.png"
    assert found["classes"] is None
    assert found["scores"] == pytest.approx(expected["scores"], abs=1e-6)
    assert printed[0].startswith(f"a digit.png: predicted {expected['prediction']} (logit ")
    assert printed[1:] == [f"picture {written}", f"numbers {written.with_suffix('.json')}"]


def test_a_grey_file_for_a_network_that_sees_colours(tmp_path: Path) -> None:
    Image.fromarray(packaged()[0][0]).save(tmp_path / "grey.png")
    pixels = inspect._of_file(tmp_path / "grey.png", composed_config("data=svhn", "data.size=28").data).pixels
    assert pixels.shape == (3, 28, 28)
    torch.testing.assert_close(pixels, torch.from_numpy(packaged()[0][0]).expand(3, 28, 28) / 255)


def test_a_hundred_classes_and_a_layer_without_places() -> None:
    torch.manual_seed(0)
    config = composed_config(
        "model=inverted_capsnet_cifar100", "data=cifar100", "attention.caps=true", "budget.width=0.1"
    )
    module = CapsuleModule(Plan(config, torch.device("cpu"), "float32", None, None), build(config)).eval()
    restored = Restored(Path("made.ckpt"), "made", 1, {}, config, "float32", module)
    found = look(restored, Asked("noise", torch.rand(3, 32, 32), [3]))
    assert [layer.fields is None for layer in found.layers] == [False, False, False, True]
    assert numbers_of(found)["routing"][-1]["strongest"][0]["box"] is None
    assert picture(found).startswith(b"\x89PNG")


BAD_WORDS = [
    ("image=3", "checkpoint: missing; must be a checkpoint or a run's folder"),
    ("checkpoint=FOLDER", "image: missing; must be the number of a test image, or a PNG or JPEG file"),
    ("checkpoint=FOLDER image=", "image=: must be the number of a test image"),
    ("checkpoint=FOLDER image=3 outptu=a.png", "outptu: no such key; did you mean output?"),
    ("checkpoint=FOLDER image=3 seed=3", "seed: no such key (there are checkpoint, data, image, output)"),
    ("checkpoint=FOLDER image=3 picture", "picture: not of the form key=value"),
    ("checkpoint=FOLDER image=3 output=a.jpg", "output=a.jpg: must be the name of a .png file"),
    ("checkpoint=FOLDER image=3 data=mnst", "data=mnst: no such choice; did you mean mnist?"),
    ("checkpoint=FOLDER image=3 data=cifar10", "data=cifar10: has images of 32×32×3"),
    ("checkpoint=FOLDER image=1000", "image=1000: must be from 0 to 999, the test images of mnist_sample"),
    ("checkpoint=FOLDER image=text.png", "image=text.png: not an image file"),
    ("checkpoint=none.ckpt image=3", "none.ckpt: no such checkpoint"),
    ("checkpoint=. image=3", ".: a folder without best.ckpt and last.ckpt"),
    ("checkpoint=text.png image=3", "text.png: not a checkpoint"),
    ("checkpoint=cut.ckpt image=3", "cut.ckpt: not a checkpoint, or damaged"),
    ("checkpoint=other.ckpt image=3", "other.ckpt: its weights are of another network than its configuration: "),
]


BAD_IMAGES = [
    ("-1", "must be from 0 to 999, the test images of mnist_sample"),
    ("3.5", "no such file, and not a number"),
    ("none.png", "no such file, and not a number"),
    ("cut.png", "can't be read (image file is truncated)"),
    (".", "can't be read (Is a directory)"),
    ("wide.png", "40×30 pixels; must be square and at least 28×28, as this network's images"),
    ("small.png", "27×27 pixels; must be square and at least 28×28, as this network's images"),
    ("deep.png", "must have 8 bits a colour"),
]


@pytest.fixture(scope="module")
def bad_files(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that are not what they should be."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "text.png").write_text("a text")
    for name, shape in (("wide", (30, 40)), ("small", (27, 27)), ("whole", (64, 64))):
        noise = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
        Image.fromarray(noise).save(folder / f"{name}.png")
    Image.fromarray(np.zeros((28, 28), np.uint16)).save(folder / "deep.png")
    for name, whole in (("cut.png", folder / "whole.png"), ("cut.ckpt", folders["cnn"] / "best.ckpt")):
        content = whole.read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    other = load(folders["cnn"] / "best.ckpt") | {"state_dict": load(folders["capsnet"] / "best.ckpt")["state_dict"]}
    torch.save(other, folder / "other.ckpt")
    return folder


@pytest.mark.parametrize(("words", "expected"), BAD_WORDS)
def test_one_clear_line(
    words: str,
    expected: str,
    folders: dict[str, Path],
    bad_files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(bad_files)
    before = sorted(bad_files.iterdir())
    code, line = one_line(words.replace("FOLDER", str(folders["cnn"])).split(), monkeypatch, capsys)
    assert line.startswith(f"error: {expected}")
    assert code == 2
    assert sorted(bad_files.iterdir()) == before


@pytest.fixture(scope="module")
def cnn(folders: dict[str, Path]) -> Restored:
    """A network for 28×28 grey pixels."""
    return restore(folders["cnn"])


@pytest.mark.parametrize(("image", "expected"), BAD_IMAGES)
def test_images_that_it_cannot_look_at(
    image: str, expected: str, cnn: Restored, bad_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bad_files)
    with pytest.raises(InputError) as error:
        inspect._asked(cnn, image)
    assert str(error.value) == f"image={image}: {expected}"


def test_numbers_that_are_not_finite(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = load(folders["cnn"] / "best.ckpt")
    checkpoint["state_dict"]["network.layers.0.weight"].fill_(math.nan)
    torch.save(checkpoint, tmp_path / "nan.ckpt")
    code, line = one_line([f"checkpoint={tmp_path}/nan.ckpt", "image=0"], monkeypatch, capsys)
    assert code == 1
    assert line.endswith("nan.ckpt: its network's scores of mnist_sample test image 0 are not finite")
