"""TensorBoard's files of a run: complete, correct, small, and without effect on the run's numbers."""

import errno
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import TINY, Trained, composed_config, copy_of, raising, refused, train
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.context import RequestContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import nn

from capsexp.config.schema import Config
from capsexp.data import source
from capsexp.routing.observe import observe
from capsexp.run import checkpoints, tensorboard
from capsexp.run.build import build
from capsexp.run.checkpoints import EpochCheckpoint
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import LAST, Plan, plan
from capsexp.run.tensorboard import event_folders, folder_of, has_pictures

OPTIONS = ("attention=cbam", "reconstruction.enabled=true", "routing.iterations=2")
TINY_RUN = (*TINY, *OPTIONS)
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


def last_network(config: Config) -> tuple[CapsuleModule, torch.Tensor, torch.Tensor]:
    """The network after the last epoch, the test images and their labels."""
    module = CapsuleModule(plan(config), build(config)).eval()
    module.load_state_dict(checkpoints.load(plan(config).folder / LAST)["state_dict"])
    images = source.load(config.data)
    count = config.budget.test_images
    return module, images.test_images[:count] / 255, images.test_labels[:count]


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
    module, test, labels = last_network(trained.config)
    chosen = [labels.tolist().index(label) for label in range(10)]
    pixels = test[chosen]
    with torch.no_grad():
        drawn = module.decoder(module(pixels).poses, labels[chosen])  # type: ignore[misc]
    wanted = torch.cat([torch.cat(list(pixels), dim=2), torch.cat(list(drawn), dim=2)], dim=1)[0]
    for event in events.Images("reconstructions"):
        picture = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))[:, :, 0]
        assert picture.shape == (2 * 28, 10 * 28)
        assert (picture[:28] == (255 * torch.cat(list(pixels), dim=2)[0]).round().numpy()).all()
    assert np.abs(picture / 255 - wanted.numpy()).max() < 0.005


def test_event_files_are_found_by_the_key(trained: Trained) -> None:
    planned = plan(trained.config)
    assert event_folders(planned.folder.parent, trained.record.key) == [folder_of(planned)]
    assert event_folders(planned.folder.parent, "0" * 16) == []


def test_hparams_compare_what_was_swept(trained: Trained, tmp_path: Path) -> None:
    """Through the code behind TensorBoard's page."""
    copy_of(trained, tmp_path)
    other = train(tmp_path, *OPTIONS, "routing.iterations=3", "attention=none")
    context, experiment = hparams_page(tmp_path)
    infos = {info.name: info for info in experiment.hparam_infos}
    # What differs comes first, which is what the page shows unasked.
    assert [info.name for info in experiment.hparam_infos if info.differs] == [*infos][:2]
    assert [*infos][:2] == ["attention", "routing.iterations"]
    assert {"model", "data", "optim.lr", "optim.batch_size", "model.width", "seed", "protocol"} <= set(infos)
    assert {value.string_value for value in infos["routing.iterations"].domain_discrete.values} == {"2", "3"}
    # The page shows five metrics unasked.
    metrics = [metric.name.tag for metric in experiment.metric_infos]
    assert metrics[:5] == ["accuracy/test", "accuracy/train", "loss/test", "loss/train", "maximum/accuracy"]
    small = "mnist_sample width=0.04 3 epochs 256 train images"
    names = {"cbam r2": trained.record, "r3": other.record}
    groups = rows_of_the_page(context, experiment)
    assert len(groups) == len(names)
    for name, record in names.items():
        group = groups[f"{name} reconstruction s0 · capsnet {small} · {record.key[:6]}"]
        assert group.hparams["routing.iterations"].string_value == str(record.config["routing"]["iterations"])
        assert group.hparams["attention"].string_value == ("cbam" if record.config["attention"]["cbam"] else "none")
        values = {value.name.tag: value.value for value in group.metric_values}
        assert values["accuracy/test"] == pytest.approx(record.last_accuracy)
        assert values["maximum/accuracy"] == pytest.approx(record.max_accuracy)
        assert values["maximum/first_epoch_to_max"] == record.first_epoch_to_max
        assert group.sessions[0].status == api_pb2.STATUS_SUCCESS


