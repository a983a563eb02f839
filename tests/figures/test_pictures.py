"""Figures of images: logged by a run, or made by the network of a checkpoint."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import folder, inputs, plot, seeds
from matplotlib.figure import Figure
from numpy.typing import NDArray
from support import Trained
from torch.utils.tensorboard import SummaryWriter

from capsexp.data import module
from capsexp.data.source import load
from capsexp.figures import catalogue, traversal
from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.traversal import OFFSETS, traverse
from capsexp.run.records import Record
from capsexp.run.restore import Restored, restore


def image(above: int, below: int) -> NDArray[np.uint8]:
    """Four images in a row, and their reconstructions below, each of one grey."""
    return np.repeat(np.array([above, below], dtype=np.uint8), 5)[:, None, None] * np.ones((1, 20, 1), dtype=np.uint8)


def log(made: Inputs, record: Record, images: dict[int, NDArray[np.uint8]], purge: int | None = None) -> None:
    """Writes TensorBoard's files of a run."""
    events = made.logs / "tensorboard" / f"its-label_{record.key[:6]}"
    with SummaryWriter(str(events), purge_step=purge) as writer:
        for epoch, pixels in images.items():
            writer.add_image("reconstructions", pixels, epoch, dataformats="HWC")
        writer.add_scalar("loss", 1.0, 1)


def greys(figure: Figure) -> dict[str, list[tuple[str, int]]]:
    """Each column's strips, with their names and greys."""
    rows, columns = figure.axes[0].get_gridspec().get_geometry()  # type: ignore[union-attr]
    axes = np.array(figure.axes).reshape(rows, columns)
    names = [axis.get_ylabel() for axis in axes[:, 0]]
    found = {}
    for column in axes.T:
        strips = [(name, axis) for name, axis in zip(names, column, strict=True) if axis.images]
        found[column[0].get_title()] = [(name, int(np.unique(axis.images[0].get_array())[0])) for name, axis in strips]
    return found


def repeated(record: Record) -> str:
    """The command that trains a run again, without its logs' folder."""
    return f"{record.provenance['command'].removeprefix('python -m ')} rerun=true"


def test_reconstructions_of_both_networks_are_below_their_images_by_epoch(tmp_path: Path) -> None:
    (capsnet,), (dual,) = (seeds("huang_fig8", name, [[50.0] * 7]) for name in ("CapsNet", "DA-CapsNet"))
    made = inputs(tmp_path, capsnet, dual)
    log(made, capsnet, {1: image(200, 1), 2: image(200, 99)})
    time.sleep(1)  # TensorBoard orders event files by the second in their names
    log(made, capsnet, {2: image(200, 2), 3: image(200, 3)}, purge=2)  # an interrupted run repeated an epoch
    log(made, dual, {epoch: image(200, 10 * epoch) for epoch in (1, 2)})  # one epoch less
    figure = plot("huang_fig8", made)
    assert greys(figure) == {
        "CapsNet": [("image", 200), ("epoch 1", 1), ("epoch 2", 2), ("epoch 3", 3)],
        "DA-CapsNet": [("image", 200), ("epoch 1", 10), ("epoch 2", 20)],
    }
    lines = figure.get_suptitle().split("\n")
    assert "Training: 7 epochs of the first 10,000 training images, bf16; one run each." in " ".join(lines)
    assert max(map(len, lines)) <= 120  # more runs over the picture's edges


def test_a_run_without_images_is_missing_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    (record,) = seeds("huang_fig8", "CapsNet", [[50.0] * 7])
    made = inputs(tmp_path, record, typed=["paths.logs=here"])
    with pytest.raises(UndrawnError) as raised:
        catalogue.drawing("huang_fig8", made)
    *_, line = raised.value.args
    name = folder(made, record).name
    assert line == f"no reconstructions of {name} in {made.logs}: {repeated(record)} paths.logs=here"


# Networks


