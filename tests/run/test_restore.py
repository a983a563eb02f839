"""A checkpoint is restored to its network; no contents of the file run code or raise anything but one line."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import Trained, put, raising, refused

from capsexp.nn import LinearCapsules
from capsexp.run import checkpoints, keys
from capsexp.run.restore import restore

REMEDY = "; delete it if it was one: rerun=true on its run makes it again"

Json = dict[str, Any]
Change = Callable[[Json], object]


@pytest.fixture
def changed(trained: Trained, tmp_path: Path) -> Callable[[Change], Path]:
    """Writes the run's last checkpoint with a change."""

    def write(change: Change) -> Path:
        checkpoint = checkpoints.load(trained.folder / checkpoints.LAST)
        change(checkpoint)
        torch.save(checkpoint, tmp_path / "changed.ckpt")
        return tmp_path / "changed.ckpt"

    return write


def refusal(path: Path, *overrides: str) -> str:
    """The error line of a checkpoint, without its path."""
    line = refused(restore, path, "cpu", overrides)
    assert line.isprintable()  # without control characters
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", [checkpoints.LAST, checkpoints.BEST])
def test_the_network_is_the_trained_one(trained: Trained, name: str) -> None:
    restored = restore(trained.folder / name)
    stored = checkpoints.load(trained.folder / name)
    assert restored.name == trained.folder.name
    assert keys.key_of(restored.module.planned.identity) == trained.record.key
    assert restored.epoch == len(stored["history"]) == len(restored.module.history)
    assert restored.module.history == trained.record.epochs[: restored.epoch]
    assert restored.epoch == (3 if name == checkpoints.LAST else trained.record.first_epoch_to_max)
    assert not restored.module.training
    state = restored.module.state_dict()
    assert state.keys() == stored["state_dict"].keys()
    assert "optimizer_states" not in stored
    assert all(torch.equal(state[key], stored["state_dict"][key]) for key in state)


def test_the_configuration_is_that_of_the_record(trained: Trained) -> None:
    described = keys.stored_config(restore(trained.folder).config)
    trainer = described.pop("trainer")
    assert described == {key: value for key, value in trained.record.config.items() if key != "trainer"}
    assert trainer["precision"] == "float32"
    assert (trainer["accelerator"], trainer["deterministic"]) == ("auto", False)  # of this machine


def test_of_a_folder_the_best_is_taken(trained: Trained, tmp_path: Path) -> None:
    assert restore(trained.folder).path == trained.folder / checkpoints.BEST
    (tmp_path / checkpoints.LAST).write_bytes((trained.folder / checkpoints.LAST).read_bytes())
    assert restore(tmp_path).path == tmp_path / checkpoints.LAST


