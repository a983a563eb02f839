"""Running many: each run once and as if alone; skipped, failed, repeated, waited for, stopped."""

import dataclasses
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from launching import assert_same, planned, records_in, reproduce
from support import composed_config, folders

from capsexp.data.svhn import SVHN
from capsexp.errors import RunError
from capsexp.reproduce import launcher, planning, worker
from capsexp.reproduce.worker import Result
from capsexp.run import records
from capsexp.run.execute import is_locked, locked, run
from capsexp.run.plan import LAST


def test_every_run_of_the_study_is_done_once(whole: Path) -> None:
    found = records_in(whole).values()
    assert len(found) == 4
    axes = {(record.config["attention"]["cbam"], record.config["seed"]) for record in found}
    assert axes == {(cbam, seed) for cbam in (False, True) for seed in (0, 1)}
    assert not any("study" in record.provenance["command"] for record in found)


def test_a_run_among_many_is_the_same_run_alone(whole: Path, tmp_path: Path) -> None:
    record = min(records_in(whole).values(), key=lambda record: record.key)
    words = record.provenance["command"].split()[3:]
    threads = torch.get_num_threads()
    run(composed_config(*words, "logger=[]", *folders(tmp_path), f"trainer.threads={record.provenance['threads']}"))
    torch.set_num_threads(threads)
    assert_same(records_in(tmp_path), {record.key: record})


def test_what_is_finished_is_skipped(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (whole / "results" / "runs").iterdir()}
    assert reproduce(whole) == 0
    screen = capsys.readouterr().out
    assert screen.startswith("4 runs: 4 finished, 0 failed before, 0 to do, up to 0 epochs")
    assert "begins" not in screen
    assert {path: path.stat().st_mtime_ns for path in (whole / "results" / "runs").iterdir()} == before


def test_a_dry_run_lists_the_runs_and_writes_nothing(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(whole, "--seeds=3", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("finished") for line in lines) == 4
    assert sum(line.startswith("to do") for line in lines) == 2
    assert lines[0].endswith("(jiao_table2)")
    assert reproduce(tmp_path, "--dry-run") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_without_data_downloads_nothing_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SVHN, "download", lambda self, folder: pytest.fail("a download"))
    assert reproduce(tmp_path, "data=svhn", f"data.root={tmp_path}", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("to do") for line in lines) == 4
    assert list(tmp_path.iterdir()) == []


def test_one_run_fails_and_the_others_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = planned(tmp_path)[2].planned.folder
    (damaged / LAST).mkdir(parents=True)
    assert reproduce(tmp_path) == 1
    screen = capsys.readouterr()
    lines = screen.out.splitlines()
    finished = {line.partition(": finished ")[2] for line in lines if ": finished " in line}
    assert finished == {
        f"attention={'cbam' if record.config['attention']['cbam'] else 'none'} seed={record.config['seed']}: "
        f"{records.result_line(record)}"
        for record in records_in(tmp_path).values()
    }
    assert len(finished) == 3
    assert any(line.startswith("3 of 4 runs finished") for line in lines)
    (error,) = screen.err.splitlines()
    assert error.startswith("error: attention=cbam seed=0: ")
    assert f"{damaged / LAST}: not a file; move it away" in error
    assert error.endswith(f"(its output: {damaged / 'output.txt'})")


def test_a_failed_run_is_left_alone_unless_it_is_to_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    diverges = ("optim.lr=1e30", "--seeds=1")
    assert reproduce(tmp_path, *diverges) == 1
    assert "failed attention=none: the training loss is nan" in capsys.readouterr().out
    assert [record.status for record in records_in(tmp_path).values()] == ["failed", "failed"]
    assert reproduce(tmp_path, *diverges) == 1
    screen = capsys.readouterr()
    assert "2 failed before, 0 to do" in screen.out
    assert "begins" not in screen.out
    assert screen.err.count("the training loss is nan") == 2
    failed = Result("failed", "the training loss is nan")
    monkeypatch.setattr(launcher, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "result", staticmethod(lambda running: failed))
    assert reproduce(tmp_path, *diverges, "--jobs=1", "--retry=1", "--stop-at-failure") == 1
    screen = capsys.readouterr()
    assert screen.out.count("begins") == 2  # the first one, twice
    assert "tries again attention=none" in screen.out
    assert screen.err.count("the training loss is nan") == 1


