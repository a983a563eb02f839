"""TensorBoard's files of a run: complete, correct, small, and without effect on the run's numbers."""

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import Trained, composed_config, raising, refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer.record_writer import RecordWriter

from capsexp.data import source
from capsexp.routing.observe import observe
from capsexp.run import tensorboard
from capsexp.run.build import build
from capsexp.run.checkpoints import EpochCheckpoint
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import LAST, Plan, plan
from capsexp.run.restore import restore
from capsexp.run.tensorboard import event_folders, folder_of, has_pictures

OPTIONS = ("attention=cbam", "reconstruction.enabled=true", "routing.iterations=2")
CURVES = {
    *(f"{quantity}/{split}" for quantity in ("loss", "accuracy", "seconds") for split in ("train", "test")),
    *("reconstruction/test", "optimizer/learning_rate", "seconds/epoch", "peak_memory_mb/host"),
}
SINGLES = {"maximum/accuracy", "maximum/first_epoch_to_max"}


def read(folder: Path) -> EventAccumulator:
    """All that TensorBoard reads in a folder."""
    whole = {"images": 0, "scalars": 0, "tensors": 0}
    return EventAccumulator(str(folder), size_guidance=whole).Reload()


def steps(events: EventAccumulator) -> dict[str, list[int]]:
    """Of every curve and image."""
    kinds = {"scalars": events.Scalars, "images": events.Images}
    return {tag: [event.step for event in of(tag)] for kind, of in kinds.items() for tag in events.Tags()[kind]}


@pytest.fixture(scope="module")
def events(trained: Trained) -> EventAccumulator:
    """What TensorBoard reads of the run."""
    return read(folder_of(plan(trained.config)))


def test_the_curves_are_the_records(trained: Trained, events: EventAccumulator) -> None:
    record = trained.record
    curves = {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert set(curves) == CURVES | SINGLES
    assert sorted(curves)[:4] == ["accuracy/test", "accuracy/train", "loss/test", "loss/train"]  # as TensorBoard sorts
    assert all(steps(events)[tag] == [1, 2, 3] for tag in CURVES)
    for split in ("train", "test"):
        for quantity in ("loss", "accuracy", "seconds"):
            wanted = [row[f"{split}_{quantity}"] for row in record.epochs]
            assert curves[f"{quantity}/{split}"] == pytest.approx(wanted)
    assert curves["reconstruction/test"] == pytest.approx([row["test_reconstruction"] for row in record.epochs])
    assert curves["seconds/epoch"] == pytest.approx(np.add(curves["seconds/train"], curves["seconds/test"]))
    assert curves["optimizer/learning_rate"] == pytest.approx([row["learning_rate"] for row in record.epochs])
    assert curves["maximum/accuracy"] == pytest.approx([record.max_accuracy])
    assert curves["maximum/first_epoch_to_max"] == [record.first_epoch_to_max]
    assert 100 < curves["peak_memory_mb/host"][-1] < record.peak_memory_mb["host"] + 0.1


def test_reconstructions_are_below_one_test_image_of_each_class(trained: Trained, events: EventAccumulator) -> None:
    images = source.load(trained.config.data)
    chosen = [images.test_labels[:200].tolist().index(label) for label in range(10)]
    restored, pixels = restore(trained.folder / LAST), images.test_images[chosen] / 255
    with torch.no_grad():
        drawn = restored.module.decoder(restored(pixels).poses, torch.arange(10))  # type: ignore[misc]
    wanted = torch.cat([torch.cat(list(pixels), dim=2), torch.cat(list(drawn), dim=2)], dim=1)[0]
    for event in events.Images("reconstructions"):
        picture = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))[:, :, 0]
        assert picture.shape == (2 * 28, 10 * 28)
        assert (picture[:28] == (255 * wanted[:28]).round().numpy()).all()
    assert np.abs(picture / 255 - wanted.numpy()).max() < 0.005


def test_event_files_are_found_by_the_key(trained: Trained) -> None:
    planned = plan(trained.config)
    assert event_folders(planned.folder.parent, trained.record.key) == [folder_of(planned)]
    assert event_folders(planned.folder.parent, "0" * 16) == []


