"""A run from configuration to record: what it writes, what is skipped, refused, recorded as failed."""

import dataclasses
import errno
import fcntl
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from types import FunctionType
from typing import Any, TextIO
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning.utilities import rank_zero_only
from support import Trained, composed_config, copy_of, interrupt_after, numbers, process, raising, refused, stop_after
from support import train as trained_at

from capsexp.data import module as data_module
from capsexp.data.module import constant_guess
from capsexp.data.source import load
from capsexp.errors import InputError, RunError
from capsexp.evaluate.evaluation import evaluate_split
from capsexp.nn import Prediction
from capsexp.run import checkpoints, execute, memory, provenance, records
from capsexp.run import train as trainings
from capsexp.run.execute import is_locked, locked, run
from capsexp.run.module import CapsuleModule, Metrics
from capsexp.run.plan import BEST, LAST, plan
from capsexp.run.restore import restore
from capsexp.run.tensorboard import folder_of
from capsexp.run.train import OwnSignals


def test_the_record_has_what_was_run_and_its_results(trained: Trained) -> None:
    finished, path = trained.record, plan(trained.config).path
    assert path.name == f"capsnet-mnist_sample-{finished.key}.json"
    assert list(path.parent.iterdir()) == [path]
    assert records.read(path) == finished
    accuracies = [row["test_accuracy"] for row in finished.epochs]
    assert (finished.status, finished.heldout_accuracy) == ("finished", None)
    assert [row["epoch"] for row in finished.epochs] == [1, 2, 3]
    assert finished.max_accuracy == max(accuracies) == accuracies[finished.first_epoch_to_max - 1]
    assert finished.last_accuracy == accuracies[-1]
    assert {*accuracies} <= {records.percent(right, 200) for right in range(201)}
    assert finished.epochs[2]["train_loss"] < finished.epochs[0]["train_loss"]
    assert finished.data["note"] == "sample of 5,000 training and 1,000 test images"
    assert finished.data["test_images"] == 200
    assert finished.provenance["libraries"]["torch"] == torch.__version__
    assert finished.provenance["started"] <= finished.provenance["ended"]
    assert finished.provenance["routing_path"] == "stored votes"  # of batches too small for compiled loops
    assert finished.peak_memory_mb["host"] > 100
    assert finished.peak_memory_mb["device"] is None
    state = checkpoints.load(trained.folder / LAST)["state_dict"]
    buffers = ("mean", "std", "running_mean", "running_var", "num_batches_tracked")
    assert finished.parameters == sum(state[name].numel() for name in state if name.split(".")[-1] not in buffers)
    assert sum(file.stat().st_size for file in folder_of(plan(trained.config)).glob("events*")) < 200_000
    assert trained.config.paths.logs not in path.read_text()  # no path of this machine
    assert str(Path.home()) not in path.read_text()


@pytest.mark.parametrize(
    ("protocol", "accuracies"),
    [("paper", {"max_accuracy": BEST, "last_accuracy": LAST}), ("heldout", {"heldout_accuracy": BEST})],
)
def test_the_record_has_which_test_images_are_correct(
    protocol: str, accuracies: dict[str, str], request: pytest.FixtureRequest
) -> None:
    trained: Trained = request.getfixturevalue("trained" if protocol == "paper" else "trained_heldout")
    assert trained.record.correct.keys() == accuracies.keys()
    for accuracy, checkpoint in accuracies.items():
        restored = restore(trained.folder / checkpoint)
        _, scores, labels = evaluate_split(restored, data_module.test_split(load(trained.config.data), trained.config))
        found = records.unpacked(trained.record.correct[accuracy], 200)
        assert found.tolist() == (scores.argmax(dim=1) == labels).tolist()
        assert 0 < found.sum() < 200


@pytest.mark.parametrize("place", ["results", "logs"])
def test_a_folder_that_cannot_be_written_is_noticed_before_the_training(
    place: str, tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny)
    stop_after(0, AssertionError(), monkeypatch)
    with monkeypatch.context() as patched:
        refusal = raising(PermissionError(errno.EACCES, "Permission denied", place))
        patched.setattr(execute, "locked" if place == "logs" else "check_writable", refusal)
        with pytest.raises(RunError, match=rf"^{place}: Permission denied; paths.logs=DIR paths.results=DIR write els"):
            run(config)
    shutil.rmtree(tmp_path / place, ignore_errors=True)
    (tmp_path / place).write_text("a file")
    line = f"paths.{place}={tmp_path}/{place}: must be a folder, and {tmp_path}/{place} is a file"
    assert refused(composed_config, *tiny) == line
    with pytest.raises((FileExistsError, NotADirectoryError)) as raised:  # it came in between
        run(config)
    assert raised.value.filename.startswith(f"{tmp_path}/{place}")