def test_a_damaged_record_stops_no_other_run(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    damaged, missing, *_ = sorted((tmp_path / "results" / "runs").iterdir())
    damaged.write_text("[]")
    missing.unlink()
    assert reproduce(tmp_path, "--retry=1") == 1
    assert missing.exists()
    errors = [line for line in capsys.readouterr().err.splitlines() if "not a record" in line]
    assert errors
    assert all(str(damaged) in line for line in errors)


def test_a_missing_data_set_stops_only_the_runs_that_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "data=svhn", f"data.root={tmp_path}", "data.download=false") == 1
    screen = capsys.readouterr()
    assert screen.out.startswith("0 runs")
    assert "can't run 2 configurations: svhn: put train_32x32.mat" in screen.out
    assert screen.err.startswith("error: svhn: put train_32x32.mat")
    assert screen.err.count("\n") == 1


def test_the_table_is_written_beside_the_records(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(whole) == 0
    printed = capsys.readouterr().out
    page = (whole / "results" / "tables" / "jiao_table2.md").read_text()
    assert page in printed
    maxima = [record.max_accuracy for record in records_in(whole).values() if record.config["attention"]["cbam"]]
    assert f"| CapsNet2_CBAM | 2 | yes | 99.61000061 | {sum(maxima) / 2:.2f} ±" in page
    assert "3 of 250 epochs" in page
    assert "CapsNet3" not in page.partition("Known deviations")[0]  # only two iterations were selected


class FakeWorker:
    """Stands for a process, which ends with `result` of the number of running ones when it is first polled."""

    waitables = ()
    started: ClassVar[list[str]] = []
    running: ClassVar[list["FakeWorker"]] = []

    def __init__(self, job: planning.Job, slot: int, device: int | None, threads: int) -> None:
        self.job, self.slot, self.process, self.device = job, slot, self, device
        self.started.append(job.planned.name)
        self.running.append(self)

    def poll(self) -> Result | None:
        result = self.result(len(self.running))
        if result is not None:
            self.running.remove(self)
        return result

    @staticmethod
    def result(running: int) -> Result | None:
        return Result("finished")

    def end(self, timeout: float = 0.0) -> None:
        if self in self.running:
            self.running.remove(self)

    terminate = join = kill = end


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[planning.Job]]:
    """Four jobs, whose workers are FakeWorkers."""
    monkeypatch.setattr(launcher, "Worker", FakeWorker)
    monkeypatch.setattr(launcher, "_INTERVAL", 0)
    monkeypatch.setattr(launcher, "_LOCKED", 0)
    FakeWorker.started.clear()
    yield planned(tmp_path)
    assert not FakeWorker.running