def test_hparams_are_what_was_typed_and_the_session_ends(events: EventAccumulator) -> None:
    started, ended = (
        HParamsPluginData.FromString(events.SummaryMetadata(f"_hparams_/session_{place}_info").plugin_data.content)
        for place in ("start", "end")
    )
    typed = {name: value.string_value for name, value in started.session_start_info.hparams.items()}
    assert typed.keys() == {"data", "attention", "reconstruction.enabled", "routing.iterations"}  # without the budget
    assert (typed["attention"], typed["routing.iterations"]) == ("cbam", "2")
    assert started.session_start_info.group_name.startswith("cbam r2 reconstruction s0 · capsnet mnist_sample ")
    assert ended.session_end_info.status == api_pb2.STATUS_SUCCESS


@pytest.mark.parametrize("epochs", [0, 1])
def test_an_interrupted_run_has_no_epoch_twice_and_none_missing(
    epochs: int, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies after TensorBoard's file and before the checkpoint is written, when the one is an epoch ahead."""
    config = composed_config(*tiny, *OPTIONS, "logger=tensorboard")
    saved = EpochCheckpoint.on_train_epoch_end

    def dying(self: EpochCheckpoint, trainer: Any, module: Any) -> None:
        if trainer.current_epoch == epochs:
            raise KeyboardInterrupt
        saved(self, trainer, module)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(EpochCheckpoint, "on_train_epoch_end", dying)
        run(config)
    folder = folder_of(plan(config))
    assert steps(read(folder))["accuracy/test"] == list(range(1, epochs + 2))
    record, events = run(config), read(folder)
    in_each, in_one = CURVES | {"reconstructions"}, {tag: [record.first_epoch_to_max] for tag in SINGLES}
    assert steps(events) == {tag: [1, 2, 3] for tag in in_each} | in_one
    assert [event.value for event in events.Scalars("accuracy/test")] == pytest.approx(record.accuracies)
    assert len(list(folder.glob("events*"))) == (2 if epochs else 1)
    assert len(events.Tensors("_hparams_/session_start_info")) == 1


def test_under_heldout_the_test_accuracy_stands_at_the_chosen_epoch(trained_heldout: Trained) -> None:
    config, record, _ = trained_heldout
    events = read(folder_of(plan(config)))
    assert steps(events)["accuracy/heldout"] == [1, 2, 3]
    (tested,) = events.Scalars("accuracy/test")
    assert (tested.step, tested.value) == (record.first_epoch_to_max, pytest.approx(record.heldout_accuracy))
    assert [event.value for event in events.Scalars("maximum/first_epoch_to_max")] == [record.first_epoch_to_max]
    assert "maximum/accuracy" not in events.Tags()["scalars"]
    assert events.Tags()["images"] == []


def test_pictures_leave_the_modes_cost_single_images_and_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten images of noise, which no image format can make smaller, in a run of 350 epochs."""
    images = list[torch.Tensor]()
    monkeypatch.setattr(tensorboard, "observe", lambda module, image: images.append(image) or observe(module, image))
    config = composed_config("model=capsnet", "data=cifar10", "budget.width=0.07", "reconstruction.enabled=true")
    module = CapsuleModule(Plan(config, torch.device("cpu"), "float32", None, None), build(config)).train()
    drawn = tensorboard.reconstructions(module, module.decoder, torch.rand(10, 3, 32, 32), torch.arange(10))
    assert [len(image) for image in images] == [1] * 10
    assert all(part.training for part in module.modules())
    assert not module.network._forward_hooks
    size = len(tensorboard.image_summary("reconstructions", drawn, dataformats="CHW").SerializeToString())
    assert size * sum(has_pictures(number, 350) for number in range(1, 351)) < 5_000_000
    assert [number for number in range(1, 64) if has_pictures(number, 63)] == [*range(1, 11), 20, 30, 40, 50, 60, 63]


def test_a_folder_that_is_a_link_is_left_alone(tiny: tuple[str, ...], tmp_path: Path) -> None:
    config = composed_config(*tiny, "logger=tensorboard")
    foreign, folder = tmp_path / "events.out.tfevents.1", folder_of(plan(config))
    foreign.touch()
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path)
    assert refused(run, config).endswith(f"{folder}: a link; move it away")
    assert foreign.exists()


def test_a_full_disk_ends_in_one_line(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordWriter, "write", raising(OSError(errno.ENOSPC, "No space left on device")))
    config = composed_config(*tiny, "logger=tensorboard")
    with pytest.raises(OSError, match="No space left on device") as error:
        run(config)
    assert Path(error.value.filename) == plan(config).folder
