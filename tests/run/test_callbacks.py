"""Lightning's callbacks, chosen on the command line: what they read, what they end, what identifies their runs."""

import csv
from pathlib import Path

import pytest
import torch
from support import TINY, Program, composed_config, copy_of, folders, interrupt_after, numbers, train

from capsexp.run import records
from capsexp.run.build import build
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import LAST, plan

STOPPING = ("callbacks=early_stopping", "callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=99")
RUN = (*TINY, "logger=[]")
TIMER = "pytorch_lightning.callbacks.Timer"


def test_early_stopping_ends_a_run_which_is_finished_and_another_one(tmp_path: Path, program: Program) -> None:
    words = [*RUN, *folders(tmp_path), *STOPPING]
    code, lines, _ = program("capsexp", *words)
    assert code == 0
    assert any("epoch 2/3" in line for line in lines)
    assert not any("epoch 3/3" in line for line in lines)
    config = composed_config(*words)
    record = records.read(plan(config).path)
    assert (record.status, len(record.epochs)) == ("finished", 2)
    assert len(torch.load(plan(config).folder / LAST, weights_only=True)["history"]) == 2
    assert "callbacks=early_stopping" in record.provenance["command"]
    assert program("capsexp", *words)[1][0].startswith(f"{plan(config).name}: finished already")
    assert plan(config).name != plan(composed_config(*RUN, *folders(tmp_path))).name


def test_a_stopped_run_is_the_same_after_an_interruption_at_any_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path / "whole", "logger=[]", *STOPPING)
    unrecorded = copy_of(whole, tmp_path / "copy", recorded=False)
    assert numbers(run(unrecorded)) == numbers(whole.record)
    config = composed_config(*RUN, *STOPPING, *folders(tmp_path / "cut"))
    interrupt_after(1, config, monkeypatch)
    assert numbers(run(config)) == numbers(whole.record)


def test_the_learning_rate_monitor_writes_to_the_runs_loggers_and_is_no_other_run(
    tmp_path: Path, program: Program
) -> None:
    words = [*TINY, *folders(tmp_path), "logger=csv", "callbacks=[lr_monitor]"]
    assert program("capsexp", *words)[0] == 0
    planned = plan(composed_config(*words))
    (file,) = planned.folder.glob("version_*/metrics.csv")
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [(row["step"], float(row["lr-Adam"])) for row in rows if row["lr-Adam"]] == [
        (f"{n}", 0.001) for n in (1, 2, 3)
    ]
    assert planned.name == plan(composed_config(*TINY, *folders(tmp_path))).name


def test_device_stats_are_written_to_the_runs_loggers(tmp_path: Path, program: Program) -> None:
    pytest.importorskip("psutil", reason="needs psutil, which the extra dev has")
    short = "optim.batch_size=4", "budget.epochs=1", "logger=csv", "callbacks=[device_stats]"  # 64 steps; each 50th
    words = [*TINY, *folders(tmp_path), *short]
    assert program("capsexp", *words)[0] == 0
    (file,) = plan(composed_config(*words)).folder.glob("version_*/metrics.csv")
    used = [row["DeviceStatsMonitor.on_train_batch_end/cpu_percent"] for row in csv.DictReader(file.open())]
    assert [0 <= float(percent) <= 100 for percent in used if percent] == [True]


def test_a_checkpoint_of_ones_own_is_chosen_by_a_logged_metric(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "callbacks").mkdir(parents=True)
    (tmp_path / "mine" / "callbacks" / "kept.yaml").write_text(
        "kept:\n  _target_: pytorch_lightning.callbacks.ModelCheckpoint\n  monitor: test_loss\n  save_top_k: 2\n"
        "  filename: '{epoch}-{test_loss:.4f}'\n"
    )
    code, _, errors = program("capsexp", "--config-dir=mine", *RUN, "callbacks=kept")
    assert (code, errors) == (0, [])
    (path,) = Path("results/runs").glob("*.json")
    losses = sorted((row["test_loss"], row["epoch"] - 1) for row in records.read(path).epochs)[:2]
    kept = sorted(file.name for file in Path("logs").glob("*/checkpoints/*.ckpt"))
    assert kept == sorted(f"epoch={epoch}-test_loss={loss:.4f}.ckpt" for loss, epoch in losses)


@pytest.mark.parametrize(
    ("words", "target", "rest", "line"),
    [
        ("callbacks=bad", "os.system", "command: touch ran", "callbacks=bad: _target_=os.system: must be a class deri"),
        ("logger=bad", "os.system", "command: touch ran", "logger=bad: _target_=os.system: must be a class derived fr"),
        ("callbacks=bad", TIMER, "_partial_: true", "unexpected keyword argument '_partial_'"),
        ("callbacks=bad callbacks.bad.patience=3", TIMER, "verbose: true", "callbacks.bad.patience: no such key"),
        ("callbacks=bad", TIMER, "verbose: maybe", "callbacks.bad.verbose=maybe: must be true or false"),
        ("callbacks=bad", TIMER, "duration: .nan", "callbacks.bad.duration=nan: must be a number"),
        ("callbacks=bad", "{}", "verbose: true", "callbacks.bad._target_={}: no file of conf/callbacks names this"),
        ("callbacks=early_stopping protocol=heldout", TIMER, "verbose: true", "protocol=heldout has heldout_accuracy"),
        ("callbacks=bad trainer.gradient_clip_val=1", TIMER, "verbose: true", "here it is optim.gradient_clip"),
    ],
)
def test_wrong_callbacks_and_loggers_are_a_line_and_not_called(
    words: str, target: str, rest: str, line: str, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for group in ("callbacks", "logger"):
        (tmp_path / "mine" / group).mkdir(parents=True)
        (tmp_path / "mine" / group / "bad.yaml").write_text(f"bad:\n  _target_: {target}\n  {rest}\n")
    code, _, (error,) = program("capsexp", "--config-dir=mine", *TINY, *words.split())
    assert code == 2
    assert line in error
    assert not Path("ran").exists()


def test_gradients_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = []
    monkeypatch.setattr(CapsuleModule, "manual_backward", lambda self, loss: loss.backward())
    for limit in ("null", "1e9", "1e-6"):
        config = composed_config(*RUN, f"optim.gradient_clip={limit}")
        torch.manual_seed(0)
        module = CapsuleModule(plan(config), build(config))
        module._backward(sum(parameter.square().sum() for parameter in module.parameters()))
        norms.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]).norm().item())
    assert norms == [norms[0], norms[0], pytest.approx(1e-6, rel=1e-3)]
    assert norms[0] > 1