def test_the_data_folder_is_this_machines(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSEXP_DATA", "/somewhere")
    assert restore(trained.folder).config.data.root == "/somewhere"
    assert restore(trained.folder, overrides=["data.root=/typed"]).config.data.root == "/typed"
    assert str(trained.folder.parents[1]).encode() not in (trained.folder / checkpoints.LAST).read_bytes()
    assert str(Path.home()).encode() not in (trained.folder / checkpoints.BEST).read_bytes()


def test_overrides_replace_what_the_training_had(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    kept = restore(trained.folder)
    assert (kept.config.budget.test_images, kept.config.trainer.eval_batch_size) == (200, 256)
    overrides = ["trainer.precision=bf16", "trainer.eval_batch_size=7", "trainer.threads=1", "budget.test_images=null"]
    restored = restore(trained.folder, overrides=[*overrides, "trainer.routing=reference"])
    assert (restored.precision, threads) == ("bf16", [1])
    assert restored.config.trainer.eval_batch_size == 7
    assert restored.config.budget.test_images is None
    assert type(restored.module.network.classes) is LinearCapsules
    pixels = torch.rand(2, 1, 28, 28)
    exact, rounded = kept(pixels).scores, restored(pixels).scores
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, atol=0.02, rtol=0.02)


def test_another_data_set_is_taken_whole(trained: Trained, tmp_path: Path) -> None:
    restored = restore(trained.folder, overrides=["data=fashion_mnist"])
    assert restored.config.data.name == "fashion_mnist"
    assert restored.config.data.class_names[0] == "T-shirt/top"
    assert restored.config.budget.test_images is None  # the 200 were of the run's own data set
    assert keys.key_of(restored.module.planned.identity) == trained.record.key
    smaller = restore(trained.folder, overrides=["data=affine_mnist", "data.size=28"])
    assert smaller.config.data.size == 28
    np.savez(tmp_path / "own.npz", images=np.zeros((20, 28, 28), np.uint8), labels=[*range(10)] * 2)
    own = restore(trained.folder, overrides=["data=folder", f"data.path={tmp_path}/own.npz", "data.size=28"])
    assert (own.config.data.path, own.module.planned.config.data.path) == (f"{tmp_path}/own.npz", None)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed=1", "seed: is set by the checkpoint; what can be given is data, data.root, "),
        ("model=da_capsnet", "model: is set by the checkpoint"),
        ("trainer.deterministic=true", "trainer.deterministic: is set by the checkpoint"),
        ("hydra.verbose=true", "hydra.verbose: is set by the checkpoint"),
        ("data=mnits", "data=mnits: no such choice; did you mean mnist?"),
        ("+data.path=photos", "data.path=photos: no such key of data=mnist_sample; data=folder has it"),
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
def test_what_cannot_be_overridden_is_one_line(trained: Trained, override: str, line: str) -> None:
    assert line in refusal(trained.folder / checkpoints.LAST, override)


def test_a_file_of_another_kind_and_a_truncated_one_are_one_line(trained: Trained, tmp_path: Path) -> None:
    whole = (trained.folder / checkpoints.LAST).read_bytes()
    parts = [whole[: int(fraction * len(whole))] for fraction in (0.01, 0.3, 0.9, 0.999)]
    others = [b"accuracy: 99.75\n" * 9, pickle.dumps({"state_dict": {}}), b"PK\x03\x04" + bytes(500)]
    for contents in (b"", *others, *parts):
        (tmp_path / "some.ckpt").write_bytes(contents)
        reason = "not a checkpoint, or damaged" if contents else "empty, not a checkpoint"
        assert refusal(tmp_path / "some.ckpt") == reason + REMEDY


def test_a_path_without_a_checkpoint_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "none.ckpt") == "no such checkpoint"
    assert refusal(Path("~nobody-of-this-name/none.ckpt")) == "no such checkpoint"
    assert refusal(tmp_path).startswith("a folder without best.ckpt and last.ckpt")
    os.mkfifo(tmp_path / "pipe.ckpt")
    assert refusal(tmp_path / "pipe.ckpt") == "not a file; move it away"
    (tmp_path / "closed.ckpt").touch(0o000)
    if os.geteuid() == 0:  # root may read every file
        monkeypatch.setattr(os, "open", raising(PermissionError(13, "Permission denied")))
    assert refusal(tmp_path / "closed.ckpt") == "Permission denied"


