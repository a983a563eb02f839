"""python -m capsexp inspect: the numbers, the picture, and one line for whatever is wrong."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from support import Program, Trained, composed_config, train

from capsexp.data import source
from capsexp.inspect import command as inspect
from capsexp.inspect.analysis import Analysis, InputImage, analyse, input_image
from capsexp.inspect.picture import draw_scores, picture
from capsexp.run.build import build
from capsexp.run.checkpoints import load
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan
from capsexp.run.restore import Restored, restore


@pytest.fixture(scope="module")
def folders(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a run of CapsNet, of a hierarchy with concurrent routing, and of a network without capsules."""
    short = ("budget.epochs=1", "budget.train_images=64", "logger=[]")
    inverted = ("model=inverted_capsnet", "budget.width=0.1", "attention=dual", *short)
    cnn = ("model=huang_cnn", "attention=cbam", *short)
    return {
        "capsnet": trained.folder,
        "inverted": train(tmp_path_factory.mktemp("inverted"), *inverted).folder,
        "cnn": train(tmp_path_factory.mktemp("cnn"), *cnn).folder,
    }


def packaged() -> tuple[NDArray[np.uint8], list[int]]:
    """The packaged test images [N, 28, 28], and their labels."""
    images = source.load(composed_config("data=mnist_sample").data)
    return images.test_images[:, 0].numpy(), images.test_labels.tolist()


@pytest.fixture(scope="module")
def analyses(folders: dict[str, Path]) -> dict[str, Analysis]:
    """What each network does with test image 11."""
    restored = {name: restore(folder) for name, folder in folders.items()}
    return {name: analyse(each, input_image(each, "11")) for name, each in restored.items()}


def test_the_prediction_is_the_networks(folders: dict[str, Path], analyses: dict[str, Analysis]) -> None:
    images, labels = packaged()
    for name, analysis in analyses.items():
        scores = restore(folders[name])(torch.from_numpy(images[11])[None, None] / 255).scores[0]
        torch.testing.assert_close(analysis.scores, scores, atol=1e-4, rtol=1e-4)
        assert analysis.title == f"predicted {int(scores.argmax())}, it is {labels[11]}"
    kinds = {name: analysis.restored.score_kind for name, analysis in analyses.items()}
    assert kinds == {"capsnet": "length", "inverted": "logit", "cnn": "logit"}


