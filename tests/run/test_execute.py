"""A run from configuration to record: what it writes, what is skipped, resumed, refused."""

import dataclasses
import errno
import fcntl
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from support import Trained, composed_config, copy_of, folders, numbers, train
from torch._subclasses import FakeTensorMode

from capsexp.config.schema import Config
from capsexp.data import module as data_module
from capsexp.data.loader import Batch
from capsexp.data.module import constant_guess
from capsexp.data.source import load
from capsexp.errors import InputError, RunError
from capsexp.evaluate.evaluation import evaluate_split
from capsexp.run import checkpoints, environment, execute, records
from capsexp.run.checkpoints import EpochCheckpoint, PendingCheckpointIO
from capsexp.run.execute import is_locked, locked, run
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import StepOutput
from capsexp.run.plan import BEFORE, BEST, LAST, plan
from capsexp.run.restore import restore
from capsexp.run.tensorboard import TensorBoard, folder_of


def stop_after(epochs: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes trainings raise the error in the middle of the epoch after so many."""

    def stopping(self: CapsuleModule, batch: Any, index: int) -> torch.Tensor:
        if self.current_epoch == epochs and index == 1:
            raise error
        return training_step(self, batch, index)

    training_step = CapsuleModule.training_step
    monkeypatch.setattr(CapsuleModule, "training_step", stopping)


def interrupt_after(epochs: int, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains until Ctrl-C in the middle of the epoch after so many."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        stop_after(epochs, KeyboardInterrupt(), patched)
        run(config)


def test_the_record_has_what_was_run_and_its_results(trained: Trained) -> None:
    finished = trained.record
    path = plan(trained.config).path
    assert path.name == f"capsnet-mnist_sample-{finished.key}.json"
    assert list(path.parent.iterdir()) == [path]
    assert records.read(path) == finished
    accuracies = [row["test_accuracy"] for row in finished.epochs]
    assert finished.status == "finished"
    assert [row["epoch"] for row in finished.epochs] == [1, 2, 3]
    assert finished.max_accuracy == max(accuracies)
    assert finished.first_epoch_to_max == accuracies.index(max(accuracies)) + 1
    assert finished.last_accuracy == accuracies[-1]
    assert finished.heldout_accuracy is None
    assert all(accuracy * 200 / 100 == pytest.approx(round(accuracy * 2)) for accuracy in accuracies)
    assert finished.epochs[2]["train_loss"] < finished.epochs[0]["train_loss"]
    assert finished.data["note"] == "sample of 5,000 training and 1,000 test images"
    assert finished.data["test_images"] == 200
    assert finished.provenance["command"] == "the command trainer.precision=float32"  # the same key on every machine
    assert finished.provenance["libraries"]["torch"] == torch.__version__
    assert finished.provenance["started"] <= finished.provenance["ended"]
    assert finished.provenance["routing_path"] == "stored votes"  # of batches too small for compiled loops
    assert finished.peak_memory_mb["host"] > 100
    assert finished.peak_memory_mb["device"] is None
    assert sum(file.stat().st_size for file in folder_of(plan(trained.config)).glob("events*")) < 200_000


@pytest.mark.parametrize(
    ("protocol", "accuracies"),
    [("paper", {"max_accuracy": BEST, "last_accuracy": LAST}), ("heldout", {"heldout_accuracy": BEST})],
)
def test_the_record_has_which_test_images_are_correct(
    protocol: str, accuracies: dict[str, str], request: pytest.FixtureRequest
) -> None:
    trained: Trained = request.getfixturevalue("trained" if protocol == "paper" else "trained_heldout")
    assert trained.record.correct is not None
    assert trained.record.correct.keys() == accuracies.keys()
    for accuracy, checkpoint in accuracies.items():
        restored = restore(trained.folder / checkpoint)
        _, _, scores, labels = evaluate_split(
            restored, data_module.test_split(load(trained.config.data), trained.config)
        )
        found = records.unpacked(trained.record.correct[accuracy], 200)
        assert found.tolist() == (scores.argmax(dim=1) == labels).tolist()
        assert 0 < found.sum() < 200


def test_no_path_of_this_machine_is_in_a_record(trained: Trained) -> None:
    content = json.dumps(dataclasses.asdict(trained.record))
    assert trained.config.paths.logs not in content
    assert str(Path.home()) not in content


def test_the_parameters_are_those_of_the_network_that_trained(trained: Trained) -> None:
    state = checkpoints.load(trained.folder / LAST)["state_dict"]
    buffers = ("mean", "std", "running_mean", "running_var", "num_batches_tracked")
    counted = sum(tensor.numel() for name, tensor in state.items() if name.split(".")[-1] not in buffers)
    assert trained.record.parameters == counted


def test_a_finished_run_is_not_trained_again(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(0, AssertionError(), monkeypatch)
    lines: list[str] = []
    assert run(trained.config, None, lines.append) == trained.record
    assert len(lines) == 1
    assert "finished already" in lines[0]


@pytest.mark.parametrize("place", ["results", "logs"])
def test_a_folder_that_cannot_be_written_is_noticed_before_the_training(
    place: str, tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny)
    (tmp_path / place).write_text("a file")
    stop_after(0, AssertionError(), monkeypatch)
    with pytest.raises(InputError, match=rf"^paths\.{place}={tmp_path}/{place}: must be a folder, and .* is a file$"):
        composed_config(*tiny)
    with pytest.raises((FileExistsError, NotADirectoryError)) as raised:  # it came in between
        run(config)
    assert raised.value.filename.startswith(f"{tmp_path}/{place}")


def test_a_file_system_without_locks_is_one_line(
    tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    expected = rf"^paths\.logs={tmp_path}/logs: has no file locks \(No locks available\)"
    with pytest.raises(InputError, match=expected):
        run(composed_config(*tiny))
    with pytest.raises(InputError, match=expected):
        is_locked(plan(composed_config(*tiny)).folder)


def test_a_run_that_another_process_has_just_finished_is_not_trained(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def finished_meanwhile(folder: Path) -> Iterator[None]:
        records.write(trained.record, plan(config).path)
        yield

    config = copy_of(trained, tmp_path, recorded=False)
    monkeypatch.setattr(execute, "locked", finished_meanwhile)
    (plan(config).folder / LAST).unlink()
    stop_after(0, AssertionError(), monkeypatch)
    assert run(config) == trained.record


def test_rerun_trains_again_to_the_same_numbers(trained: Trained, tmp_path: Path) -> None:
    config = copy_of(trained, tmp_path)
    again = run(dataclasses.replace(config, rerun=True))
    assert again.provenance != trained.record.provenance
    assert again.key == trained.record.key
    assert numbers(again) == numbers(trained.record)
    assert len(list(folder_of(plan(config)).glob("events*"))) == 1


SCHEDULES = {
    "steps": ("optim.schedule=steps", "optim.milestones=[168]", "optim.factor=0.5"),  # of 250 epochs: 2 of these 3
    "plateau": ("optim.schedule=plateau", "optim.patience=0", "optim.factor=0.5", "optim.lr=0.2"),
    "constant": ("optim.schedule=constant", "trainer.precision=bf16"),
}
RATES = {"steps": [0.001, 0.001, 0.0005], "plateau": [0.2, 0.2, 0.1], "constant": [0.001] * 3}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], records.Record]:
    """The record of a run with a schedule, trained once."""
    words = ("preprocess.shift=0.1", "logger=[]")
    return cache(lambda name: train(tmp_path_factory.mktemp(name), *words, *SCHEDULES[name]).record)


@pytest.mark.parametrize(
    ("schedule", "interruptions"), [("steps", [0]), ("steps", [1, 2]), ("plateau", [1]), ("constant", [1])]
)
def test_an_interrupted_run_ends_in_the_same_numbers(
    schedule: str,
    interruptions: list[int],
    uninterrupted: Callable[[str], records.Record],
    tiny: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = composed_config(*tiny, *SCHEDULES[schedule], "preprocess.shift=0.1")
    for epochs in interruptions:
        with monkeypatch.context() as patched:
            patched.setattr(environment, "_commit", lambda at=epochs: (f"before {at}", True))
            interrupt_after(epochs, config, patched)
    assert not list(tmp_path.glob("results/runs/*"))
    lines: list[str] = []
    continued, whole = run(config, None, lines.append), uninterrupted(schedule)
    assert (numbers(continued), continued.correct) == (numbers(whole), whole.correct)
    assert continued.key == whole.key
    assert [row["learning_rate"] for row in continued.epochs] == RATES[schedule]
    completed = [epochs for epochs in interruptions if epochs]
    assert continued.provenance["resumed_after_epochs"] == completed
    last = continued.provenance["commit"]
    assert continued.provenance["commits"] == [*(f"before {epochs}" for epochs in completed), last]
    assert any(f"continues after epoch {interruptions[-1]}" in line for line in lines) is bool(completed)


def test_an_interrupted_run_continues_where_its_folder_was_moved(
    uninterrupted: Callable[[str], records.Record],
    tiny: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [*tiny, "preprocess.shift=0.1", *SCHEDULES["steps"]]
    interrupt_after(1, composed_config(*words), monkeypatch)
    shutil.move(tmp_path / "logs", tmp_path / "there" / "logs")
    moved = composed_config(*words, *folders(tmp_path / "there"))
    continued = run(moved)
    assert continued.provenance["resumed_after_epochs"] == [1]
    assert numbers(continued) == numbers(uninterrupted("steps"))


def test_a_checkpoint_from_a_gpu_is_resumed(
    uninterrupted: Callable[[str], records.Record],
    tiny: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = composed_config(*tiny, *SCHEDULES["steps"], "preprocess.shift=0.1")
    interrupt_after(1, config, monkeypatch)
    path = plan(config).folder / LAST
    checkpoint = checkpoints.load(path)
    checkpoint["optimizer_states"][0]["param_groups"][0]["capturable"] = True
    torch.save(checkpoint, path)
    assert numbers(run(config)) == numbers(uninterrupted("steps"))


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


def test_an_interruption_between_two_writings_loses_no_whole_epoch(
    tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 1e9)
    config = composed_config(*tiny)
    interrupt_after(2, config, monkeypatch)
    assert len(checkpoints.load(plan(config).folder / LAST)["history"]) == 2


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
    record = run(copy_of(trained, tmp_path, recorded=False))
    assert (numbers(record), record.correct) == (numbers(trained.record), trained.record.correct)
    assert (record.learned, record.chance_accuracy) == (trained.record.learned, trained.record.chance_accuracy)
    assert record.heldout_accuracy == trained.record.heldout_accuracy


def test_a_run_that_fails_is_recorded_and_resumed(
    tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny)
    with monkeypatch.context() as patched, pytest.raises(RunError, match="failed: out of something"):
        stop_after(1, RuntimeError("out of something"), patched)
        run(config)
    failed = records.read(plan(config).path)
    assert (failed.status, failed.error, len(failed.epochs)) == ("failed", "out of something", 1)
    assert run(config).status == "finished"


class OutOfResources(Exception):
    """As Triton's, which is no RuntimeError."""

    __module__ = "triton.runtime.errors"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CalledProcessError(1, ["cc"]), r"Command '\['cc'\]' returned non-zero exit status 1"),
        (OutOfResources("out of resource: shared memory"), "out of resource: shared memory"),
        (MemoryError(), "MemoryError"),
    ],
    ids=["compiler", "Triton", "memory"],
)
def test_an_error_of_a_compiler_or_a_device_fails_the_run(
    error: Exception, said: str, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny)
    stop_after(0, error, monkeypatch)
    with pytest.raises(RunError, match=f"failed: {said}"):
        run(config)
    assert records.read(plan(config).path).status == "failed"