OTHER = "its weights are of another network than its configuration: "
WEIGHT = "network.primary.convolution.weight"
REFUSED = [
    (lambda node: node.pop("state_dict"), "not a checkpoint of capsexp"),
    (lambda node: node.pop("capsexp"), "of format None; this capsexp reads format 1"),
    (put("capsexp", 3), "of format None; this capsexp reads format 1"),
    (put("capsexp/format", "\x1b[2J\n"), r"of format \x1b[2J\n; this"),
    (lambda node: node["capsexp"].pop("epoch"), "damaged: epoch: missing"),
    (put("capsexp/precision", "${oc.env:HOME}"), "damaged: precision=${oc.env:HOME}: must be one of bf16, float32"),
    (put("history", 5), "history=5: must be a list"),
    (put("pixels", 5), "pixels=5: must be a list"),
    (put("pixels", [[0.1]]), "pixels=[[0.1]]: must be two lists"),
    (put("trained_images", torch.zeros(3)), "trained_images: must be a tensor of whole numbers"),
    (put(f"state_dict/{WEIGHT}", torch.zeros(2, 3)), f"{OTHER}{WEIGHT} is 2×3, not 8×10×9×9"),
    (lambda node: node["state_dict"].pop(WEIGHT), f"{OTHER}{WEIGHT} is missing"),
    (put(f"state_dict/{WEIGHT}", torch.full((8, 10, 9, 9), torch.nan)), f"{WEIGHT} holds NaN: its training diverged"),
    (put("state_dict/network.more", torch.zeros(1)), f"{OTHER[:-2]}, which has no network.more"),
    (put("capsexp/config/model/channels", 10**9), OTHER),  # found before memory is allocated
    (
        put("capsexp/config/routing/iterations", 10**9),
        "its configuration can't be used here: routing.iterations=1000000000: must be a whole number at least 1 and ",
    ),
    (
        put("capsexp/config/reconstruction/hidden", [1] * 10**4),
        "its configuration can't be used here: reconstruction.hidden: has 10,000 entries; must have at most 100",
    ),
    (put("capsexp/config/attention/cbam", False), f"{OTHER[:-2]}, which has no network.cbam"),
    (put("capsexp/config/optim/lr", "fast"), "its configuration can't be used here: optim.lr=fast: must be a number"),
    (put("capsexp/config/more", 1), "its configuration can't be used here: more: no such key"),
    (put("capsexp/config/data/name", "../../x"), "its configuration can't be used here: data.name=../../x: no such"),
    (put("capsexp/config/data/name", ["mnist"]), "its configuration can't be used here: data.name=['mnist']: no such"),
    (put("capsexp/config/data/size", 3), "model=capsnet on mnist_sample (3×3): a kernel of 9×9 doesn't fit"),
]


@pytest.mark.parametrize(("change", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_inconsistent_contents_are_one_line(changed: Callable[[Change], Path], change: Change, line: str) -> None:
    found = refusal(changed(change))
    assert found.startswith(line)
    parts = ("history", "pixels", "trained_images", WEIGHT)
    damaged = line.startswith(("not a checkpoint", "damaged", OTHER[:-2], "model=", *parts))
    assert found.endswith(REMEDY) == damaged


class Harm:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_code_in_a_checkpoint_does_not_run(changed: Callable[[Change], Path], tmp_path: Path) -> None:
    marker = tmp_path / "harmed"
    for where in ("more", "state_dict/more", "capsexp/config/more"):
        path = changed(put(where, Harm(marker)))
        assert refusal(path) == "refused: it holds more than tensors and plain containers (posix.system)"
    assert not marker.exists()
    torch.load(path, weights_only=False)  # as an unsafe reader would
    assert marker.exists()


TARGETS = ["os.system", "capsexp.nn.attention.SqueezeExcitation", "", ".", None, {"_target_": "os.system"}]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_classes_that_conf_does_not_name_are_not_imported(changed: Callable[[Change], Path], target: object) -> None:
    for where in ("model", "routing", "loss", "data.reader"):
        line = refusal(changed(put(f"capsexp/config/{where.replace('.', '/')}/_target_", target)))
        group = where.partition(".")[0]
        reason = f"no file of conf/{group} names this class" if isinstance(target, str) else "must be text"
        assert f"{where}._target_={'null' if target is None else target}: {reason}" in line
    node = {"name": "pairs", "_target_": target}
    assert "data.synthesis._target_=" in refusal(changed(put("capsexp/config/data/synthesis", node)))


def test_paths_accepted_files_and_class_names_in_a_checkpoint_are_ignored_and_its_name_is_printable(
    changed: Callable[[Change], Path],
) -> None:
    def change(checkpoint: Json) -> None:
        checkpoint["capsexp"]["name"] = "\x1b[2Jrun\n"
        config = checkpoint["capsexp"]["config"]
        config["paths"] = {"results": "/harm", "logs": "/harm"}
        config["data"] |= {"root": "/harm", "download": True, "versions": {"harm": {"note": None, "files": {}}}}
        config["data"]["class_names"] = ["\x1b[2J"] * 10

    restored = restore(changed(change))
    assert restored.name == r"\x1b[2Jrun\n"
    config = restored.config
    assert (config.paths.results, config.paths.logs, config.data.root) == ("results", "logs", "data")
    assert config.data.download is False  # as conf/data/mnist_sample.yaml says
    assert list(config.data.versions) == ["packaged"]
    assert config.data.class_names == []