def test_the_picture_is_as_wide_as_a_page(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, folder in folders.items():
        inspect.main([str(folder), "11", f"--output={tmp_path}/{name}.png"])
        with Image.open(tmp_path / f"{name}.png") as image:
            assert (image.format, image.width) == ("PNG", 1210)


def test_the_routing_of_a_linear_layer(analyses: dict[str, Analysis]) -> None:
    (layer,), (contributions,) = analyses["capsnet"].captured.layers, analyses["capsnet"].contributions
    assert layer.presence.shape == (1, 6, 6, 1)
    assert contributions.shape == (2, 6, 6)
    torch.testing.assert_close(layer.presence, layer.poses.norm(dim=-1))
    torch.testing.assert_close(contributions[0], layer.presence[0].sum(dim=2) / 10)
    assert layer.entropies[0] == pytest.approx(math.log(10), abs=1e-5)


def test_the_routing_through_several_layers(analyses: dict[str, Analysis]) -> None:
    layers = analyses["inverted"].captured.layers
    assert [layer.presence.shape[1] for layer in layers] == [14, 6, 4]
    assert [len(layer.entropies) for layer in layers] == [1, 1, 2]
    for layer, of_layer in zip(layers, analyses["inverted"].contributions, strict=True):
        assert len(of_layer) == 2
        _, height, _, types = layer.presence.shape
        with_parents = slice(13 if height == 14 else None)  # 3×3 with stride 2 leaves out the last
        contributions = of_layer[0, with_parents, with_parents]
        torch.testing.assert_close(contributions, torch.full_like(contributions, types / 10))


def test_reconstruction_and_traversal(analyses: dict[str, Analysis]) -> None:
    analysis = analyses["capsnet"]
    restored, traversal = analysis.restored, analysis.traversal
    prediction = restored(analysis.image.pixels[None])
    with torch.no_grad():
        drawn = restored.module.decoder(prediction.poses, prediction.scores.argmax(dim=1))
    torch.testing.assert_close(analysis.reconstruction, drawn[0], atol=1e-4, rtol=1e-3)
    changes = (traversal - drawn[0]).abs().mean(dim=(2, 3, 4))
    assert changes.shape == (16, 11)
    torch.testing.assert_close(changes[:, 5], torch.zeros(16))
    assert changes[:, [0, 10]].max() > 0
    assert analyses["inverted"].reconstruction is None


def test_the_attention_maps(analyses: dict[str, Analysis]) -> None:
    maps = {
        name: {each.kind: analysis.factors(each) for each in analysis.captured.attention}
        for name, analysis in analyses.items()
    }
    assert maps["capsnet"]["spatial"].shape == (20, 20)
    assert maps["capsnet"].keys() == maps["cnn"].keys() == {"channel", "spatial"}
    assert maps["inverted"].keys() == {"conv", "caps"}
    inverted = analyses["inverted"]
    assert maps["inverted"]["caps"].shape == inverted.captured.layers[-1].presence.shape[1:]
    values = inverted.captured.attention[-1].values[0, :, :, :, inverted.predicted]
    torch.testing.assert_close(maps["inverted"]["caps"], values.mean(dim=-1))
    assert all((factors > 0).all() and (factors < 1).all() for factors in maps["capsnet"].values())


def test_an_image_file_is_averaged_down_and_made_grey(
    folders: dict[str, Path], analyses: dict[str, Analysis], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test image, enlarged four times and in colour, gives the scores of the test image."""
    large = np.kron(packaged()[0][11], np.ones((4, 4), np.uint8))
    Image.fromarray(np.stack([large] * 3, axis=-1)).save(tmp_path / "a digit.png")
    folder, expected = folders["cnn"], analyses["cnn"]
    image = input_image(expected.restored, f"{tmp_path}/a digit.png")
    assert image.labels is None
    torch.testing.assert_close(analyse(expected.restored, image).scores, expected.scores)
    inspect.main([f"{folder}/last.ckpt", f"{tmp_path}/a digit.png"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"a digit.png: predicted {expected.predicted} (logit ")
    assert printed[1:] == [f"picture {folder / 'inspect' / 'a digit.png'}"]


def test_a_hundred_classes_and_children_without_positions() -> None:
    torch.manual_seed(0)
    config = composed_config(
        "model=inverted_capsnet_cifar100", "data=cifar100", "attention.caps=true", "budget.width=0.1"
    )
    module = CapsuleModule(Plan(config, torch.device("cpu"), "float32", None, None), build(config)).eval()
    restored = Restored(Path("made.ckpt"), "made", 1, config, "float32", module)
    found = analyse(restored, InputImage("noise", torch.rand(3, 32, 32), [3]))
    assert found.captured.layers[-1].presence.shape[1:3] == (1, 1)
    assert picture(found).startswith(b"\x89PNG")
    axis = Figure().subplots()
    draw_scores(axis, found)
    shown = [bar.get_width() for bar in axis.patches if isinstance(bar, Rectangle)]
    assert sorted(shown) == pytest.approx(found.scores.topk(10).values.flip(0).tolist())


BAD_WORDS = [
    ("", "missing: RUN IMAGE; capsexp inspect --help says more"),
    ("FOLDER 3 seed=3", "seed: is set by the checkpoint; what can be given is data, "),
    ("FOLDER 3 picture", "picture: not of the form key=value"),
    ("FOLDER 3 --output=a.jpg", "--output=a.jpg: must be the name of a .png file"),
    ("FOLDER 3 data=cifar10", "data=cifar10: has images of 32×32×3"),
    ("FOLDER text.png", "text.png: not a PNG, JPEG, BMP, GIF, TIFF, WEBP or PPM image"),
    ("FOLDER deep.png", "deep.png: can't be used: must have 8 bits a colour"),
    ("FOLDER whole.png --output=./whole.png", "whole.png: exists already; --output=FILE must be a new file"),
    ("sample inspect/own.png", "inspect/own.png: exists already; --output=FILE must be a new file"),
]


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with unfitting files."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "text.png").write_text("a text")
    (folder / "inspect").mkdir()
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(folder / "inspect" / "own.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)).save(folder / "whole.png")
    Image.fromarray(np.zeros((28, 28), np.uint16)).save(folder / "deep.png")
    return folder


@pytest.mark.parametrize(("words", "expected"), BAD_WORDS)
def test_wrong_input_is_one_line(
    words: str,
    expected: str,
    folders: dict[str, Path],
    bad_files: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Program,
) -> None:
    monkeypatch.chdir(bad_files)
    before = {path: path.stat().st_mtime_ns for path in bad_files.rglob("*")}
    code, lines, (error,) = program("capsexp", "inspect", *words.replace("FOLDER", str(folders["cnn"])).split())
    assert (code, lines) == (2, [])
    assert error.startswith(f"error: {expected}")
    assert {path: path.stat().st_mtime_ns for path in bad_files.rglob("*")} == before


def test_scores_that_are_not_finite_are_an_error(folders: dict[str, Path], tmp_path: Path, program: Program) -> None:
    checkpoint = load(folders["cnn"] / "best.ckpt")
    checkpoint["state_dict"]["network.layers.0.weight"].fill_(math.inf)
    torch.save(checkpoint, tmp_path / "nan.ckpt")
    code, _, (error,) = program("capsexp", "inspect", f"{tmp_path}/nan.ckpt", "0")
    assert code == 1
    assert error.endswith("nan.ckpt: its network's scores of mnist_sample test image 0 are not finite")
