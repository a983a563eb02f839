"""Figures of images: logged by a run, or made by the network of a checkpoint."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import drawn, everything, folder, seeds, sources
from numpy.typing import NDArray
from support import ROOT, Trained
from torch.utils.tensorboard import SummaryWriter

from capsexp.data import module
from capsexp.data.source import load
from capsexp.figures import catalogue, ou
from capsexp.figures.networks import first_of_each
from capsexp.figures.sources import Missing, Sources
from capsexp.figures.traversal import traverse
from capsexp.results.collect import Line
from capsexp.run.records import Record
from capsexp.run.restore import Restored, restore


def image(above: int, below: int) -> NDArray[np.uint8]:
    """Four images in a row, and their reconstructions below, each of one grey."""
    return np.repeat(np.array([above, below], dtype=np.uint8), 5)[:, None, None] * np.ones((1, 20, 1), dtype=np.uint8)


def events(made: Sources, record: Record) -> Path:
    """The folder of a run's event files."""
    return made.logs / "tensorboard" / f"its-label_{record.key[:6]}"


def log(made: Sources, record: Record, images: dict[int, NDArray[np.uint8]], purge: int | None = None) -> None:
    """Writes TensorBoard's files of a run."""
    with SummaryWriter(str(events(made, record)), purge_step=purge) as writer:
        for epoch, pixels in images.items():
            writer.add_image("reconstructions", pixels, epoch, dataformats="HWC")


def greys(made: Sources, name: str) -> list[tuple[str, int]]:
    """Each strip's name and grey."""
    figure = drawn(name, made)
    return [(axes[0].get_ylabel(), int(np.unique(axes[0].images[0].get_array())[0])) for axes in figure.axes]


def test_reconstructions_of_both_networks_are_below_their_images_by_epoch(tmp_path: Path) -> None:
    (capsnet,), (dual,) = (seeds("huang_fig8", name, [[50.0] * 7]) for name in ("CapsNet", "DA-CapsNet"))
    made = sources(tmp_path, capsnet, dual)
    log(made, capsnet, {epoch: image(200, epoch) for epoch in range(1, 8)})
    log(made, dual, {epoch: image(200, 10 * epoch) for epoch in range(1, 7)})  # one epoch less
    figure, missing = catalogue.drawing("huang_fig8", made)
    assert figure is not None
    assert missing == []
    assert [axis.get_title() for axis in figure.axes[0]] == [
        f"{name}: all 7 epochs, bf16" for name in ("CapsNet", "DA-CapsNet")
    ]
    shown = [[int(np.unique(axis.images[0].get_array())[0]) for axis in axes if axis.images] for axes in figure.axes]
    assert shown == [[200, 200], *([epoch, 10 * epoch] for epoch in range(1, 7)), [7]]
    assert all(axes[0].axison for axes in figure.axes)  # else without the name of the strip
    assert "DA-CapsNet, after epoch 6: all 7 epochs, bf16; one run (seed 0)." in figure.notes
    (told,) = (sentence for sentence in figure.alt if sentence.startswith("CapsNet: "))
    assert f"mean difference from the images, of white: {199 / 255:.3f} (epoch 1), " in told


def test_epochs_that_an_interrupted_run_repeated_are_shown_once(tmp_path: Path) -> None:
    (record,) = seeds("huang_fig8", "CapsNet", [[50.0] * 7])
    made = sources(tmp_path, record)
    log(made, record, {1: image(200, 1), 2: image(200, 99)})
    time.sleep(1)  # TensorBoard orders event files by the second in their names
    log(made, record, {2: image(200, 2), 3: image(200, 3)}, purge=2)
    assert greys(made, "huang_fig8") == [("image", 200), ("epoch 1", 1), ("epoch 2", 2), ("epoch 3", 3)]


def repeated(record: Record) -> str:
    """The command of the row in the record's setting."""
    own, _, seed = record.provenance["command"].rpartition(" ")
    return f"{own} trainer.precision=bf16 {seed} rerun=true"