@pytest.mark.parametrize(("device", "states"), [("cuda", ["finished"] * 4), ("cpu", ["failed", "finished"] * 2)])
def test_a_run_without_memory_beside_others_is_repeated_alone(
    device: str, states: list[str], jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_a_full_gpu(running: int) -> Result:
        return Result("failed", "full", out_of_memory=True) if running > 1 else Result("finished")

    monkeypatch.setattr(FakeWorker, "result", staticmethod(on_a_full_gpu))
    for job in jobs:
        job.planned = dataclasses.replace(job.planned, device=torch.device(device))
    launcher.launch(jobs, launcher.Options(at_a_time=2))
    assert [job.state for job in jobs] == states
    assert len(FakeWorker.started) == (4 if device == "cpu" else 6)


def test_runs_that_lack_memory_at_once_are_all_repeated_alone(
    jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_unless_alone(running: int) -> Result:
        alone = [job.state for job in jobs].count("running") == 1 and len(FakeWorker.started) > 2
        return Result("finished") if alone else Result("failed", out_of_memory=True)

    monkeypatch.setattr(FakeWorker, "result", staticmethod(full_unless_alone))
    for job in jobs:
        job.planned = dataclasses.replace(job.planned, device=torch.device("cuda"))
    launcher.launch(jobs, launcher.Options(at_a_time=2))
    assert [job.state for job in jobs] == ["finished"] * 4


def test_a_run_that_was_killed_beside_others_fails(jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    ended, closed = SimpleNamespace(exitcode=-9), SimpleNamespace(closed=True)
    killed = worker.Worker.poll(SimpleNamespace(process=ended, messages=closed, result=None))  # type: ignore[arg-type]
    monkeypatch.setattr(FakeWorker, "result", staticmethod(lambda running: killed))
    for job in jobs:
        job.planned = dataclasses.replace(job.planned, device=torch.device("cuda"))
    launcher.launch(jobs, launcher.Options(at_a_time=2))
    assert [job.state for job in jobs] == ["failed"] * 4
    assert len(FakeWorker.started) == 4


def test_a_run_is_tried_again_as_often_as_wanted(jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeWorker, "result", staticmethod(lambda running: Result("failed", "no reason")))
    launcher.launch(jobs, launcher.Options(at_a_time=3, retries=2))
    assert [(job.state, job.outcome) for job in jobs] == [("failed", "no reason")] * 4
    assert len(FakeWorker.started) == 3 * 4


@pytest.mark.parametrize("failures", [1, 9])
def test_a_process_that_cannot_be_started_is_tried_again(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying:
        def __init__(self) -> None:
            made.append(self)

        def start(self) -> None:
            if len(made) <= failures:
                raise EOFError  # as when the fork server was killed

    made: list[Dying] = []
    monkeypatch.setattr(worker, "_PAUSE", 0)
    if failures == 1:
        assert worker._started(Dying) is made[1]  # type: ignore[arg-type]
    else:
        with pytest.raises(RunError, match="no process can be started: EOFError"):
            worker._started(Dying)  # type: ignore[arg-type]


def test_runs_are_distributed_over_gpus(jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    def devices_in_use(running: int) -> Result:
        found.append([process.device for process in FakeWorker.running])
        return Result("finished")

    found: list[list[int | None]] = []
    monkeypatch.setattr(FakeWorker, "result", staticmethod(devices_in_use))
    launcher.launch(jobs, launcher.Options(at_a_time=4, devices=2))
    assert found[0] == [0, 1, 0, 1]


@pytest.mark.parametrize("hip", [None, "7.0"])
def test_a_run_sees_one_gpu_of_those_that_its_launcher_sees(hip: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On ROCm, torch doesn't look at CUDA's variable where ROCm's is set: torch.cuda._parse_visible_devices."""
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    if hip:
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "4,6")
    worker._choose(1)
    assert torch.cuda._parse_visible_devices() == [6 if hip else 5]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    worker._choose(1)
    assert torch.cuda._parse_visible_devices() == [1]


def test_the_deadline_ends_the_processes(jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeWorker, "result", staticmethod(lambda running: None))
    launcher.launch(jobs, launcher.Options(at_a_time=3, deadline=time.monotonic() + 0.1))
    assert len(FakeWorker.started) == 3
    assert [job.state for job in jobs] == ["waiting"] * 4


def test_a_run_that_another_process_trains_is_waited_for(
    jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unlocked_after_a_check(folder: Path) -> bool:
        found = is_locked(folder)
        if found:
            other.close()
        return found

    other = ExitStack()
    other.enter_context(locked(jobs[0].planned.folder))
    monkeypatch.setattr(launcher, "is_locked", unlocked_after_a_check)
    launcher.launch(jobs, launcher.Options())
    assert "waits for attention=none seed=0: another process trains it" in capsys.readouterr().out
    assert FakeWorker.started == [jobs[index].planned.name for index in (1, 0, 2, 3)]
    assert [job.state for job in jobs] == ["finished"] * 4


def test_what_another_launcher_has_finished_meanwhile_is_skipped(whole: Path, jobs: list[planning.Job]) -> None:
    elsewhere = planned(whole)  # as they were planned before their records were there
    for job in elsewhere:
        job.state = "waiting"
    launcher.launch(elsewhere, launcher.Options())
    assert FakeWorker.started == []
    assert all(job.outcome.startswith("maximum test accuracy") for job in elsewhere)