def test_the_commit_of_a_checkout_that_git_refuses_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = provenance._commit()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert provenance._commit() == found


def test_an_error_of_torch_within_a_step_fails_the_run(tiny: tuple[str, ...]) -> None:
    words = "model=resnet18", "data.size=8", "optim.batch_size=1", "budget.train_images=2"
    with pytest.raises(RunError, match="failed: Expected more than 1 value per channel when training"):
        run(composed_config(*tiny, *words))


def test_a_file_system_without_locks_is_one_line(
    tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    config = composed_config(*tiny)
    expected = f"paths.logs={tmp_path}/logs: has no file locks (No locks available)"
    assert refused(run, config).startswith(expected)
    assert refused(is_locked, plan(config).folder).startswith(expected)


def test_a_run_that_another_process_has_just_finished_is_not_trained(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def finished_meanwhile(folder: Path, wait: bool) -> Iterator[None]:
        records.write(trained.record, plan(config).path)
        yield

    config = copy_of(trained, tmp_path, recorded=False)
    monkeypatch.setattr(execute, "locked", finished_meanwhile)
    (plan(config).folder / LAST).unlink()
    stop_after(0, AssertionError(), monkeypatch)
    assert run(config) == trained.record


def test_rerun_trains_again_to_the_same_numbers(trained: Trained, tmp_path: Path) -> None:
    two = dataclasses.replace(trained.config.trainer, steps_at_once=2)  # GPUs' default is more than one
    config = dataclasses.replace(copy_of(trained, tmp_path), rerun=True, trainer=two)
    for _ in range(2):  # a repetition, and one of that
        again = run(config)
        assert again.provenance["resumed_after_epochs"] == []
    assert again.key == trained.record.key
    assert numbers(again) == numbers(trained.record)
    assert len(list(folder_of(plan(config)).glob("events*"))) == 1


def test_a_run_that_fails_is_recorded_keeps_no_step_and_no_gradients_and_is_resumed(
    tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, step and gradients hold the memory of a CUDA graph."""
    planned = plan(composed_config(*tiny))
    module, data = trainings.prepare(planned)
    with (
        monkeypatch.context() as patched,
        pytest.raises(RunError, match=r"failed: out of something \(.*support.py, line \d+\)$"),
    ):
        stop_after(1, RuntimeError("out of something"), patched)
        trainings.train(module, data)
    failed = records.read(planned.path)
    assert (failed.status, failed.error, len(failed.epochs)) == ("failed", "out of something", 1)
    assert module.step is None
    assert all(parameter.grad is None for parameter in module.parameters())
    assert run(planned.config).provenance["resumed_after_epochs"] == [1]


class OutOfResources(Exception):
    """As Triton's, which is no RuntimeError."""

    __module__ = "triton.runtime.errors"


CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has a total capacity of 8 GiB")


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        ("training_step", CalledProcessError(1, ["cc"]), r"Command '\['cc'\]' returned non-zero exit status 1"),
        ("training_step", OutOfResources("out of resource: shared memory"), "out of resource: shared memory"),
        ("training_step", MemoryError(), r"out of memory \(MemoryError\); a smaller optim\.batch_size"),
        ("training_step", CUDA, r"out of memory \(CUDA out of memory\. Tried to allocate 9 GiB\); a smaller optim\."),
        ("validation_step", MemoryError(), r"out of memory.* a smaller trainer\.eval_batch_size needs less"),
        ("place", MemoryError(), r"out of memory.* a smaller budget\.train_images or data\.size needs less"),
    ],
)
def test_an_error_of_a_compiler_or_a_device_fails_the_run(
    place: str, error: Exception, said: str, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed_config(*tiny)
    monkeypatch.setattr(data_module.CapsuleData if place == "place" else CapsuleModule, place, raising(error))
    with pytest.raises(RunError, match=f"failed: {said}"):
        run(config)
    assert records.read(plan(config).path).status == "failed"


def test_files_that_change_after_the_plan_are_not_trained_on(tiny: tuple[str, ...]) -> None:
    planned = dataclasses.replace(plan(composed_config(*tiny)), unlisted="0")
    with pytest.raises(InputError, match=r"^data=mnist_sample: other files than when the run was planned; run the "):
        trainings.prepare(planned)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system keeps a process's peak")
def test_a_run_does_not_have_the_peak_of_one_before_it_in_its_process() -> None:
    words = (
        "import torch; from capsexp.run import memory; cpu = torch.device('cpu'); "
        "memory.keep_freed_memory(); torch.ones(10**8); before = memory.host_peak(); "
        "memory.reset_peak_memory(cpu); print(before - memory.host_peak() > 3e8)"
    )
    assert process("-c", words).stdout == "True\n"


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory",
        "HIP error: out of memory",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    ],
)
def test_a_shortage_of_memory_on_a_gpu_is_recognised(text: str) -> None:
    assert memory.is_out_of_memory(RuntimeError(text))
    assert not memory.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_on_the_cpu_more_than_the_free_memory_is_refused_and_not_granted() -> None:
    words = (
        "import torch; from capsexp.run.memory import limit_memory; limit_memory(); "
        "kept = [torch.empty(1 << 30, dtype=torch.uint8) for _ in range(1024)]"  # a terabyte that is never touched
    )
    assert "can't allocate memory" in process("-c", words).stderr


