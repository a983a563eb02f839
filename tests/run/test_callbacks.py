"""Lightning's callbacks, chosen on the command line: what they read, what they end, what identifies their runs."""

import csv
from pathlib import Path

import pytest
import torch
from support import TINY, Program, composed_config, copy_of, folders, interrupt_after, numbers, train

from capsexp.run import keys, records
from capsexp.run.execute import run
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
    ("target", "rest", "words", "line"),
    [
        ("os.system", "command: touch ran", "", "callbacks=bad: _target_=os.system: must be a class derived from "),
        (TIMER, "_partial_: true", "", "callbacks.bad._partial_: no such key here"),
        (TIMER, "duration: {_target_: datetime.timedelta}", "", "callbacks.bad.duration._target_: no such key here"),
        (TIMER, "verbose: true", "callbacks.bad.patience=3", "callbacks.bad.patience: no such key"),
        (TIMER, "verbose: true", "trainer.gradient_clip_val=1", "here it is optim.gradient_clip"),
    ],
)
def test_wrong_callbacks_are_a_line(
    target: str, rest: str, words: str, line: str, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "callbacks").mkdir(parents=True)
    (tmp_path / "mine" / "callbacks" / "bad.yaml").write_text(f"bad:\n  _target_: {target}\n  {rest}\n")
    code, _, (error,) = program("capsexp", "--config-dir=mine", *RUN, "callbacks=bad", *words.split())
    assert code == 2
    assert line in error
    assert not Path("ran").exists()


def test_no_key_changes_without_callbacks_and_clipping() -> None:
    identity = keys.identity(composed_config(*RUN, "callbacks=none", "optim.gradient_clip=null"), "bf16", None)
    assert identity == keys.identity(composed_config(*RUN), "bf16", None)
    assert not {"callbacks", "gradient_clip"} & {*identity, *identity["optim"]}


def test_gradients_are_clipped(tmp_path: Path) -> None:
    sgd = ("logger=[]", "optim=huang", "optim.name=sgd", "optim.lr=1.0", "budget.epochs=1")
    whole = train(tmp_path / "whole", *sgd, "optim.gradient_clip=1e9")
    clipped = train(tmp_path / "clipped", *sgd, "optim.gradient_clip=1e-6")
    assert numbers(whole.record) == numbers(train(tmp_path / "none", *sgd).record)
    (still,) = clipped.record.epochs
    assert 0.4 < still["train_loss"] / whole.record.epochs[0]["train_loss"] < 2.5
    states = [torch.load(one.folder / LAST, weights_only=True)["state_dict"] for one in (clipped, whole)]
    torch.manual_seed(0)
    moved = max((states[0][name] - states[1][name]).abs().max() for name in states[0] if name.endswith("weight"))
    assert moved > 1e-5
