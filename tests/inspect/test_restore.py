"""A checkpoint gives back its network, and does nothing else, whatever stands in it."""

import copy
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import TINY, composed_config

from capsexp.errors import InputError
from capsexp.inspect.restore import restore
from capsexp.run import checkpoints, records
from capsexp.run.execute import run

Json = dict[str, Any]
DECODER = ("reconstruction.enabled=true", "reconstruction.hidden=[8,8]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[records.Record, Path]:
    """The record and the folder of a run with a decoder."""
    place = tmp_path_factory.mktemp("trained")
    paths = (f"paths.results={place}/results", f"paths.logs={place}/logs", f"data.root={place}/elsewhere")
    record = run(composed_config(*TINY, *paths, *DECODER), None, lambda line: None)
    (folder,) = (place / "logs").iterdir()
    return record, folder


@pytest.fixture
def changed(trained: tuple[records.Record, Path], tmp_path: Path) -> Callable[[Callable[[Json], object]], Path]:
    """Writes the run's last checkpoint with a change."""

    def write(change: Callable[[Json], object]) -> Path:
        checkpoint = copy.deepcopy(checkpoints.load(trained[1] / checkpoints.LAST))
        change(checkpoint)
        torch.save(checkpoint, tmp_path / "changed.ckpt")
        return tmp_path / "changed.ckpt"

    return write


def refusal(path: Path, typed: tuple[str, ...] = ()) -> str:
    """The one line that a checkpoint gets, without its path."""
    with pytest.raises(InputError) as raised:
        restore(path, typed=typed)
    assert str(raised.value).isprintable()  # one line, without anything that a terminal would obey
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", [checkpoints.LAST, checkpoints.BEST])
def test_it_is_the_network_that_was_trained(trained: tuple[records.Record, Path], name: str) -> None:
    record, folder = trained
    restored = restore(folder / name)
    stored = checkpoints.load(folder / name)
    assert restored.name == folder.name
    assert records.key_of(restored.identity) == record.key
    assert restored.epoch == len(stored["history"]) == len(restored.module.history)
    assert restored.module.history == record.epochs[: restored.epoch]
    assert restored.epoch == (3 if name == checkpoints.LAST else record.first_epoch_to_max)
    assert not restored.module.training
    state = restored.module.state_dict()
    assert state.keys() == stored["state_dict"].keys()
    assert all(torch.equal(state[key], stored["state_dict"][key]) for key in state)


def test_the_configuration_is_that_of_the_record(trained: tuple[records.Record, Path]) -> None:
    record, folder = trained
    described = records.stored_config(restore(folder).config)
    where = described.pop("trainer")
    assert described == {key: value for key, value in record.config.items() if key != "trainer"}
    assert where["precision"] == "float32"
    assert (where["accelerator"], where["deterministic"]) == ("auto", False)  # that is each machine's own


def test_of_a_folder_the_best_is_taken(trained: tuple[records.Record, Path], tmp_path: Path) -> None:
    _, folder = trained
    assert restore(folder).path == folder / checkpoints.BEST
    (tmp_path / checkpoints.LAST).write_bytes((folder / checkpoints.LAST).read_bytes())
    assert restore(tmp_path).path == tmp_path / checkpoints.LAST


def test_the_data_are_looked_for_on_this_machine(
    trained: tuple[records.Record, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = trained
    assert restore(folder).config.data.root == "data"
    monkeypatch.setenv("CAPSEXP_DATA", "/somewhere")
    assert restore(folder).config.data.root == "/somewhere"
    assert restore(folder, typed=["data.root=/typed"]).config.data.root == "/typed"


def test_a_checkpoint_says_nothing_of_the_machine(trained: tuple[records.Record, Path]) -> None:
    place = trained[1].parents[1]
    assert str(place).encode() not in (trained[1] / checkpoints.LAST).read_bytes()
    assert str(Path.home()).encode() not in (trained[1] / checkpoints.BEST).read_bytes()


def test_what_is_typed_wins(trained: tuple[records.Record, Path]) -> None:
    _, folder = trained
    kept = restore(folder).config
    assert (kept.budget.test_images, kept.trainer.eval_batch_size) == (200, 256)
    restored = restore(folder, typed=["trainer.precision=bf16", "trainer.eval_batch_size=7", "budget.test_images=null"])
    assert restored.precision == "bf16"
    assert restored.config.trainer.eval_batch_size == 7
    assert restored.config.budget.test_images is None
    pixels = torch.rand(2, 1, 28, 28)
    exact, rounded = restore(folder)(pixels).scores, restored(pixels).scores
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, atol=0.02, rtol=0.02)
    reference = restore(folder, typed=["trainer.routing=reference"])
    assert reference.module.network.classes.fast is False  # type: ignore[union-attr]


def test_other_data_are_taken_whole(trained: tuple[records.Record, Path]) -> None:
    restored = restore(trained[1], typed=["data=fashion_mnist"])
    assert restored.config.data.name == "fashion_mnist"
    assert restored.config.data.class_names[0] == "T-shirt/top"
    assert restored.config.budget.test_images is None  # the 200 were of the run's own data set
    assert records.key_of(restored.identity) == trained[0].key
    smaller = restore(trained[1], typed=["data=affine_mnist", "data.size=28"])
    assert smaller.config.data.size == 28


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("seed=1", "seed: is the checkpoint's to say; what can be typed is data=NAME, "),
        ("model=da_capsnet", "model: is the checkpoint's to say"),
        ("data.size=20", "data.size: is the checkpoint's to say"),
        ("trainer.deterministic=true", "trainer.deterministic: is the checkpoint's to say"),
        ("paths.logs=/x", "paths.logs: is the checkpoint's to say"),
        ("hydra.verbose=true", "hydra.verbose: is the checkpoint's to say"),
        ("data=mnits", "data=mnits: no such choice; did you mean mnist?"),
        ("trainer.precision=half", "trainer.precision=half: must be one of auto, bf16, float32"),
        ("budget.test_images=0", "budget.test_images=0: must be a whole number at least 1 or null"),
        (
            "data=cifar10",
            "data=cifar10: has images of 32×32×3, 10 classes, one class each; "
            "the network is made for images of 28×28×1, 10 classes, one class each",
        ),
        ("data=affine_mnist", "one class each (data.size=28 makes them so)"),
        ("data=diverse_multimnist", "10 classes, sets of classes; the network is made for"),
    ],
)
def test_what_cannot_be_typed_gets_one_line(trained: tuple[records.Record, Path], typed: str, line: str) -> None:
    assert line in refusal(trained[1] / checkpoints.LAST, (typed,))


