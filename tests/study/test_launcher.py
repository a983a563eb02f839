"""Running many: each run once and as if alone, skipping, failing, limits."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from launching import assert_same, planned, records_in, reproduce
from support import ROOT

from capsexp.files import write_atomically
from capsexp.run import records
from capsexp.run.plan import LAST
from capsexp.study import launcher, planning
from capsexp.study.worker import Result


def test_every_run_of_the_study_is_done_once(whole: Path) -> None:
    found = records_in(whole).values()
    assert len(found) == 8
    axes = {(r.config["routing"]["iterations"], r.config["attention"]["cbam"], r.config["seed"]) for r in found}
    assert axes == {(n, cbam, seed) for n in (1, 2) for cbam in (False, True) for seed in (0, 1)}
    assert not any("study" in r.provenance["command"] for r in found)


def test_a_run_among_many_is_the_same_run_alone(whole: Path, tmp_path: Path) -> None:
    record = min(records_in(whole).values(), key=lambda record: record.key)
    words = record.provenance["command"].split()
    paths = [f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs", "trainer.threads=1"]
    subprocess.run([sys.executable, *words[1:], *paths], check=True, cwd=ROOT, capture_output=True)
    assert_same(records_in(tmp_path), {record.key: record})


def test_what_is_finished_is_skipped(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (whole / "results" / "runs").iterdir()}
    assert reproduce(whole, "--seeds=2", "--jobs=2") == 0
    screen = capsys.readouterr().out
    assert screen.startswith("8 runs: 8 finished, 0 failed before, 0 to do, up to 0 epochs")
    assert "begins" not in screen
    assert {path: path.stat().st_mtime_ns for path in (whole / "results" / "runs").iterdir()} == before


def test_a_dry_run_says_what_would_run_and_writes_nothing(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(whole, "--seeds=3", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("finished") for line in lines) == 8
    assert sum(line.startswith("to do") for line in lines) == 4
    assert lines[0].endswith("(jiao_table2)")
    assert reproduce(tmp_path, "--dry-run") == 0
    assert list(tmp_path.iterdir()) == []


def test_one_run_fails_and_the_others_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = planned(tmp_path)[1]
    write_atomically(job.planned.folder / LAST, lambda stream: stream.write(b"not a checkpoint"))
    assert reproduce(tmp_path, "--seeds=1", "--jobs=2") == 1
    screen = capsys.readouterr()
    lines = screen.out.splitlines()
    said = {line.partition(": finished ")[2] for line in lines if ": finished " in line}
    assert said == {
        f"routing.iterations={record.config['routing']['iterations']} "
        f"attention={'cbam' if record.config['attention']['cbam'] else 'none'}: {records.result_line(record)}"
        for record in records_in(tmp_path).values()
        if record.status == "finished"
    }
    assert len(said) == 3
    assert any(line.startswith("3 of 4 runs finished") for line in lines)
    (error,) = screen.err.splitlines()
    assert error.startswith("error: routing.iterations=1 attention=cbam: ")
    assert f"{job.planned.folder / LAST}: not a checkpoint" in error
    assert error.endswith(f"(its output: {job.planned.folder / 'output.txt'})")
    assert len(records_in(tmp_path)) == 3


def test_a_failed_run_is_left_alone_until_it_is_to_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diverges = ("routing.iterations=1", "optim.lr=1e30")
    assert reproduce(tmp_path, *diverges, "--seeds=1") == 1
    assert "failed attention=none: the training loss is nan" in capsys.readouterr().out
    assert [record.status for record in records_in(tmp_path).values()] == ["failed", "failed"]
    assert reproduce(tmp_path, *diverges, "--seeds=1") == 1
    screen = capsys.readouterr()
    assert "2 failed before, 0 to do" in screen.out
    assert "begins" not in screen.out
    assert screen.err.count("the training loss is nan") == 2
    assert reproduce(tmp_path, *diverges, "--seeds=1", "--retry=1", "--stop-at-failure") == 1
    screen = capsys.readouterr()
    assert screen.out.count("begins") == 2  # the first one, twice
    assert "to be tried again attention=none" in screen.out
    assert screen.err.count("the training loss is nan") == 1


def test_a_missing_data_set_stops_only_the_runs_that_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = ("data=svhn", f"data.root={tmp_path}", "data.download=false")
    assert reproduce(tmp_path, *missing, "--seeds=1") == 1
    screen = capsys.readouterr()
    assert screen.out.startswith("0 runs")
    assert "can't run 4 configurations: svhn: put train_32x32.mat" in screen.out
    assert screen.err.startswith("error: svhn: put train_32x32.mat")
    assert screen.err.count("\n") == 1


def test_the_time_limit_stops_it_and_everything_is_kept(tmp_path: Path, whole: Path) -> None:
    for attempt in range(20):  # from two seconds to a minute: a loaded machine gets through too
        assert reproduce(tmp_path, "--seeds=2", "--jobs=2", f"--time-limit={0.03 * 1.2**attempt}") == 0
        if len(list(tmp_path.glob("results/runs/*.json"))) == 8:
            break
    assert attempt > 0
    assert_same(records_in(tmp_path), records_in(whole))


def test_the_table_is_written_beside_the_records(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(whole, "--seeds=2") == 0
    printed = capsys.readouterr().out
    page = (whole / "results" / "tables" / "jiao_table2.md").read_text()
    assert page in printed
    best = [
        record.max_accuracy
        for record in records_in(whole).values()
        if "iterations=2 attention=cbam" in str(record.provenance["command"])
    ]
    assert f"| CapsNet2_CBAM | 2 | yes | 99.61000061 | {sum(best) / 2:.2f} ±" in page
    assert "3 of 250 epochs" in page
    assert "CapsNet3" not in page.partition("Known deviations")[0]  # iterations 1 and 2 were asked for


class WorkerOnAFullGpu:
    """Stands for a process on a GPU that has the memory for one."""

    running: ClassVar[list["WorkerOnAFullGpu"]] = []
    waitables = ()

    def __init__(self, job: planning.Job, slot: int, device: int | None, threads: int) -> None:
        self.job, self.slot = job, slot
        self.running.append(self)

    def poll(self) -> Result:
        full = len(self.running) > 1
        self.running.remove(self)
        return Result("failed", "CUDA out of memory. Tried to allocate 2.00 GiB") if full else Result("finished")


@pytest.mark.parametrize(("device", "state"), [("cuda", "finished"), ("cpu", "failed")])
def test_a_run_without_memory_beside_others_is_repeated_alone(
    device: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "Worker", WorkerOnAFullGpu)
    monkeypatch.setattr(launcher, "_INTERVAL", 0)
    jobs = planned(tmp_path)
    for job in jobs:
        job.planned = dataclasses.replace(job.planned, device=torch.device(device))
    launcher.launch(jobs, launcher.Options(at_a_time=2))
    assert sorted(job.state for job in jobs) == sorted([state, "finished"] * 2)
    assert all(job.attempts == 1 for job in jobs)