def test_the_first_seed_with_images_is_shown(tmp_path: Path) -> None:
    found = seeds("huang_fig8", "CapsNet", [[50.0] * 7] * 2)
    made = sources(tmp_path, *found)
    log(made, found[1], {7: image(200, 7)})
    figure = drawn("huang_fig8", made)
    assert "(seed 1)" in everything(figure)


@pytest.mark.parametrize("network", ["CapsNet", "DA-CapsNet"])
def test_a_run_without_images_is_missing_with_the_command_that_repeats_it(tmp_path: Path, network: str) -> None:
    (record,) = seeds("huang_fig8", network, [[50.0] * 7])
    made = sources(tmp_path, record, typed=["paths.logs=here"])
    figure, lacks = catalogue.drawing("huang_fig8", made)
    (lack,) = (each for each in lacks if each.what.startswith("no reconstructions"))
    assert figure is None
    assert lack.what == f"no reconstructions of {folder(made, record).name} in {made.logs}"
    assert lack.command == f"{repeated(record)} paths.logs=here"
    with SummaryWriter(str(events(made, record))) as writer:  # the same with files without images
        writer.add_scalar("loss", 1.0, 1)
    assert lack in catalogue.drawing("huang_fig8", made)[1]


@pytest.mark.parametrize(("other", "names"), [(200, ["image"]), (100, ["image", "image of DA-CapsNet"])])
def test_objects_are_above_both_networks_reconstructions(tmp_path: Path, other: int, names: list[str]) -> None:
    (capsnet,), (dual,) = (seeds("huang_fig14", name, [[50.0] * 2]) for name in ("CapsNet", "DA-CapsNet"))
    made = sources(tmp_path, capsnet, dual)
    log(made, capsnet, {1: image(200, 1), 2: image(200, 2)})
    log(made, dual, {2: image(other, 3)})
    expected = [("CapsNet", 2), ("DA-CapsNet", 3)]
    expected[1:1] = [(name, other) for name in names[1:]]
    assert greys(made, "huang_fig14") == [("image", 200), *expected]


@pytest.mark.parametrize(("name", "study"), [("huang_fig14", "huang_fig14"), ("ou_traversal_mnist", "ou_traversal")])
def test_what_was_learned_is_not_drawn_after_a_few_epochs(tmp_path: Path, name: str, study: str) -> None:
    row = {"huang_fig14": "CapsNet", "ou_traversal": "CapsNet MNIST"}[study]
    (record,) = seeds(study, row, [[50.0] * 2], "budget.epochs=2")
    made = sources(tmp_path, record)
    log(made, record, {2: image(200, 2)})
    figure, (lack,) = catalogue.drawing(name, made)
    assert figure is None
    assert lack.what.startswith(f"{row} was trained for 2 of ")
    assert f"+study={study}" in lack.command


def test_one_network_of_two_is_drawn_and_the_other_named(tmp_path: Path) -> None:
    (record,) = seeds("huang_fig14", "CapsNet", [[50.0] * 2])
    made = sources(tmp_path, record)
    log(made, record, {2: image(200, 2)})
    figure, (lack,) = catalogue.drawing("huang_fig14", made)
    assert figure is not None
    assert "Without DA-CapsNet." in figure.notes
    assert lack.what == "no finished runs of DA-CapsNet"


# Networks


