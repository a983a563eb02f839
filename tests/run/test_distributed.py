"""One run in two processes of torchrun's: the numbers of one process, one record, interrupted and continued."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support import TINY, Trained, begun, composed_config, folders, numbers

from capsexp.run import records
from capsexp.run.execute import run

pytestmark = pytest.mark.slow

#: Images in batches of 128 and 3, of which one process gets 2 and the other 1; the last test image is one's alone.
SHARED = [
    *(option for option in TINY if not option.startswith(("budget.train_images", "budget.test_images"))),
    "budget.train_images=131",
    "budget.test_images=199",
    "optim.name=sgd",  # Adam makes steps of one size out of gradients that are nothing but rounding
    "optim.lr=0.1",
]


def trained(tmp_path: Path, name: str, *options: str) -> records.Record:
    return run(composed_config(*SHARED, "logger=[]", *folders(tmp_path / name), *options))


def torchrun(place: Path, *words: str) -> "subprocess.Popen[str]":
    options = ("--standalone", "--nproc-per-node=2", "-m", "capsexp", *words, *folders(place))
    return begun("-m", "torch.distributed.run", *options)


def trained_by_two(tmp_path: Path, name: str, *options: str) -> records.Record:
    process = torchrun(tmp_path / name, *SHARED, *options)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert output.count(": on cpu in") == 1  # one process prints
    (path,) = (tmp_path / name / "results" / "runs").iterdir()
    return records.read(path)


def close(one: records.Record, two: records.Record) -> None:
    for row, other in zip(numbers(one), numbers(two), strict=True):
        for key, value in row.items():
            # An image at the border between two classes may fall to the other side.
            assert other[key] == pytest.approx(value, rel=1e-5, abs=0.51 if key.endswith("accuracy") else 1e-6), key
    assert one.correct.keys() == two.correct.keys()
    for accuracy, bits in one.correct.items():
        assert (records.unpacked(bits, 199) != records.unpacked(two.correct[accuracy], 199)).sum() <= 1


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    options = ("reconstruction.enabled=true", "model=da_capsnet", "attention.conv=false")
    alone = trained(tmp_path, "one", *options)
    both = trained_by_two(tmp_path, "two", *options)
    assert both.key == alone.key
    close(alone, both)
    assert both.provenance["processes"] == 2
    assert alone.provenance["processes"] == 1
    assert len(list(tmp_path.glob("two/logs/tensorboard/*/events*"))) == 1


@pytest.mark.parametrize(
    "options",
    [
        ("protocol=heldout",),
        ("loss=spread", "routing.gradient=last"),
        ("routing.gradient=none",),
        ("routing=em",),
        ("routing=self_attention",),
        ("model=inverted_capsnet", "routing.iterations=2"),
        ("model=inverted_capsnet", "routing.iterations=1", "optim.schedule=plateau", "optim.milestones=[]"),
    ],
)
def test_networks_and_protocols_in_two_processes(options: tuple[str, ...], tmp_path: Path) -> None:
    close(trained(tmp_path, "one", *options), trained_by_two(tmp_path, "two", *options))


@pytest.mark.parametrize("ended", ["SIGINT", "SIGTERM", "one killed", "all killed"])
def test_an_interrupted_run_goes_on_in_another_number_of_processes(ended: str, tmp_path: Path) -> None:
    whole = trained(tmp_path, "whole", "budget.epochs=30")
    process = torchrun(tmp_path / "cut", *SHARED, "budget.epochs=30")
    for line in process.stdout:
        if line.startswith("epoch  5/"):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            both = [int(child) for child in children.split()]
            if ended.startswith("SIG"):
                process.send_signal(getattr(signal, ended))
            for killed in {"one killed": both[1:], "all killed": [process.pid, *both]}.get(ended, []):
                os.kill(killed, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode
    cut = trained(tmp_path, "cut", "budget.epochs=30")
    assert cut.provenance["resumed_after_epochs"]
    close(whole, cut)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("model=resnet18", "torchrun: 2 processes: this network has batch normalisation"),
        ("optim.batch_size=65", "torchrun: 2 processes: the smallest batch has fewer images (1)"),
    ],
)
def test_what_two_processes_cannot_train_is_one_line(option: str, error: str, tmp_path: Path) -> None:
    process = torchrun(tmp_path / "wrong", *SHARED, option)
    _, errors = process.communicate()
    assert process.returncode
    assert any(line.startswith(f"error: {error}") for line in errors.splitlines())


def test_a_finished_run_is_skipped_by_all_processes(trained_heldout: Trained) -> None:
    process = torchrun(Path(trained_heldout.config.paths.logs).parent, *TINY, "protocol=heldout")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert output.count("finished already") == 1
