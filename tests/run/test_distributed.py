"""One run in two processes: the numbers of one process, one record, and no process left behind."""

import signal
import subprocess
import sys
import threading
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
from support import TINY, composed_config, folders, numbers

from capsexp.errors import InputError, RunError
from capsexp.run import records
from capsexp.run.execute import run

#: Images in batches of 128 and 3, of which one process gets 2 and the other 1; the last test image is one's alone.
SHARED = [
    *(option for option in TINY if not option.startswith(("budget.train_images", "budget.test_images"))),
    "budget.train_images=131",
    "budget.test_images=199",
    "optim.name=sgd",  # Adam makes steps of one size out of gradients that are nothing but rounding
    "optim.lr=0.1",
]


def trained(tmp_path: Path, name: str, *options: str) -> records.Record:
    return run(composed_config(*SHARED, *folders(tmp_path / name), *options))


def close(one: records.Record, two: records.Record) -> None:
    for row, other in zip(numbers(one), numbers(two), strict=True):
        for key, value in row.items():
            # An image at the border between two classes may fall to the other side.
            assert other[key] == pytest.approx(value, rel=1e-5, abs=0.51 if key.endswith("accuracy") else 1e-6), key
    assert one.correct is not None
    assert two.correct is not None
    assert one.correct.keys() == two.correct.keys()
    for accuracy, bits in one.correct.items():
        assert (records.unpacked(bits, 199) != records.unpacked(two.correct[accuracy], 199)).sum() <= 1


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    options = ("reconstruction.enabled=true", "model=da_capsnet", "attention.conv=false")
    alone = trained(tmp_path, "one", *options)
    both = trained(tmp_path, "two", *options, "trainer.processes=2")
    assert both.key == alone.key
    close(alone, both)
    assert both.provenance["processes"] == 2
    assert alone.provenance["processes"] == 1
    assert (
        len(list(tmp_path.glob("two/results/runs/*")))
        == len(list(tmp_path.glob("two/logs/tensorboard/*/events*")))
        == 1
    )
    assert not active_children()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("protocol=heldout",),
        ("loss=spread", "routing.gradient=last"),
        ("routing.gradient=none",),
        ("model=inverted_capsnet", "routing.iterations=2"),
        ("model=inverted_capsnet", "routing.iterations=1", "optim.schedule=plateau", "optim.milestones=[]"),
    ],
)
def test_networks_and_protocols_in_two_processes(options: tuple[str, ...], tmp_path: Path) -> None:
    close(trained(tmp_path, "one", *options), trained(tmp_path, "two", *options, "trainer.processes=2"))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_goes_on_in_another_number_of_processes(sent: signal.Signals, tmp_path: Path) -> None:
    whole = trained(tmp_path, "whole", "budget.epochs=30")
    command = [sys.executable, "-m", "capsexp", *SHARED, *folders(tmp_path / "cut"), "budget.epochs=30"]
    command.append("trainer.processes=2")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch  5/"):
            process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == [
        "interrupted: the same command continues after the last whole epoch, if there is one"
    ]
    cut = trained(tmp_path, "cut", "budget.epochs=30")
    assert cut.provenance["resumed_after_epochs"]
    close(whole, cut)


@pytest.mark.slow
def test_a_process_that_dies_fails_the_run_in_one_line(tmp_path: Path) -> None:
    def kill_the_other() -> None:
        while not (tmp_path / "died" / "logs").exists() or not list((tmp_path / "died").glob("logs/*/last.ckpt")):
            time.sleep(0.1)
        (other,) = active_children()
        other.kill()

    killer = threading.Thread(target=kill_the_other)
    killer.start()
    with pytest.raises(RunError, match="process 2 of 2 ended with code -9"):
        trained(tmp_path, "died", "trainer.processes=2", "budget.epochs=2000")
    killer.join()
    (path,) = (tmp_path / "died" / "results" / "runs").iterdir()
    assert records.read(path).status == "failed"


def test_batch_normalisation_needs_gpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trainer\.processes=2: this network has batch normalisation"):
        trained(tmp_path, "wrong", "model=resnet18", "trainer.processes=2")


@pytest.mark.slow
def test_an_error_of_all_processes_is_raised_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trainer.processes=2: the smallest batch has fewer images \(1\)"):
        trained(tmp_path, "wrong", "optim.batch_size=65", "trainer.processes=2")
    assert not active_children()