@pytest.fixture
def network(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Restored:
    """The network of all checkpoints."""
    restored = restore(trained.folder)
    monkeypatch.setattr(traversal, "restore", lambda folder, device: restored)
    return restored


def with_checkpoint(tmp_path: Path) -> Inputs:
    """A run of ou's traversal with a file in the place of its checkpoint."""
    (record,) = seeds("ou_traversal", "CapsNet MNIST", [[50.0]])
    made = inputs(tmp_path, record)
    folder(made, record).mkdir(parents=True)
    (folder(made, record) / "last.ckpt").write_bytes(b"PK")
    return made


def tile(picture: NDArray[np.float32], row: int, column: int) -> NDArray[np.float32]:
    """One image of a mosaic of digits."""
    top, left = 1 + 29 * row, 1 + 29 * column
    return picture[top : top + 28, left : left + 28]


def test_every_dimension_is_a_row_and_every_step_a_column(tmp_path: Path, network: Restored) -> None:
    figure = plot("ou_traversal", with_checkpoint(tmp_path))
    images, labels = module.test_split(load(network.config.data), network.config)
    for axis, digit in zip(figure.axes, (0, 5, 9), strict=False):
        assert axis.get_title().startswith(str(digit))
        pixels = images[int((labels == digit).nonzero()[0])].float() / 255
        picture, moved = axis.images[0].get_array(), traverse(network.module, pixels)
        (above,) = axis.child_axes
        np.testing.assert_allclose(above.images[0].get_array(), pixels[0], atol=1e-6)
        for row in (0, 15):
            np.testing.assert_allclose(tile(picture, row, 5)[:, :, 1], moved[row, 5, 0], atol=1e-6)
            change, colour = (moved[row, 10] - moved[row, 5])[0].argmax(), tile(picture, row, 10).reshape(-1, 3)
            assert colour[change, 2] > colour[change, 1]  # purple: lighter than the reconstruction
        assert [tick.get_text() for tick in axis.get_yticklabels()] == [str(row) for row in range(1, 17)]
        at = {tick.get_text(): x for tick, x in zip(axis.get_xticklabels(), axis.get_xticks(), strict=True)}
        assert {text: int(x // 29) for text, x in at.items()} == {"−0.25": 0, "+0.25": 10, "0": 5}
    assert "3 epochs of the first 10,000 training images, bf16; one run." in " ".join(figure.get_suptitle().split())


def test_a_wrong_prediction_is_named(tmp_path: Path, network: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    original = network.module.network.forward

    def always_three(images: torch.Tensor) -> object:
        prediction = original(images)
        return prediction._replace(scores=torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float())

    monkeypatch.setattr(network.module.network, "forward", always_three)
    figure = plot("ou_traversal", with_checkpoint(tmp_path))
    assert [axis.get_title() for axis in figure.axes[:3]] == [f"{digit}, taken for: 3" for digit in (0, 5, 9)]


def test_a_run_without_checkpoint_or_with_a_damaged_one_is_a_line(tmp_path: Path) -> None:
    (record,) = seeds("ou_traversal", "CapsNet MNIST", [[50.0]])
    made = inputs(tmp_path, record)
    drawn, (line,) = catalogue.draw("ou_traversal", made, tmp_path)
    assert (drawn, line) == (
        False,
        f"not drawn: no checkpoint of {folder(made, record).name} in {made.logs}: {repeated(record)}",
    )
    made = with_checkpoint(tmp_path)
    drawn, (line,) = catalogue.draw("ou_traversal", made, tmp_path)
    assert not drawn
    assert line.startswith(f"not drawn: {folder(made, record)}/last.ckpt: not a checkpoint, or damaged")
    assert catalogue.matches("ou_traversal", made, tmp_path) is None
    for trained, matches in (("3 epochs of the first 10,000 training images, <b>bf16", None), ("9 epochs", False)):
        (tmp_path / "ou_traversal_light.svg").write_text(f"<text>{trained}</text>")
        assert catalogue.matches("ou_traversal", made, tmp_path) is matches


def test_each_dimension_is_changed_alone(trained: Trained) -> None:
    network, pixels = restore(trained.folder).module, torch.rand(1, 28, 28)
    reconstructions = traverse(network, pixels)
    assert reconstructions.shape == (16, 11, 1, 28, 28)
    with torch.no_grad():
        scores, poses = network(pixels[None])
        predicted = scores.argmax(dim=1)
        for dimension, step in ((0, 0), (3, 10), (4, 7)):
            changed = poses.clone()
            changed[0, predicted, dimension] += OFFSETS[step]
            torch.testing.assert_close(reconstructions[dimension, step], network.decoder(changed, predicted)[0])
        unchanged = network.decoder(poses, predicted)
        torch.testing.assert_close(reconstructions[:, 5], unchanged.expand(16, -1, -1, -1))
    assert not torch.allclose(reconstructions[0, 0], reconstructions[0, 10], atol=1e-5)
