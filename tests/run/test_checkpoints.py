"""Checkpoints: when they are written, what an interrupted run continues from, which are refused."""

import dataclasses
import os
import pickle
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from support import Trained, at, composed_config, copy_of, interrupt_after, numbers, raising, refused, stop_after, train
from torch._subclasses import FakeTensorMode

from capsexp.errors import InputError, RunError
from capsexp.run import checkpoints, provenance, records
from capsexp.run.checkpoints import EpochCheckpoint, PendingCheckpointIO
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import BEFORE, BEST, LAST, plan
from capsexp.run.tensorboard import TensorBoard

#: Schedules, and their learning rates in three epochs.
SCHEDULES = {
    "steps": ("optim.schedule=steps", "optim.milestones=[168]", "optim.factor=0.5"),  # of 250 epochs: 2 of these 3
    "plateau": ("optim.schedule=plateau", "optim.patience=0", "optim.factor=0.5", "optim.lr=0.2"),
    "accuracy": ("optim.plateau_of=test_accuracy", "optim.patience=0", "optim.factor=0.5", "optim.lr=3e-5"),
    "constant": ("optim.schedule=constant", "trainer.precision=bf16"),
}
RATES = {
    "steps": [1e-3, 1e-3, 5e-4],
    "plateau": [0.2, 0.2, 0.1],
    "accuracy": [3e-5, 3e-5, 1.5e-5],
    "constant": [1e-3] * 3,
}
Whole = Callable[[str], records.Record]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The record of a run with a schedule, trained once."""
    words = ("preprocess.shift=0.1", "logger=[]")
    return cache(lambda name: train(tmp_path_factory.mktemp(name), *words, *SCHEDULES[name]).record)


@pytest.mark.parametrize(
    ("schedule", "interruptions"),
    [("steps", [0]), ("steps", [1, 2]), ("plateau", [1]), ("accuracy", [1]), ("constant", [1])],
)
def test_an_interrupted_run_ends_in_the_same_numbers(
    schedule: str,
    interruptions: list[int],
    uninterrupted: Whole,
    tiny: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = composed_config(*tiny, *SCHEDULES[schedule], "preprocess.shift=0.1")
    for epochs in interruptions:
        with monkeypatch.context() as patched:
            patched.setattr(provenance, "_commit", lambda at=epochs: (f"before {at}", True))
            interrupt_after(epochs, config, patched)
    assert not list(tmp_path.glob("results/runs/*"))
    continued, whole = run(config), uninterrupted(schedule)
    assert (numbers(continued), continued.correct) == (numbers(whole), whole.correct)
    assert continued.key == whole.key
    assert [row["learning_rate"] for row in continued.epochs] == RATES.get(schedule, [1e-3] * 3)
    completed = [epochs for epochs in interruptions if epochs]
    assert continued.provenance["resumed_after_epochs"] == completed
    last = continued.provenance["commit"]
    assert continued.provenance["commits"] == [*(f"before {epochs}" for epochs in completed), last]
    assert (f"continues after epoch {interruptions[-1]}" in capsys.readouterr().out) is bool(completed)


def test_an_interrupted_run_of_a_gpu_continues_where_its_folder_was_moved(
    uninterrupted: Whole, tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny, "preprocess.shift=0.1", *SCHEDULES["steps"])
    interrupt_after(1, config, monkeypatch)
    path = plan(config).folder / LAST
    checkpoint = checkpoints.load(path)
    checkpoint["optimizer_states"][0]["param_groups"][0]["capturable"] = True
    torch.save(checkpoint, path)
    shutil.move(tmp_path / "logs", tmp_path / "there" / "logs")
    continued = run(at(config, tmp_path / "there"))
    assert continued.provenance["resumed_after_epochs"] == [1]
    assert numbers(continued) == numbers(uninterrupted("steps"))


@pytest.mark.parametrize(("interval", "written"), [(1e9, [1, 3]), (0.0, [1, 2, 3])])
def test_checkpoints_are_written_by_time(
    interval: float, written: list[int], tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", interval)
    epochs: dict[str, list[int]] = {BEST: [], LAST: []}
    save = checkpoints._save

    def counted(checkpoint: dict[str, Any], path: Path) -> None:
        if "optimizer_states" in checkpoint or path.name == BEST:
            epochs[path.name].append(checkpoint["capsexp"]["epoch"])
        save(checkpoint, path)

    monkeypatch.setattr(checkpoints, "_save", counted)
    record = run(composed_config(*tiny))
    assert epochs[LAST] == written
    assert epochs[BEST][-1] == record.first_epoch_to_max


def test_the_best_weights_are_written_before_the_history_that_has_their_accuracy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a kill between the two leaves best.ckpt as it was: the resumed run doesn't reach a new maximum there."""
    written: list[Path] = []
    monkeypatch.setattr(checkpoints, "_save", lambda checkpoint, path: written.append(path))
    files = EpochCheckpoint(Path()).files
    for name in (LAST, BEST):  # the second epoch of two was the better one
        files.save_checkpoint({}, name)
    files.write()
    assert written == [Path(BEST), Path(LAST)]