@pytest.mark.parametrize(
    ("contents", "line"),
    [
        (b"", "empty, not a checkpoint"),
        (b"accuracy: 99.75\n" * 9, "not a checkpoint, or damaged"),
        (pickle.dumps({"state_dict": {}}), "not a checkpoint, or damaged"),
        (b"PK\x03\x04" + bytes(500), "not a checkpoint, or damaged"),
    ],
)
def test_a_file_of_another_kind_gets_one_line(contents: bytes, line: str, tmp_path: Path) -> None:
    (tmp_path / "some.ckpt").write_bytes(contents)
    assert refusal(tmp_path / "some.ckpt") == line


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 0.999])
def test_a_truncated_checkpoint_gets_one_line(
    trained: tuple[records.Record, Path], share: float, tmp_path: Path
) -> None:
    whole = (trained[1] / checkpoints.LAST).read_bytes()
    (tmp_path / "some.ckpt").write_bytes(whole[: int(share * len(whole))])
    assert refusal(tmp_path / "some.ckpt") == "not a checkpoint, or damaged"


def test_where_there_is_no_checkpoint_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "none.ckpt") == "no such checkpoint"
    assert refusal(Path("~nobody-of-this-name/none.ckpt")) == "no such checkpoint"
    assert refusal(tmp_path).startswith("a folder without best.ckpt and last.ckpt")
    (tmp_path / "closed.ckpt").touch(0o000)
    if os.geteuid() == 0:  # who may read everything
        monkeypatch.setattr(Path, "read_bytes", denied)
    assert refusal(tmp_path / "closed.ckpt") == "Permission denied"


def denied(path: Path) -> bytes:
    """What the system says to those who may not."""
    raise PermissionError(13, "Permission denied", str(path))


def put(where: str, value: Any) -> Callable[[Json], object]:
    """A change of what stands at a dotted key."""

    def change(node: Json) -> None:
        *path, last = where.split("/")
        for key in path:
            node = node[key]
        node[last] = value

    return change


def without(where: str) -> Callable[[Json], object]:
    """A change that takes away what stands at a dotted key."""

    def change(node: Json) -> None:
        *path, last = where.split("/")
        for key in path:
            node = node[key]
        del node[last]

    return change