def test_a_bug_is_no_failed_run(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed_config(*tiny)
    stop_after(0, KeyError("a bug"), monkeypatch)
    with pytest.raises(KeyError, match="a bug"):
        run(config)
    assert not plan(config).path.exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_rerun_that_fails_leaves_a_finished_record_and_replaces_a_damaged_one(
    damaged: bool, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = copy_of(trained, tmp_path)
    if damaged:
        plan(config).path.write_text("half a rec")
    stop_after(1, RuntimeError("out of something"), monkeypatch)
    with pytest.raises(RunError, match="out of something"):
        run(dataclasses.replace(config, rerun=True))
    found = records.read(plan(config).path)
    assert (found == trained.record, found.status) == (not damaged, "failed" if damaged else "finished")


def test_a_training_that_diverges_fails(tiny: tuple[str, ...]) -> None:
    config = composed_config(*tiny, "optim.name=sgd", "optim.lr=1e30", "loss=cross_entropy")
    with pytest.raises(RunError, match="the training diverged"):
        run(config)
    failed = records.read(plan(config).path)
    assert failed.status == "failed"
    assert any(value is None for row in failed.epochs for value in row.values())


def test_a_training_that_does_not_learn_is_finished_and_says_so(
    tiny: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(composed_config(*tiny, "optim.lr=1e6"))
    assert (record.status, record.learned) == ("finished", False)
    counts = torch.bincount(load(composed_config(*tiny).data).test_labels[:200])
    assert record.chance_accuracy == counts.max() / 2
    assert f"; didn't learn: a constant guess has {record.chance_accuracy:.2f} %\n" in capsys.readouterr().out
    words = ("optim.lr=0.01", "optim.batch_size=16", "protocol=heldout", "budget.epochs=1", "budget.train_images=500")
    assert run(composed_config(*tiny, *words)).learned
    assert "didn't learn" not in capsys.readouterr().out


@pytest.mark.parametrize(("labels", "chance"), [([3, 1, 3, 2], 50.0), ([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1]], 60.0)])
def test_a_constant_guess_is_the_most_frequent_label(labels: list[Any], chance: float) -> None:
    assert constant_guess(torch.tensor(labels)) == chance


def test_heldout_chooses_the_epoch_without_the_test_set(trained_heldout: Trained) -> None:
    record = trained_heldout.record
    chosen = [row["heldout_accuracy"] for row in record.epochs]
    assert record.first_epoch_to_max == chosen.index(max(chosen)) + 1
    assert (record.max_accuracy, record.last_accuracy) == (None, None)
    assert record.heldout_accuracy in [records.percent(right, 200) for right in range(201)]
    assert {*chosen} <= {records.percent(right, 26) for right in range(27)}  # of a tenth of 256
    assert not any("test_accuracy" in row for row in record.epochs)
    assert records.read(plan(trained_heldout.config).path) == record
    line = records.result_line(dataclasses.replace(record, chance_accuracy=99.0))
    assert line.endswith(f"; didn't learn: {max(chosen):.2f} % of the held-out images, a constant guess has 99.00 %")


@pytest.mark.parametrize(("protocol", "part"), [("paper", "test"), ("heldout", "heldout")])
def test_the_best_epoch_is_kept_and_under_heldout_tested(
    protocol: str, part: str, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted, results = iter([10.0, 30.0, 20.0]), Metrics.results

    def patched(self: Metrics, split: str) -> Any:
        found = results(self, split)
        return found | {f"{part}_accuracy": next(scripted, found[f"{part}_accuracy"])} if split == part else found

    monkeypatch.setattr(Metrics, "results", patched)
    monkeypatch.setattr(records, "_contradiction", lambda record: None)  # of these numbers and the images' bits
    config = composed_config(*tiny, f"protocol={protocol}", "optim.lr=0.01")
    record, folder = run(config), plan(config).folder
    assert len(checkpoints.load(folder / BEST)["history"]) == record.first_epoch_to_max == 2
    split = data_module.test_split(load(config.data), config)
    best, last = (evaluate_split(restore(folder / name), split)[0]["test_accuracy"] for name in (BEST, LAST))
    assert best != last
    if protocol == "heldout":
        assert record.heldout_accuracy == best


@pytest.mark.parametrize("constant", [True, False])
def test_an_output_that_does_not_depend_on_its_input_is_said_once(
    constant: bool, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flat(self: CapsuleModule, pixels: torch.Tensor) -> Prediction:
        scores, poses = forward(self, pixels)
        return Prediction(scores * 0 + 0.5 if constant else scores, poses)

    forward = CapsuleModule.forward
    monkeypatch.setattr(CapsuleModule, "forward", flat)
    run(composed_config(*tiny, "budget.epochs=2", "budget.train_images=128"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "all images have the same scores" in line]
    assert len(lines) == constant


def test_the_spread_losss_margin_grows_over_the_run(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
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
        trained = trained_at(tmp_path, *words)
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


@pytest.mark.parametrize("kind", ["a link", "a broken link", "a FIFO", "a folder"])
def test_a_lock_that_is_no_file_is_refused_and_untouched(kind: str, tmp_path: Path) -> None:
    target, lock = tmp_path / "precious", tmp_path / "lock"
    target.write_text("content")
    if kind.endswith("link"):
        lock.symlink_to(target if kind == "a link" else tmp_path / "missing")
    else:
        (os.mkfifo if kind == "a FIFO" else os.mkdir)(lock)
    assert refused(locked(tmp_path).__enter__) == refused(is_locked, tmp_path) == f"{lock}: not a file; move it away"
    assert (target.read_text(), (tmp_path / "missing").exists()) == ("content", False)


def test_a_lock_that_is_only_checked_refuses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `is_locked` of another process holds it, for an instant."""
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as checked:
        fcntl.flock(checked, fcntl.LOCK_SH)
        monkeypatch.setattr(execute.time, "sleep", lambda seconds: fcntl.flock(checked, fcntl.LOCK_UN))
        with locked(tmp_path):
            assert is_locked(tmp_path)


def test_a_run_beside_others_waits_for_another_process_and_its_lines_begin_with_its_name(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(stream: TextIO, kind: int) -> None:
        if kind == fcntl.LOCK_EX:  # and waits
            other.close()
        unpatched(stream, kind)

    unpatched = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    config = copy_of(trained, tmp_path, recorded=False)
    name = plan(config).name
    with ExitStack() as other:
        other.enter_context(locked(plan(config).folder))
        assert run(config, ["attention=cbam", "seed=0"], beside=True).status == "finished"
    words, *lines = capsys.readouterr().out.splitlines()
    assert words == f"{name}: attention=cbam seed=0"
    assert f"{name}: already running, in process {os.getpid()} on {platform.node()}; waits" in lines
    assert sum(line.startswith(f"{name}: on cpu in float32") for line in lines) == 1
    assert all(line.startswith(f"{name}: ") for line in lines)


def test_a_run_of_slurm_takes_the_cores_of_its_job_and_no_more_than_there_are(
    tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1000")
    record = run(composed_config(*tiny, "budget=smoke"))
    assert record.provenance["threads"] == 3
    assert record.learned is None  # a trial is not judged
    torch.set_num_threads(before)


def test_a_task_of_slurm_is_no_run_of_lightnings(
    tiny: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts its tasks, logs in the first one alone, and continues from a file of any run in the working folder."""
    for name, value in {"NTASKS": "4", "PROCID": "1", "JOB_NAME": "x", "JOB_ID": "77"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr(rank_zero_only, "rank", 1)  # as at its import
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes(b"of another run")
    record = run(composed_config(*tiny, "budget.epochs=1", "logger=csv"))
    assert (len(record.epochs), record.provenance["resumed_after_epochs"]) == (1, [])
    assert [*(tmp_path / "logs").rglob("metrics.csv")]


@pytest.mark.parametrize(("code", "raised"), [(1, KeyboardInterrupt), (0, SystemExit)])
def test_an_end_that_isnt_lightnings_is_passed_on(
    code: int, raised: type[BaseException], tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(1, SystemExit(code), monkeypatch)
    with pytest.raises(raised):
        run(composed_config(*tiny))


def test_a_job_whose_time_is_up_is_interrupted_and_hasnt_failed(
    tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_time(*_: object) -> None:
        raise RuntimeError("Job not requeued because: timed-out too many times.")

    config, of_submitit = composed_config(*tiny), {**globals(), "__name__": "submitit.core.job_environment"}
    monkeypatch.setattr(CapsuleModule, "training_step", FunctionType(out_of_time.__code__, of_submitit))
    with pytest.raises(KeyboardInterrupt):
        run(config)
    assert not plan(config).path.exists()


def test_processes_in_different_epochs_end(trained: Trained) -> None:
    """As those of torchrun's that don't see the same folder."""
    module, trainer = restore(trained.folder).module, Mock()
    trainer.strategy.broadcast = lambda own: (own[0], own[1] + 1)
    with pytest.raises(SystemExit):
        OwnSignals().on_train_start(trainer, module)