def hparams_page(place: Path) -> tuple[Any, Any]:
    """What the HParams page knows of all runs below a folder."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(place / "logs"))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(place))
    context = backend_context.Context(SimpleNamespace(data_provider=provider))
    request = RequestContext()
    content = context.hparams_metadata(request, "")
    return context, context.experiment_from_metadata(request, "", True, content, None)


def rows_of_the_page(context: Any, experiment: Any) -> dict[str, Any]:
    """The lines of the HParams table."""
    request = api_pb2.ListSessionGroupsRequest(
        allowed_statuses=list(api_pb2.Status.values()),
        slice_size=100,
        col_params=[api_pb2.ColParams(metric=metric.name) for metric in experiment.metric_infos],
    )
    handler = list_session_groups.Handler(RequestContext(), context, "", request)
    return {group.name: group for group in handler.run().session_groups}


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
    record = run(config)
    events = read(folder)
    found = steps(events)
    assert set(found) == CURVES | SINGLES | {"reconstructions"}
    assert all(each == [1, 2, 3] for tag, each in found.items() if tag not in SINGLES)
    assert [event.value for event in events.Scalars("accuracy/test")] == pytest.approx(
        [row["test_accuracy"] for row in record.epochs]
    )
    assert len(list(folder.glob("events*"))) == (2 if epochs else 1)
    assert len(events.Tensors("_hparams_/session_start_info")) == 1


def test_under_heldout_the_test_accuracy_stands_at_the_chosen_epoch(
    trained_heldout: Trained,
) -> None:
    config, record, _ = trained_heldout
    events = read(folder_of(plan(config)))
    assert steps(events)["accuracy/heldout"] == [1, 2, 3]
    (tested,) = events.Scalars("accuracy/test")
    assert (tested.step, tested.value) == (record.first_epoch_to_max, pytest.approx(record.heldout_accuracy))
    assert [event.value for event in events.Scalars("maximum/first_epoch_to_max")] == [record.first_epoch_to_max]
    assert "maximum/accuracy" not in events.Tags()["scalars"]
    assert events.Tags()["images"] == []


def noise(*words: str) -> tuple[CapsuleModule, nn.Module, torch.Tensor, torch.Tensor]:
    """A network with a decoder, and ten images of noise, which no image format can make smaller, with their labels."""
    config = composed_config(*words, "reconstruction.enabled=true")
    module = CapsuleModule(Plan(config, torch.device("cpu"), "float32", None, None), build(config))
    assert module.decoder is not None
    return (
        module,
        module.decoder,
        torch.rand(10, config.data.channels, config.data.size, config.data.size),
        torch.arange(10),
    )


def test_pictures_leave_the_modes_and_cost_single_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def counting(module: CapsuleModule, pixels: torch.Tensor) -> Any:
        images.append(len(pixels))
        return observe(module, pixels)

    images: list[int] = []
    monkeypatch.setattr(tensorboard, "observe", counting)
    module, decoder, pixels, labels = noise(*TINY_RUN)
    module.train()
    tensorboard.reconstructions(module, decoder, pixels, labels)
    assert images == [1] * 10
    assert all(part.training for part in module.modules())
    assert not module.network._forward_hooks


def test_files_of_350_epochs_stay_small_and_the_last_epoch_has_pictures() -> None:
    drawn = tensorboard.reconstructions(*noise("model=capsnet", "data=cifar10", "budget.width=0.07"))
    size = len(tensorboard.image_summary("reconstructions", drawn, dataformats="CHW").SerializeToString())
    assert size * sum(has_pictures(number, 350) for number in range(1, 351)) < 5_000_000
    assert all(has_pictures(number, 250) for number in range(1, 11))
    assert [number for number in range(11, 64) if has_pictures(number, 63)] == [20, 30, 40, 50, 60, 63]


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