@pytest.fixture
def network(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Restored:
    """The network of all rows that have runs."""
    restored = restore(trained.folder)

    def found(sources: Sources, line: Line, *overrides: str, device: str | None = "cpu") -> Restored:
        if not line.runs:
            raise sources.unlogged(line, "checkpoint")
        return restored

    monkeypatch.setattr(ou, "trained", found)
    return restored


def tile(picture: NDArray[np.float32], row: int, column: int) -> NDArray[np.float32]:
    """One image of a mosaic of digits."""
    top, left = 1 + 29 * row, 1 + 29 * column
    return picture[top : top + 28, left : left + 28]


def test_every_dimension_is_a_row_and_every_step_a_column(tmp_path: Path, network: Restored) -> None:
    made = sources(tmp_path, *seeds("ou_traversal", "CapsNet MNIST", [[50.0]]))
    figure, missing = catalogue.drawing("ou_traversal_mnist", made)
    assert figure is not None
    assert missing == []
    pixels, shown = first_of_each(*module.test_split(load(network.config.data), network.config))
    assert shown.tolist() == list(range(10))
    assert 0.9 < float(pixels.max()) <= 1
    for axis, digit in zip(figure.axes[0], (0, 5, 9), strict=True):
        assert axis.get_title().startswith(str(digit))
        picture = axis.images[0].get_array()
        moved = traverse(network.module, pixels[digit])
        (above,) = axis.child_axes
        np.testing.assert_allclose(above.images[0].get_array(), pixels[digit, 0], atol=1e-6)
        for row in (0, 15):
            np.testing.assert_allclose(tile(picture, row, 5)[:, :, 1], moved[row, 5, 0], atol=1e-6)
        assert [tick.get_text() for tick in axis.get_yticklabels()] == [str(row) for row in range(1, 17)]
        at = {tick.get_text(): x for tick, x in zip(axis.get_xticklabels(), axis.get_xticks(), strict=True)}
        assert {text: int(x // 29) for text, x in at.items()} == {"−0.25": 0, "+0.25": 10, "0": 5}
    assert "all 250 epochs" in everything(figure)
    assert "one run (seed 0)" in everything(figure)


def test_a_wrong_prediction_is_named(tmp_path: Path, network: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    original = network.module.network.forward

    def always_three(images: torch.Tensor) -> object:
        prediction = original(images)
        return prediction._replace(scores=torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float())

    monkeypatch.setattr(network.module.network, "forward", always_three)
    made = sources(tmp_path, *seeds("ou_traversal", "CapsNet MNIST", [[50.0]]))
    figure = drawn("ou_traversal_mnist", made)
    assert [axis.get_title() for axis in figure.axes[0]] == [f"{digit}, taken for: 3" for digit in (0, 5, 9)]


def test_a_run_without_checkpoint_is_missing(tmp_path: Path) -> None:
    (record,) = seeds("ou_traversal", "CapsNet MNIST", [[50.0]])
    made = sources(tmp_path, record)
    for _ in range(2):  # without the folder, and with an empty one
        figure, (lack,) = catalogue.drawing("ou_traversal_mnist", made)
        assert figure is None
        assert lack == Missing(f"no checkpoint of {folder(made, record).name} in {made.logs}", repeated(record))
        folder(made, record).mkdir(parents=True, exist_ok=True)


def test_a_damaged_checkpoint_is_a_line(tmp_path: Path) -> None:
    (record,) = seeds("ou_traversal", "CapsNet MNIST", [[50.0]])
    made = sources(tmp_path, record)
    folder(made, record).mkdir(parents=True)
    (folder(made, record) / "last.ckpt").write_bytes(b"PK")
    drawn, (line,) = catalogue.draw("ou_traversal_mnist", made, tmp_path)
    assert not drawn
    assert line.startswith(f"not drawn: {folder(made, record)}/last.ckpt: not a checkpoint, or damaged")
    assert catalogue.matches("ou_traversal_mnist", made, tmp_path)  # is not compared


@pytest.mark.slow
def test_the_command_for_missing_runs_makes_the_figure(tmp_path: Path) -> None:
    """From no runs to the figure, on the full data sets, with as little training as possible."""
    if "CAPSEXP_DATA" not in os.environ:
        pytest.skip("CAPSEXP_DATA is not set")
    name = "huang_fig8"
    made = sources(tmp_path, typed=[f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs"])
    figure, missing = catalogue.drawing(name, made)
    assert figure is None
    small = ("budget.epochs=1", "budget.width=0.04", "budget.train_images=64", "trainer=cpu", "seed=0")
    for lack in missing:
        words = [word for word in lack.command.split()[1:] if not word.startswith("seed=")]
        subprocess.run([sys.executable, *words, *small, "budget.test_images=500"], cwd=ROOT, check=True)
    again = sources(tmp_path, typed=made.typed)
    drawn, lines = catalogue.draw(name, again, tmp_path)
    assert drawn
    assert lines == [f"wrote {tmp_path}/{name}.png {tmp_path}/{name}.svg {tmp_path}/{name}.txt"]
