"""What is said of a checkpoint: the accuracy that its run measured, classes, confusions, affine maps, on the screen."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import ROOT, TINY, composed_config

from capsexp.data import source
from capsexp.data.module import test_split as split_of
from capsexp.errors import InputError
from capsexp.evaluate import __main__ as evaluate
from capsexp.evaluate.evaluation import Evaluation, by_class, confusion_of, most_confused
from capsexp.evaluate.evaluation import evaluate as evaluated
from capsexp.evaluate.robustness import GRID, mapped, matrix, robustness, upright
from capsexp.inspect.restore import restore
from capsexp.run import checkpoints, records
from capsexp.run.execute import run

PAIRS = "+data.synthesis={name: pairs, _target_: capsexp.data.synthesis.DiverseMultiMNIST}"
AFFINE = "+data.synthesis={name: affine, _target_: capsexp.data.synthesis.AffineMNIST}"
KINDS = {
    "plain": ("optim.lr=0.01",),
    "bf16": ("trainer.precision=bf16", "trainer.eval_batch_size=64", "attention=cbam"),
    "heldout": ("protocol=heldout", "reconstruction.enabled=true", "reconstruction.hidden=[8,8]"),
    "pairs": (PAIRS, "data.size=36"),
    "affine": (AFFINE, "data.size=40"),
    "gpu": ("trainer.accelerator=gpu", "trainer.deterministic=false", "optim.lr=0.01"),
}
Trained = tuple[records.Record, Path]


def quiet(line: str) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs write."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind != "gpu"])
def trained(request: pytest.FixtureRequest, place: Path) -> Trained:
    """A run of each kind."""
    return train(place, request.param)


def train(place: Path, kind: str) -> Trained:
    """The record and the folder of a run; the second time it is only read."""
    paths = (f"paths.results={place}/{kind}/results", f"paths.logs={place}/{kind}/logs")
    record = run(composed_config(*TINY, *paths, *KINDS[kind]), None, quiet)
    (folder,) = (place / kind / "logs").iterdir()
    return record, folder


def test_the_accuracy_is_the_records(trained: Trained) -> None:
    record, folder = trained
    best, last = (evaluated(restore(folder / name), quiet) for name in (checkpoints.BEST, checkpoints.LAST))
    if record.heldout_accuracy is not None:
        assert best.accuracy == record.heldout_accuracy
        return
    assert (best.accuracy, last.accuracy) == (record.max_accuracy, record.last_accuracy)
    assert last.loss == record.epochs[-1]["test_loss"]
    assert last.images == 200
    assert last.note == "sample of 5,000 training and 1,000 test images"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_accuracy_is_the_records_and_a_cpus_is_near(place: Path) -> None:
    record, folder = train(place, "gpu")
    restored = restore(folder / checkpoints.LAST, None)
    assert restored.module.device.type == "cuda"
    assert evaluated(restored, quiet).accuracy == record.last_accuracy
    assert evaluated(restore(folder / checkpoints.LAST), quiet).accuracy == pytest.approx(record.last_accuracy, abs=1)


def test_tables_and_accuracy_agree(trained: Trained) -> None:
    restored = restore(trained[1])
    evaluation = evaluated(restored, quiet)
    classes, confusion = evaluation.classes, evaluation.confusion
    if confusion is None:
        images, sets = split_of(source.load(restored.config.data, quiet), restored.config)
        named = restored(images.float() / 255).scores > 0.5
        assert 100 * (named == sets.bool()).all(dim=1).double().mean() == pytest.approx(evaluation.accuracy)
        assert classes.equals(by_class(sets.bool(), named, list("0123456789")))
        assert classes.images.sum() > evaluation.images  # some have two
        return
    right = confusion.to_numpy().diagonal()
    assert confusion.to_numpy().sum() == classes.images.sum() == evaluation.images
    assert 100 * right.sum() / evaluation.images == pytest.approx(evaluation.accuracy)
    assert list(classes.images) == list(confusion.sum(axis=1))
    assert list(classes.recall) == pytest.approx(list(100 * right / confusion.sum(axis=1)))


def test_robustness_begins_where_the_accuracy_is(place: Path) -> None:
    record, folder = train(place, "plain")
    table = robustness(
        restore(folder / checkpoints.LAST), {"rotation": [0, 90], "shear": [0], "scale": [1, 0.5]}, quiet
    )
    assert list(table["map"]) == ["rotation", "rotation", "shear", "scale", "scale"]
    assert list(table["value"]) == [0, 90, 0, 1, 0.5]
    assert set(table.accuracy[[0, 2, 3]]) == {record.last_accuracy}
    assert set(table.images) == {200}


def test_digits_under_affine_maps_are_mapped_once() -> None:
    images = source.load(composed_config("data=mnist_sample").data, quiet)
    upright_of = [upright(images, composed_config("data=mnist_sample", *kind)) for kind in ((), KINDS["affine"])]
    assert all(torch.equal(split[0], images.test_images) for split in upright_of)
    assert upright(images, composed_config("data=mnist_sample", *KINDS["pairs"]))[0].shape[-1] == 36


def test_maps_turn_shear_and_scale() -> None:
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[0, 0, 1:3, 4] = 200  # above the middle
    assert torch.equal(mapped(image, matrix("rotation", 0), 9), image)
    assert torch.equal(mapped(image, matrix("rotation", 90), 9), image.rot90(-1, (2, 3)))  # clockwise
    assert torch.equal(mapped(image, matrix("rotation", -90), 9), image.rot90(1, (2, 3)))
    assert torch.equal(mapped(image, matrix("scale", 1), 13), torch.nn.functional.pad(image, [2] * 4))
    (up,) = mapped(image, matrix("shear", 1), 9)[0, 0, 1].nonzero()  # three pixels above the middle go three left
    assert up.item() == 1
    assert mapped(image, matrix("scale", 0.5), 9)[0, 0].nonzero().tolist() == [[3, 4]]  # two above the middle: now one


def test_the_grid_holds_affnists_ranges_and_no_change() -> None:
    for kind, inside in {"rotation": (-20, 0, 20), "shear": (-0.2, 0, 0.2), "scale": (0.8, 1, 1.2)}.items():
        assert set(inside) <= set(GRID[kind])


def test_classes_are_counted_as_by_hand() -> None:
    truth = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]]).bool()
    named = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]]).bool()
    table = by_class(truth, named, ["a", "b", "c"])
    assert table.loc["a"].tolist() == pytest.approx([200 / 3, 200 / 3, 200 / 3, 3])
    assert table.loc["b"].tolist() == pytest.approx([100, 50, 200 / 3, 2])
    assert table.loc["c", ["precision", "recall", "f1"]].isna().all()


def test_confusions_are_counted_as_by_hand() -> None:
    eye = torch.eye(3).bool()
    table = confusion_of(eye[[0, 0, 0, 1, 2, 2, 2]], eye[[0, 1, 1, 1, 0, 0, 1]], ["a", "b", "c"])
    assert table.to_numpy().tolist() == [[1, 2, 0], [0, 1, 0], [2, 1, 0]]  # rows are true
    assert most_confused(table, 2) == [("a", "b", 2), ("c", "a", 2)]
    assert most_confused(table, 9)[2:] == [("c", "b", 1)]


def test_the_command_prints_and_writes_everything(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = train(place, "plain")
    output = tmp_path / "new" / "numbers.json"
    capsys.readouterr()
    evaluate.main([f"checkpoint={folder}/last.ckpt", "robustness=true", "budget.test_images=50", f"output={output}"])
    shown, numbers = capsys.readouterr().out, json.loads(output.read_text())
    assert f"{folder.name}, last.ckpt, after epoch 3\n50 test images of mnist_sample (sample of 5,000" in shown
    assert f"accuracy {numbers['accuracy']:.2f} %" in shown
    assert "on cpu in float32" in shown
    assert shown.endswith(f"wrote {output}\n")
    assert len(numbers["robustness"]) == sum(map(len, GRID.values()))
    assert {row["map"]: row["accuracy"] for row in numbers["robustness"] if row["value"] == 0}["shear"] == numbers[
        "accuracy"
    ]
    assert sum(map(sum, numbers["confusion"])) == numbers["images"] == 50
    assert numbers["run"] == folder.name
    assert [row["class"] for row in numbers["classes"]] == list("0123456789")
    assert "images by true class" in shown
    assert "most often confused" in shown


def test_sets_of_classes_have_no_confusion_matrix(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = train(place, "pairs")
    capsys.readouterr()
    evaluate.main([f"checkpoint={folder}"])
    shown = capsys.readouterr().out
    assert "accuracy (exactly the right set of classes)" in shown
    assert "true class" not in shown
    assert "| 9 " in shown


def hundred() -> Evaluation:
    """Of a hundred classes of one image each: nine are right, the others are taken for the next one."""
    truth = torch.eye(100).bool()
    answers = torch.cat([truth[:9], truth[9:].roll(1, dims=1)])
    names = [f"class{number}" for number in range(100)]
    confusion = confusion_of(truth, answers, names)
    return Evaluation(100, None, 9.0, 1.0, confusion, by_class(truth, answers, names))


def test_of_a_hundred_classes_the_worst_are_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    restored = restore(train(place, "plain")[1])
    capsys.readouterr()
    evaluate.show(restored, hundred())
    shown = capsys.readouterr().out
    assert "the ten worst of 100 classes (output=FILE has all)" in shown
    assert "| class9 " in shown
    assert "| class8 " not in shown
    assert "images by true class" not in shown
    assert shown.count("\n") < 40
    written = json.dumps(evaluate.content(restored, hundred(), None), allow_nan=False)
    assert len(json.loads(written)["classes"]) == 100


def test_on_a_narrow_screen_no_number_is_cut(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = restore(train(place, "plain")[1], overrides=["budget.test_images=100"])
    monkeypatch.setattr(evaluate, "PIPED_WIDTH", 40)
    capsys.readouterr()
    evaluation = evaluated(restored, quiet)
    evaluate.show(restored, evaluation)
    tables = capsys.readouterr().out.split("\n\n", 1)[1]
    assert max(map(len, tables.splitlines())) <= 40
    assert "…" not in tables
    assert "this screen has 40)" in tables


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "checkpoint: missing; must be a run's folder or a checkpoint in it"),
        (["checkpoint"], "checkpoint: not of the form key=value"),
        (["checkpoint="], "checkpoint=: must be a run's folder or a checkpoint in it"),
        (["chekpoint=x"], "chekpoint: no such key; did you mean checkpoint?"),
        (["checkpoint=/none"], "/none: no such checkpoint"),
        (["checkpoint=x", "robustness=1"], "robustness=1: must be true or false"),
        (["checkpoint=x", "output=."], "output=.: is a folder; must be a file to write"),
    ],
)
def test_wrong_words_get_one_line(words: list[str], line: str) -> None:
    with pytest.raises(InputError) as raised:
        evaluate.main(words)
    assert str(raised.value) == line


def test_missing_data_get_the_usual_line(place: Path) -> None:
    _, folder = train(place, "plain")
    with pytest.raises(InputError, match=r"mnist: put train-images-idx3-ubyte .* data.download is false"):
        evaluate.main([f"checkpoint={folder}", "data=mnist", "data.download=false", f"data.root={place}/none"])


def program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs the command as a process."""
    command = [sys.executable, "-m", "capsexp.evaluate", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, **options)  # type: ignore[call-overload]


def test_the_program_ends_in_exit_codes_and_one_line() -> None:
    ended = program("checkpoint")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: checkpoint: not of the form key=value\n"
    helped = program("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "checkpoint=PATH" in helped.stdout


def test_help_and_wrong_words_do_not_wait_for_torch() -> None:
    code = "import sys, capsexp.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False, cwd=ROOT).returncode == 0
