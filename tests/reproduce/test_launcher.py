"""Running many: each run once and as if alone; skipped, failed, repeated, waited for, stopped."""

import dataclasses
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
import torch
from launching import assert_same, planned, records_in, reproduce
from support import composed_config, folders

from capsexp.data.svhn import SVHN
from capsexp.reproduce import launcher, planning
from capsexp.run import records
from capsexp.run.execute import is_locked, locked, run
from capsexp.run.plan import LAST


def test_every_run_of_the_study_is_done_once_and_as_if_alone(whole: Path, tmp_path: Path) -> None:
    found = records_in(whole)
    axes = {(record.config["attention"]["cbam"], record.config["seed"]) for record in found.values()}
    assert axes == {(cbam, seed) for cbam in (False, True) for seed in (0, 1)}
    assert len(found) == 4
    key, record = min(found.items())
    words, threads = record.provenance["command"].split()[3:], torch.get_num_threads()
    run(composed_config(*words, "logger=[]", *folders(tmp_path), f"trainer.threads={record.provenance['threads']}"))
    torch.set_num_threads(threads)
    assert_same(records_in(tmp_path), {key: record})


def test_what_is_finished_is_skipped_and_some_rows_are_compared_and_written(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in (whole / "results" / "runs").iterdir()}
    assert reproduce(whole) == 0
    screen = capsys.readouterr().out
    assert screen.startswith("4 runs: 4 finished\n")
    assert ": finished " not in screen
    assert {path: path.stat().st_mtime_ns for path in (whole / "results" / "runs").iterdir()} == before
    assert re.search(r"CBAM costs CapsNet no accuracy on MNIST +\S+ points \(", screen)
    page = whole / "results" / "tables" / "jiao_table2.md"
    assert f"All numbers: {page}" in screen
    assert "only routing.iterations=2" in page.read_text()