OTHER = "its weights are of another network than its configuration: "
WEIGHT = "network.primary.convolution.weight"
REFUSED = [
    (without("state_dict"), "not a checkpoint of capsexp"),
    (put("state_dict", [1]), "not a checkpoint of capsexp"),
    (without("capsexp"), "it doesn't say its configuration: not of capsexp, or of an older one (rerun=true trains"),
    (put("capsexp", 3), "of format None; this capsexp reads format 1"),
    (put("capsexp/format", 2), "of format 2; this capsexp reads format 1"),
    (put("capsexp/format", "\x1b[2J\n"), "of format ?[2J?; this"),
    (without("capsexp/epoch"), "damaged: epoch: missing"),
    (put("capsexp/precision", "${oc.env:HOME}"), "damaged: precision=${oc.env:HOME}: must be one of bf16, float32"),
    (put("capsexp/config", []), "damaged: config=[]"),
    (put("history", 5), "history=5: must be a list"),
    (put(f"state_dict/{WEIGHT}", torch.zeros(2, 3)), f"{OTHER}{WEIGHT} is 2×3, not 8×10×9×9"),
    (without(f"state_dict/{WEIGHT}"), f"{OTHER}{WEIGHT} is missing"),
    (put(f"state_dict/{WEIGHT}", "text"), f"{OTHER}{WEIGHT} is missing"),
    (put("state_dict/network.more", torch.zeros(1)), f"{OTHER[:-2]}, which has no network.more"),
    (put("capsexp/config/model/channels", 10**13), OTHER),  # found without taking the memory
    (put("capsexp/config/reconstruction/hidden", [10**13]), OTHER),
    (put("capsexp/config/attention/cbam", True), OTHER),
    (put("capsexp/config/optim/lr", "fast"), "its configuration can't be used here: optim.lr=fast: must be a number"),
    (put("capsexp/config/more", 1), "its configuration can't be used here: more: no such key"),
    (without("capsexp/config/seed"), "its configuration can't be used here: seed: missing"),
    (put("capsexp/config/data", None), "its configuration can't be used here: data.reader._target_=None"),
    (put("capsexp/config/data/name", "../../x"), "its configuration can't be used here: data.name=../../x: no such"),
    (put("capsexp/config/data/name", ["mnist"]), "its configuration can't be used here: data.name=['mnist']: no such"),
    (put("capsexp/config/data/size", 3), "model=capsnet on mnist_sample (3×3): a 9×9 kernel doesn't fit"),
]


@pytest.mark.parametrize(("change", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_a_checkpoint_that_does_not_hold_together_gets_one_line(
    changed: Callable[[Callable[[Json], object]], Path], change: Callable[[Json], object], line: str
) -> None:
    assert refusal(changed(change)).startswith(line)


class Harm:
    """Unpickled, it would write a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_code_in_a_checkpoint_does_not_run(changed: Callable[[Callable[[Json], object]], Path], tmp_path: Path) -> None:
    marker = tmp_path / "harmed"
    for where in ("more", "state_dict/more", "capsexp/config/more"):
        path = changed(put(where, Harm(marker)))
        assert refusal(path) == "refused: it holds more than tensors and plain containers (posix.system)"
    assert not marker.exists()
    torch.load(path, weights_only=False)  # that is what it would have done
    assert marker.exists()


TARGETS = [
    *("os.system", "subprocess.Popen", "builtins.exec", "capsexp.files.write_atomically", "capsexp.data.source.load"),
    *("capsexp.study.launcher.launch", "capsexp.models.capsnet.nn", "capsexp.nn.decoder.Decoder", "torch.nn.Linear"),
    *("", ".", "os", None, 1, ["os.system"], {"_target_": "os.system"}),
]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_classes_that_are_not_the_configurations_are_not_made(
    changed: Callable[[Callable[[Json], object]], Path], target: object
) -> None:
    for where in ("model", "routing", "loss", "data.reader"):
        path = changed(put(f"capsexp/config/{where.replace('.', '/')}/_target_", target))
        assert f"{where}._target_={target}: conf/{where.partition('.')[0]} names no such class" in refusal(path)
    node = {"name": "pairs", "_target_": target}
    assert "data.synthesis._target_=" in refusal(changed(put("capsexp/config/data/synthesis", node)))


def test_a_class_of_another_kind_is_not_made(changed: Callable[[Callable[[Json], object]], Path]) -> None:
    target = "capsexp.models.da_capsnet.DACapsNet"
    assert "conf/loss names no such class" in refusal(changed(put("capsexp/config/loss/_target_", target)))


def test_modules_that_a_checkpoint_names_are_not_imported(
    changed: Callable[[Callable[[Json], object]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "harmful.py").write_text(f"open({str(tmp_path / 'harmed')!r}, 'w')\nclass Net: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for where in ("model", "routing", "loss", "data/reader"):
        refusal(changed(put(f"capsexp/config/{where}/_target_", "harmful.Net")))
    assert "harmful" not in sys.modules
    assert not (tmp_path / "harmed").exists()


def test_a_name_does_nothing_to_the_terminal(changed: Callable[[Callable[[Json], object]], Path]) -> None:
    assert restore(changed(put("capsexp/name", "\x1b[2Jrun\n"))).name == "?[2Jrun?"


def test_paths_and_accepted_files_in_a_checkpoint_do_not_count(
    changed: Callable[[Callable[[Json], object]], Path],
) -> None:
    def change(checkpoint: Json) -> None:
        config = checkpoint["capsexp"]["config"]
        config["paths"] = {"results": "/harm", "logs": "/harm"}
        config["data"] |= {"root": "/harm", "download": True, "versions": {"harm": {"note": None, "files": {}}}}

    config = restore(changed(change)).config
    assert (config.paths.results, config.paths.logs, config.data.root) == ("results", "logs", "data")
    assert config.data.download is False  # as conf/data/mnist_sample.yaml says
    assert list(config.data.versions) == ["packaged"]