def test_checkpoints_of_a_gpu_are_kept_in_the_hosts_memory_and_as_they_were() -> None:
    files, state = PendingCheckpointIO(), torch.zeros(3)
    with FakeTensorMode():
        weights = torch.empty(3, device="cuda")
    files.save_checkpoint({"optimizer_states": [{"state": {0: {"exp_avg": weights, "step": state}}}]}, LAST)
    state += 1
    kept = files.pending[Path(LAST)]["optimizer_states"][0]["state"][0]
    assert (kept["exp_avg"].device.type, kept["step"].sum()) == ("cpu", 0)


def test_a_kill_between_two_renames_leaves_no_temporary_file_for_ever(trained: Trained, tmp_path: Path) -> None:
    shutil.copy(trained.folder / LAST, tmp_path)
    os.link(tmp_path / LAST, tmp_path / BEFORE)  # killed before LAST was replaced
    checkpoints._keep_before(tmp_path / LAST)
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEFORE, LAST]


@pytest.mark.parametrize("file", [BEST, LAST])
def test_an_interruption_of_a_writing_loses_no_whole_epoch(
    file: str, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(checkpoint: dict[str, Any], path: Path) -> None:
        if path.name == file:
            monkeypatch.setattr(checkpoints, "_save", save)
            raise KeyboardInterrupt
        save(checkpoint, path)

    config, save = composed_config(*tiny), checkpoints._save
    monkeypatch.setattr(checkpoints, "_save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    for name in (BEST, LAST):
        assert len(checkpoints.load(plan(config).folder / name)["history"]) == 1


@pytest.mark.parametrize("protocol", ["paper", "heldout"])
def test_a_run_whose_record_is_missing_only_writes_it(
    protocol: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: Trained = request.getfixturevalue("trained" if protocol == "paper" else "trained_heldout")
    stop_after(0, AssertionError(), monkeypatch)
    config = copy_of(trained, tmp_path, recorded=False)
    record = run(dataclasses.replace(config, logger=trained.config.logger))  # TensorBoard has its last numbers to write
    assert (numbers(record), record.correct) == (numbers(trained.record), trained.record.correct)
    assert (record.learned, record.chance_accuracy) == (trained.record.learned, trained.record.chance_accuracy)
    assert record.heldout_accuracy == trained.record.heldout_accuracy
    assert record.provenance["routing_path"] == trained.record.provenance["routing_path"]


@pytest.mark.parametrize(
    ("damaged", "said", "rerun"),
    [
        ([LAST], "continues after epoch 1", False),
        ([LAST], "continues after epoch 1", True),
        ([LAST, BEFORE], "no checkpoint is left; starts over", False),
        ([BEST], "continues after epoch 2", False),
    ],
    ids=["last", "last of a repetition", "both", "best"],
)
def test_an_interrupted_run_with_a_damaged_checkpoint_goes_on(
    damaged: list[str],
    said: str,
    rerun: bool,
    uninterrupted: Whole,
    tiny: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = composed_config(*tiny, "preprocess.shift=0.1", *SCHEDULES["constant"], f"rerun={rerun}".lower())
    interrupt_after(2, config, monkeypatch)
    for name in damaged:
        path = plan(config).folder / name
        path.write_bytes(path.read_bytes()[:-1000])
    capsys.readouterr()
    assert numbers(run(config)) == numbers(uninterrupted("constant"))
    lines = capsys.readouterr().out.splitlines()
    renamed = f"{plan(config).folder / damaged[0]}: not a checkpoint, or damaged; renamed to {damaged[0]}.damaged"
    assert renamed in lines[2]
    assert all(plan(config).folder.joinpath(f"{name}.damaged").exists() for name in damaged)
    assert lines[2 + len(damaged)].endswith(said)


@pytest.mark.parametrize("damaged", [True, False], ids=["damaged", "of another epoch"])
def test_a_run_without_the_checkpoint_that_it_tests_at_the_end_starts_over(
    damaged: bool,
    trained_heldout: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = copy_of(trained_heldout, tmp_path, recorded=False)
    last, best = plan(config).folder / LAST, plan(config).folder / BEST
    other = 1 if trained_heldout.record.first_epoch_to_max != 1 else 2
    torch.save(checkpoints.load(best) | {"history": checkpoints.load(last)["history"][:other]}, best)
    if damaged:
        best.write_bytes(b"text")
    interrupt_after(0, config, monkeypatch)
    renamed = [f"{best}: not a checkpoint, or damaged; renamed to best.ckpt.damaged"] if damaged else []
    said = [*renamed, "no checkpoint is left; starts over"]
    assert [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()[2:]][: len(said)] == said
    assert checkpoints.load(last)["history"] == checkpoints.load(trained_heldout.folder / LAST)["history"]
    assert run(config).heldout_accuracy == trained_heldout.record.heldout_accuracy


def test_a_checkpoint_of_another_run_is_left_alone(trained: Trained, tiny: tuple[str, ...]) -> None:
    config = composed_config(*tiny)
    shutil.copytree(trained.folder, plan(config).folder)
    assert f"{BEST}: not of this run; rerun=true starts over" in refused(run, config)
    assert (plan(config).folder / LAST).read_bytes() == (trained.folder / LAST).read_bytes()
    assert run(dataclasses.replace(config, rerun=True)).status == "finished"


def test_a_checkpoint_with_other_weights_is_left_alone(trained: Trained, tmp_path: Path) -> None:
    config = copy_of(trained, tmp_path, recorded=False)
    last = plan(config).folder / LAST
    checkpoint = checkpoints.load(last)
    state = {name.replace("classes.", "capsules."): weight for name, weight in checkpoint["state_dict"].items()}
    assert state.keys() != checkpoint["state_dict"].keys()
    torch.save(checkpoint | {"state_dict": state}, last)
    assert f"{LAST}: of another version of capsexp; rerun=true starts over" in refused(run, config)
    assert last.exists()


@pytest.mark.parametrize("odd", [[], [5], [{"epoch": 1}], "text", None, "without the optimiser's state"])
def test_a_checkpoint_that_no_run_continues_from_is_left_alone(odd: Any, trained: Trained, tmp_path: Path) -> None:
    config = copy_of(trained, tmp_path, recorded=False)
    last = plan(config).folder / LAST
    checkpoint = checkpoints.load(last)
    history = checkpoint["history"][:1] if odd == "without the optimiser's state" else odd
    torch.save(checkpoint | {"history": history}, last)
    assert f"{LAST}: not what a run continues from; rerun=true starts over" in refused(run, config)
    assert last.exists()


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MemoryError(), RunError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), RunError),
        (pickle.UnpicklingError("Unsupported global: GLOBAL torch.new.\x1b[2J was not an allowed global"), InputError),
        (RuntimeError("Attempted to read a PyTorch file with version 99"), InputError),
    ],
    ids=["memory", "torch's memory", "a newer global", "a newer format"],
)
def test_whole_checkpoints_are_kept_where_they_cannot_be_loaded(
    raised: Exception, error: type[Exception], trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = copy_of(trained, tmp_path, recorded=False)
    shutil.copy(plan(config).folder / LAST, plan(config).folder / BEFORE)
    with monkeypatch.context() as patched, pytest.raises(error) as ended:
        patched.setattr(torch, "load", raising(raised))
        run(config)
    assert str(plan(config).folder / BEST) in str(ended.value)
    assert str(ended.value).isprintable()
    for name in (LAST, BEFORE):
        assert (plan(config).folder / name).read_bytes() == (trained.folder / LAST).read_bytes()
    assert run(config).status == "finished"


def test_a_repetition_continues_after_its_own_interruption_only(
    uninterrupted: Whole, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny, "preprocess.shift=0.1", *SCHEDULES["constant"])
    again = dataclasses.replace(config, rerun=True)
    interrupt_after(2, config, monkeypatch)
    interrupt_after(1, again, monkeypatch)
    assert len(checkpoints.load(plan(config).folder / LAST)["history"]) == 1
    monkeypatch.setattr(provenance, "_commit", lambda: ("of another code", True))
    interrupt_after(2, again, monkeypatch)
    record = run(again)
    assert record.provenance["resumed_after_epochs"] == [2]
    assert record.provenance["commits"] == ["of another code"] * 2
    assert numbers(record) == numbers(uninterrupted("constant"))


def test_a_flipped_bit_in_the_weights_is_found_and_packed_members_are_not_unpacked(
    trained: Trained, tmp_path: Path
) -> None:
    weight = checkpoints.load(trained.folder / LAST)["state_dict"]["network.primary.convolution.weight"]
    content = bytearray((trained.folder / LAST).read_bytes())
    content[content.index(bytes(weight.untyped_storage().tolist())) + 100] ^= 1
    (tmp_path / LAST).write_bytes(content)
    torch.load(tmp_path / LAST, weights_only=True)  # sees nothing
    assert "not a checkpoint, or damaged" in refused(checkpoints.load, tmp_path / LAST)
    with ZipFile(trained.folder / LAST) as whole, ZipFile(tmp_path / LAST, "w", ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    assert "not a checkpoint, or damaged" in refused(checkpoints.load, tmp_path / LAST)


def test_a_kill_after_the_record_leaves_nothing_to_tidy(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed_config(*tiny, "budget.epochs=2", "logger=tensorboard")
    monkeypatch.setattr(TensorBoard, "finish", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(config)
    assert records.read(plan(config).path).status == "finished"
    assert "optimizer_states" not in checkpoints.load(plan(config).folder / LAST)
    assert not (plan(config).folder / BEFORE).exists()


def test_an_interruption_of_the_final_test_is_one_of_the_run(
    trained_heldout: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = copy_of(trained_heldout, tmp_path, recorded=False)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(CapsuleModule, "test_step", raising(KeyboardInterrupt()))
        run(config)
    assert run(config).heldout_accuracy == trained_heldout.record.heldout_accuracy


def test_what_killed_writers_left_is_removed(trained: Trained, tmp_path: Path) -> None:
    planned = plan(copy_of(trained, tmp_path, recorded=False))
    left = [planned.path.parent / f".{planned.name}.json.abc.part", planned.folder / ".last.ckpt.abc.part"]
    other = planned.path.parent / ".another-run.json.abc.part"
    for path in (*left, other):
        path.write_text("half")
    run(planned.config)
    assert [path.exists() for path in (*left, other)] == [False, False, True]