def test_a_dry_run_lists_the_runs_downloads_nothing_and_writes_nothing(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reproduce(whole, "--seeds=3", "--dry-run") == 0
    common, *lines, total = capsys.readouterr().out.splitlines()
    assert common.startswith("all runs: ")
    assert "attention" not in common
    assert [line.rpartition(", ")[0] for line in lines] == [
        f"attention={cbam}: seeds 0-2: 2 finished, 1 to do" for cbam in ("none", "cbam")
    ]
    assert total.endswith(" left")
    monkeypatch.setattr(SVHN, "download", lambda self, folder: pytest.fail("a download"))
    assert reproduce(tmp_path, "data=svhn", f"data.root={tmp_path}", "--dry-run") == 0
    assert capsys.readouterr().out.count("seeds 0-1: 2 to do") == 2
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
    assert any("3 of 4 runs finished in " in line for line in lines)
    (error,) = screen.err.splitlines()
    assert error.startswith("error: attention=cbam seed=0: ")
    assert f"{damaged / LAST}: not a file; move it away" in error
    assert error.endswith(f"(its output: {damaged / 'output.txt'})")


def test_a_failed_run_is_left_alone_unless_it_is_to_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diverges = ("optim.lr=1e30", "--seeds=1")
    assert reproduce(tmp_path, *diverges) == 1
    assert "failed attention=none: the training loss is nan" in capsys.readouterr().out
    assert [record.status for record in records_in(tmp_path).values()] == ["failed", "failed"]
    assert reproduce(tmp_path, *diverges) == 1
    screen = capsys.readouterr()
    assert "2 runs: 2 failed before\n" in screen.out
    assert ": failed " not in screen.out
    assert screen.err.count("the training loss is nan") == 2


def test_a_damaged_record_and_missing_data_stop_no_other_run(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    damaged, missing, *_ = sorted((tmp_path / "results" / "runs").iterdir())
    damaged.write_text("[]")
    missing.unlink()
    assert reproduce(tmp_path, "--retry=1") == 1
    assert missing.exists()
    errors = [line for line in capsys.readouterr().err.splitlines() if "not a record" in line]
    assert errors
    assert all(str(damaged) in line for line in errors)
    assert reproduce(tmp_path, "data=svhn", f"data.root={tmp_path}", "data.download=false") == 1
    screen = capsys.readouterr()
    assert "can't run 2 configurations: svhn: put train_32x32.mat" in screen.out
    assert screen.err.startswith("error: svhn: put train_32x32.mat")
    assert screen.err.count("\n") == 1


class FakeProcess:
    """Stands for a process, which ends with `code` of the number of running ones when it is first looked at."""

    sentinel, error = None, b""
    started: ClassVar[list["FakeProcess"]] = []
    running: ClassVar[list["FakeProcess"]] = []

    def __init__(self, target: object, args: tuple[object, ...], name: str) -> None:
        self.name, self.device, self.progress = name, args[1], cast(planning.Progress, args[3])

    def start(self) -> None:
        self.progress.error = self.error
        self.started.append(self)
        self.running.append(self)

    @property
    def exitcode(self) -> int | None:
        code = self.code(len(self.running))
        if code is not None:
            self.running.remove(self)
        return code

    @staticmethod
    def code(running: int) -> int | None:
        return 0

    def end(self, timeout: float = 0.0) -> None:
        if self in self.running:
            self.running.remove(self)

    terminate = join = kill = end


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[planning.Job]]:
    """Four jobs, whose processes are FakeProcesses."""
    context = SimpleNamespace(Process=FakeProcess, RawValue=lambda kind: kind())
    monkeypatch.setattr(launcher, "get_context", lambda name: context)
    monkeypatch.setattr(launcher, "_ensure_server", lambda: None)
    monkeypatch.setattr(launcher, "wait", lambda sentinels, timeout: time.sleep(0))
    monkeypatch.setattr(launcher, "RECHECK", 0)
    FakeProcess.started.clear()
    made = planned(tmp_path)
    for job in made:  # what is trained without a process's record
        job.planned.path.parent.mkdir(parents=True, exist_ok=True)
        job.planned.path.touch()
        monkeypatch.setattr(job, "read_record", lambda job=job: setattr(job, "state", "finished"))
    yield made
    assert not FakeProcess.running


def exit_with(code: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes end with this code, or with what it gives for the number of running ones."""
    monkeypatch.setattr(FakeProcess, "code", staticmethod(code if callable(code) else lambda running: code))


@pytest.mark.parametrize(("device", "states"), [("cuda", ["finished"] * 4), ("cpu", ["failed", "finished"] * 2)])
def test_a_run_without_memory_beside_others_is_repeated_alone_on_a_gpu(
    device: str, states: list[str], jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_with(lambda running: launcher._FULL if running > 1 else 0, monkeypatch)
    for job in jobs:
        job.planned = dataclasses.replace(job.planned, device=torch.device(device))
    monkeypatch.setattr(FakeProcess, "error", b"full")
    launcher.launch(jobs, launcher.Options(jobs=2))
    assert [job.state for job in jobs] == states
    assert len(FakeProcess.started) == (4 if device == "cpu" else 6)


@pytest.mark.parametrize(
    ("code", "retries", "attempts", "outcome"),
    [
        (-9, 0, 2, "killed by signal 9 (by the system, for lack of memory?)"),
        (255, 0, 2, "its process ended with code 255"),
        (-9, 2, 3, "killed by signal 9 (by the system, for lack of memory?)"),
    ],
)
def test_a_run_that_was_killed_is_tried_again_at_least_once(
    code: int, retries: int, attempts: int, outcome: str, jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_with(code, monkeypatch)
    launcher.launch(jobs, launcher.Options(jobs=3, retry=retries))
    assert [(job.state, job.outcome) for job in jobs] == [("failed", outcome)] * 4
    assert len(FakeProcess.started) == 4 * attempts


def test_a_run_that_failed_before_is_tried_once_for_each_retry(
    jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_with(1, monkeypatch)
    for job in jobs:
        job.state = "failed"
    launcher.launch(jobs, launcher.Options(jobs=3, retry=1))
    assert len(FakeProcess.started) == 4


@pytest.mark.parametrize("failures", [1, 9])
def test_a_process_that_cannot_be_started_is_tried_again_once(
    failures: int, jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(process: FakeProcess) -> None:
        tried.append(process)
        if len(tried) <= failures:
            raise EOFError  # as when the fork server was killed
        process.running.append(process)

    tried: list[FakeProcess] = []
    monkeypatch.setattr(FakeProcess, "start", start)
    launcher.launch(jobs, launcher.Options())
    assert [job.state for job in jobs] == ["finished" if failures == 1 else "failed"] * 4
    assert jobs[0].outcome == "no process can be started: EOFError"


@pytest.mark.parametrize(("at_a_time", "slots"), [(None, [0, 1]), (4, [0, 1, 0, 1])])
def test_runs_are_distributed_over_gpus(
    at_a_time: int | None, slots: list[int], jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run a GPU, or as many as are asked for."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    ended = iter([*[None] * len(slots), *[0] * 9])  # the first ones are looked at when so many run
    exit_with(lambda running: next(ended), monkeypatch)
    for job in jobs:
        job.planned = dataclasses.replace(job.planned, device=torch.device("cuda"))
    launcher.launch(jobs, launcher.Options(jobs=at_a_time))
    assert [process.device for process in FakeProcess.started][: len(slots)] == slots


@pytest.mark.parametrize("hip", [None, "7.0"])
def test_a_run_sees_one_gpu_of_those_that_its_launcher_sees(hip: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On ROCm, torch doesn't look at CUDA's variable where ROCm's is set: torch.cuda._parse_visible_devices."""
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    if hip:
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "4,6")
    launcher._choose(1)
    assert torch.cuda._parse_visible_devices() == [6 if hip else 5]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    launcher._choose(1)
    assert torch.cuda._parse_visible_devices() == [1]


def test_the_time_limit_ends_the_processes(jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    exit_with(None, monkeypatch)
    for job in jobs:
        monkeypatch.setattr(job, "read_record", lambda: None)
    launcher.launch(jobs, launcher.Options(jobs=3, time_limit=0.002))
    assert len(FakeProcess.started) == 3
    assert [job.state for job in jobs] == ["waiting"] * 4
    assert planning.concurrency(jobs, 9) == (4, 0)  # no more than there are runs


def test_a_run_that_another_process_trains_is_waited_for(
    jobs: list[planning.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked when it is to begin, and once more after it has begun."""

    def unlocked_after_a_check(folder: Path) -> bool:
        found = is_locked(folder)
        if found:
            other.close()
        return found

    other, codes = ExitStack(), [launcher._BUSY]
    other.enter_context(locked(jobs[0].planned.folder))
    monkeypatch.setattr(launcher, "is_locked", unlocked_after_a_check)
    exit_with(lambda running: codes.pop() if codes else 0, monkeypatch)
    launcher.launch(jobs, launcher.Options())
    begun = [process.name for process in FakeProcess.started]
    assert begun == [jobs[index].planned.name for index in (1, 0, 1, 2, 3)]
    assert [(job.state, job.failures) for job in jobs] == [("finished", 0)] * 4


def test_what_another_launcher_has_finished_meanwhile_is_skipped(whole: Path, jobs: list[planning.Job]) -> None:
    elsewhere = planned(whole)  # as they were planned before their records were there
    for job in elsewhere:
        job.state = "waiting"
    launcher.launch(elsewhere, launcher.Options())
    assert FakeProcess.started == []
    assert all(job.outcome.startswith("best test accuracy") for job in elsewhere)