#: Of torch's allocator, and of oneDNN.
SHORTAGES = ("can't allocate memory: you tried to allocate 8 bytes", "could not create a primitive")


@pytest.mark.parametrize(
    ("words", "most", "said"),
    [
        ((), 40, "; optim.batch_size=40 fits"),
        (("trainer.precision=bf16", "data=mnist_sample"), 0, ""),
        (("optim.batch_size=16", "protocol=heldout"), 16, "; trainer.eval_batch_size=16 fits"),
    ],
    ids=["training", "neither", "evaluation"],
)
def test_where_memory_is_short_the_largest_batch_that_fits_is_named(
    words: tuple[str, ...], most: int, said: str, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(self: CapsuleModule, batch: Batch) -> StepOutput:
        if len(batch.labels) > most:
            failed.append(len(batch.labels))
            raise RuntimeError(SHORTAGES[len(failed) > 1])
        return loss_and_scores(self, batch)

    failed: list[int] = []
    loss_and_scores = CapsuleModule.loss_and_scores
    config = composed_config(*tiny, *words)
    monkeypatch.setattr(CapsuleModule, "loss_and_scores", limited)
    with pytest.raises(RunError, match=f"you tried to allocate 8 bytes{said}$"):
        run(config)
    assert records.read(plan(config).path).error.endswith(said)


def test_a_shortage_of_memory_is_no_kill(tmp_path: Path) -> None:
    """Linux promises memory beyond what is free, and kills who uses it: the trials of batches must not."""
    with environment.within_free_memory(), pytest.raises(RuntimeError) as raised:
        [torch.UntypedStorage(2**30) for _ in range(10**4)]  # which writes nothing to it, unlike deterministic tensors
    assert environment.is_out_of_memory(raised.value)


def test_a_bug_is_no_failed_run(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed_config(*tiny)
    stop_after(0, KeyError("a bug"), monkeypatch)
    with pytest.raises(KeyError, match="a bug"):
        run(config)
    assert not plan(config).path.exists()


def test_a_rerun_that_fails_leaves_the_finished_record(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = copy_of(trained, tmp_path)
    stop_after(1, RuntimeError("out of something"), monkeypatch)
    with pytest.raises(RunError, match="out of something"):
        run(dataclasses.replace(config, rerun=True))
    assert records.read(plan(config).path) == trained.record


def test_a_rerun_replaces_a_damaged_record_even_if_it_fails(
    tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny, "rerun=true")
    plan(config).path.parent.mkdir(parents=True)
    plan(config).path.write_text("half a rec")
    stop_after(0, RuntimeError("out of something"), monkeypatch)
    with pytest.raises(RunError, match="out of something"):
        run(config)
    assert records.read(plan(config).path).status == "failed"


def test_a_training_that_diverges_fails(tiny: tuple[str, ...]) -> None:
    config = composed_config(*tiny, "optim.name=sgd", "optim.lr=1e30", "loss=cross_entropy")
    with pytest.raises(RunError, match="the training diverged"):
        run(config)
    failed = records.read(plan(config).path)
    assert failed.status == "failed"
    assert any(value is None for row in failed.epochs for value in row.values())


def test_a_training_that_does_not_learn_is_finished_and_says_so(tiny: tuple[str, ...]) -> None:
    lines: list[str] = []
    record = run(composed_config(*tiny, "optim.lr=1e6"), None, lines.append)
    assert (record.status, record.learned) == ("finished", False)
    counts = torch.bincount(load(composed_config(*tiny).data).test_labels[:200])
    assert record.chance_accuracy == counts.max() / 2
    assert lines[1].endswith(f" %; didn't learn: a constant guess has {record.chance_accuracy:.2f} %")


def test_a_training_that_learns_says_nothing(tiny: tuple[str, ...]) -> None:
    lines: list[str] = []
    words = ("optim.lr=0.01", "optim.batch_size=16", "protocol=heldout", "budget.epochs=1", "budget.train_images=500")
    record = run(composed_config(*tiny, *words), None, lines.append)
    assert record.learned
    assert "didn't learn" not in "".join(lines)


def test_a_trial_is_not_judged(tiny: tuple[str, ...]) -> None:
    assert run(composed_config(*tiny, "budget.epochs=1", "budget.steps=1")).learned is None


@pytest.mark.parametrize(("labels", "chance"), [([3, 1, 3, 2], 50.0), ([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1]], 60.0)])
def test_a_constant_guess_is_the_most_frequent_label(labels: list[Any], chance: float) -> None:
    assert constant_guess(torch.tensor(labels)) == chance


def test_heldout_chooses_the_epoch_without_the_test_set(trained_heldout: Trained) -> None:
    record = trained_heldout.record
    chosen = [row["heldout_accuracy"] for row in record.epochs]
    assert record.first_epoch_to_max == chosen.index(max(chosen)) + 1
    assert (record.max_accuracy, record.last_accuracy) == (None, None)
    assert record.heldout_accuracy is not None
    assert math.isclose(record.heldout_accuracy * 2, round(record.heldout_accuracy * 2))  # of 200 test images
    assert not any("test_accuracy" in row for row in record.epochs)
    held_out = 26  # a tenth of 256
    assert all(abs(accuracy * held_out / 100 - round(accuracy * held_out / 100)) < 1e-4 for accuracy in chosen)
    assert records.read(plan(trained_heldout.config).path) == record


def test_bf16_trains_too_and_is_another_run(tiny: tuple[str, ...]) -> None:
    config = composed_config(*tiny, "trainer.precision=bf16")
    record = run(config)
    assert record.identity["precision"] == "bf16"
    assert record.epochs[2]["train_loss"] < record.epochs[0]["train_loss"]


def test_the_spread_losss_margin_grows_over_the_run(
    tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny, "loss=spread", "budget.steps=2", "budget.epochs=4")
    interrupt_after(1, config, monkeypatch)
    continued = run(config)
    state = checkpoints.load(plan(config).folder / LAST)["state_dict"]
    assert continued.provenance["resumed_after_epochs"] == [1]
    assert (state["loss.steps_done"], state["loss.steps_in_all"]) == (8, 8)


def test_a_run_in_a_precision_that_is_refused_today_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("model=em_capsnet", "routing.iterations=3", "trainer.precision=bf16", "budget.epochs=1")
    with monkeypatch.context() as patched:
        patched.setattr(execute, "check_precision", lambda config: None)
        trained = train(tmp_path, *words)
    assert run(trained.config) == trained.record
    assert restore(trained.folder).precision == "bf16"
    with pytest.raises(InputError, match=r"set trainer\.precision=float32 or"):
        run(dataclasses.replace(trained.config, seed=1))


def test_a_run_computes_float32_without_tf32(tiny: tuple[str, ...]) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    execute.run(composed_config(*tiny, "budget.epochs=1"))
    assert not torch.backends.cudnn.allow_tf32  # torch's default is true
    assert not torch.backends.cuda.matmul.allow_tf32


def test_a_running_run_is_refused_and_a_dead_processs_lock_is_not(trained: Trained, tmp_path: Path) -> None:
    config = copy_of(trained, tmp_path, recorded=False)
    folder = plan(config).folder
    with locked(folder), pytest.raises(RunError, match=f"already running, in process {os.getpid()}"):
        run(config)
    (folder / "lock").write_text("1")  # as a killed process leaves it
    assert not is_locked(folder)
    assert run(config).status == "finished"


def test_a_run_of_a_sweep_waits_for_another_process(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(execute.time, "sleep", lambda seconds: other.close())
    with ExitStack() as other:
        other.enter_context(locked(trained.folder))
        execute.wait_until_free(trained.config, lines.append)
        assert not is_locked(trained.folder)
    assert lines == [f"{trained.folder.name}: another process trains it; waits"]


def test_a_run_of_slurm_takes_the_cores_of_its_job(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert run(composed_config(*tiny, "budget=smoke")).provenance["threads"] == 3
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("damaged", "said"),
    [([LAST], "continues after epoch 1"), ([LAST, BEFORE], "no checkpoint is left; starts over")],
    ids=["last", "both"],
)
@pytest.mark.parametrize("rerun", [False, True])
def test_an_interrupted_run_with_a_damaged_checkpoint_goes_on(
    damaged: list[str],
    said: str,
    rerun: bool,
    uninterrupted: Callable[[str], records.Record],
    tiny: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = composed_config(*tiny, "preprocess.shift=0.1", *SCHEDULES["constant"], f"rerun={rerun}".lower())
    interrupt_after(2, config, monkeypatch)
    for name in damaged:
        path = plan(config).folder / name
        path.write_bytes(path.read_bytes()[:-1000])
    lines: list[str] = []
    assert numbers(run(config, None, lines.append)) == numbers(uninterrupted("constant"))
    renamed = f"{plan(config).folder / LAST}: not a checkpoint, or damaged; renamed to last.ckpt.damaged"
    assert renamed in lines[1]
    assert all(plan(config).folder.joinpath(f"{name}.damaged").exists() for name in damaged)
    assert lines[1 + len(damaged)].endswith(said)


def test_a_run_without_the_checkpoint_that_it_tests_at_the_end_starts_over(
    trained_heldout: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = copy_of(trained_heldout, tmp_path, recorded=False)
    last, best = plan(config).folder / LAST, plan(config).folder / BEST
    best.write_bytes(b"text")
    lines: list[str] = []
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        stop_after(0, KeyboardInterrupt(), patched)
        run(config, None, lines.append)
    assert [line.partition(": ")[2] for line in lines[1:]] == [
        f"{best}: not a checkpoint, or damaged; renamed to best.ckpt.damaged",
        "no checkpoint is left; starts over",
    ]
    assert checkpoints.load(last)["history"] == checkpoints.load(trained_heldout.folder / LAST)["history"]
    assert run(config).heldout_accuracy == trained_heldout.record.heldout_accuracy


def test_the_best_weights_of_another_epoch_are_not_tested(trained_heldout: Trained, tmp_path: Path) -> None:
    config = copy_of(trained_heldout, tmp_path, recorded=False)
    best = checkpoints.load(plan(config).folder / BEST)
    other = 1 if len(best["history"]) > 1 else 2
    history = checkpoints.load(plan(config).folder / LAST)["history"]
    torch.save(best | {"history": history[:other]}, plan(config).folder / BEST)
    lines: list[str] = []
    assert run(config, None, lines.append).heldout_accuracy == trained_heldout.record.heldout_accuracy
    assert any("starts over" in line for line in lines)


def test_a_checkpoint_of_another_run_is_left_alone(trained: Trained, tiny: tuple[str, ...]) -> None:
    config = composed_config(*tiny)
    shutil.copytree(trained.folder, plan(config).folder)
    with pytest.raises(InputError, match=f"{LAST}: not of this run; rerun=true starts over"):
        run(config)
    assert (plan(config).folder / LAST).read_bytes() == (trained.folder / LAST).read_bytes()
    assert run(dataclasses.replace(config, rerun=True)).status == "finished"


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
    def failing(*arguments: Any, **options: Any) -> None:
        raise raised

    config = copy_of(trained, tmp_path, recorded=False)
    shutil.copy(plan(config).folder / LAST, plan(config).folder / BEFORE)
    with monkeypatch.context() as patched, pytest.raises(error) as ended:
        patched.setattr(torch, "load", failing)
        run(config)
    assert str(plan(config).folder / LAST) in str(ended.value)
    assert str(ended.value).isprintable()
    for name in (LAST, BEFORE):
        assert (plan(config).folder / name).read_bytes() == (trained.folder / LAST).read_bytes()
    assert run(config).status == "finished"


def test_a_repetition_continues_after_its_own_interruption_only(
    uninterrupted: Callable[[str], records.Record], tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny, "preprocess.shift=0.1", *SCHEDULES["constant"])
    again = dataclasses.replace(config, rerun=True)
    interrupt_after(2, config, monkeypatch)
    interrupt_after(1, again, monkeypatch)
    assert len(checkpoints.load(plan(config).folder / LAST)["history"]) == 1
    with monkeypatch.context() as patched:
        patched.setattr(environment, "_commit", lambda: ("of another code", True))
        interrupt_after(2, again, patched)
    with monkeypatch.context() as patched:
        patched.setattr(environment, "_commit", lambda: ("of another code", True))
        record = run(again)
    assert record.provenance["resumed_after_epochs"] == [2]
    assert record.provenance["commits"] == ["of another code"] * 2
    assert numbers(record) == numbers(uninterrupted("constant"))


def test_a_flipped_bit_in_the_weights_is_found(trained: Trained, tmp_path: Path) -> None:
    weight = checkpoints.load(trained.folder / LAST)["state_dict"]["network.primary.convolution.weight"]
    content = bytearray((trained.folder / LAST).read_bytes())
    content[content.index(bytes(weight.untyped_storage().tolist())) + 100] ^= 1
    (tmp_path / LAST).write_bytes(content)
    torch.load(tmp_path / LAST, weights_only=True)  # sees nothing
    with pytest.raises(InputError, match="not a checkpoint, or damaged"):
        checkpoints.load(tmp_path / LAST)


def test_a_packed_checkpoint_is_not_unpacked(trained: Trained, tmp_path: Path) -> None:
    with ZipFile(trained.folder / LAST) as whole, ZipFile(tmp_path / LAST, "w", ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(InputError, match="not a checkpoint, or damaged"):
        checkpoints.load(tmp_path / LAST)


def test_a_kill_after_the_record_leaves_nothing_to_tidy(
    trained: Trained, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    config = composed_config(*tiny, "budget.epochs=2", "logger=tensorboard")
    monkeypatch.setattr(TensorBoard, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    assert records.read(plan(config).path).status == "finished"
    assert "optimizer_states" not in checkpoints.load(plan(config).folder / LAST)
    assert not (plan(config).folder / BEFORE).exists()


def test_checkpoints_hold_no_code(trained: Trained) -> None:
    for name in (LAST, BEST):
        loaded = torch.load(trained.folder / name, weights_only=True)
        assert len(loaded["history"]) >= trained.record.first_epoch_to_max
        assert "optimizer_states" not in loaded


def test_an_interruption_of_the_final_test_is_one_of_the_run(
    trained_heldout: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(self: CapsuleModule, batch: Any, index: int) -> None:
        raise KeyboardInterrupt

    config = copy_of(trained_heldout, tmp_path, recorded=False)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(CapsuleModule, "test_step", stopping)
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
