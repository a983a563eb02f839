"""python -m capsexp evaluate: what it prints and writes, and one line for wrong input."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import Program, Trained, imports, process, refused

from capsexp.evaluate import command, output
from capsexp.evaluate.evaluation import Evaluation, by_class, confusion_matrix, evaluate
from capsexp.run.plan import plan
from capsexp.run.restore import restore


def test_the_command_prints_and_writes_everything(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = trained.folder, tmp_path / "new" / "numbers.json"
    command.main([f"{folder}/last.ckpt", "budget.test_images=50", f"--output={output}"])
    printed, numbers = capsys.readouterr().out, json.loads(output.read_text())
    assert f"{folder.name}, last.ckpt, after epoch 3\n50 test images of mnist_sample, on cpu in float32\n" in printed
    assert f"accuracy {numbers['accuracy']:.2f} %" in printed
    assert "\ndata files: sample of 5,000 training and 1,000 test images\n" in printed
    assert "images by true class" in printed
    assert "most often confused" in printed
    assert "in its training" not in printed  # of 50 images
    assert printed.endswith(f"wrote {output}\n")
    assert sum(map(sum, numbers["confusion"])) == numbers["images"] == 50
    assert numbers["run"] == folder.name
    assert [row["class"] for row in numbers["classes"]] == list("0123456789")


def test_sets_of_classes_have_no_confusion_matrix(trained_pairs: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([str(trained_pairs.folder)])
    printed = capsys.readouterr().out
    assert "accuracy (exactly the right set of classes)" in printed
    assert "true class" not in printed
    assert "\n9 " in printed
    assert "\nimage by image as in its training\n" in printed


def test_what_differs_from_the_training_is_counted(trained: Trained) -> None:
    restored = replace(restore(trained.folder), halved=True)
    evaluation = evaluate(restored)
    assert output.against_training(restored, evaluation) == "image by image as in its training"
    evaluation.correct[:3] ^= True
    reason = "3 images otherwise than in its training: weights in half precision"
    assert output.against_training(restored, evaluation) == reason
    restored.module.correct["last_accuracy"] = "AAAA"
    line = refused(output.against_training, restored, evaluation)
    assert line.endswith("damaged: correct: 3 bytes for a bit each of 200 images")


def test_of_a_hundred_classes_the_ten_worst_are_printed(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine are right, ninety are taken for one another, one has no image and no prediction."""
    true = torch.eye(100).bool()[:99]
    images = true, torch.cat([true[:9], true[9:].roll(1, dims=0)]), [f"class{number}" for number in range(100)]
    evaluation = Evaluation(99, None, [], 9.0, 1.0, confusion_matrix(*images), by_class(*images))
    output.print_evaluation(restore(trained.folder), evaluation)
    printed = capsys.readouterr().out
    # of which a line is below the head
    assert all(text in printed for text in ("the ten worst of 100 classes (--output=FILE has all)", "\nclass9 ", "─"))
    assert not any(text in printed for text in ("\nclass8 ", "\nclass99 ", "images by true class"))
    assert printed.count("\n") < 40


def test_undefined_numbers_are_null(trained: Trained) -> None:
    never = torch.eye(3).bool()[[0, 0, 1]]  # class c has no image, and is never predicted
    evaluation = Evaluation(3, None, [], 100.0, math.nan, None, by_class(never, never, ["a", "b", "c"]), math.nan)
    numbers = json.loads(json.dumps(output.to_json(restore(trained.folder), evaluation), allow_nan=False))
    assert (numbers["loss"], numbers["reconstruction"]) == (None, None)
    assert [list(row.values()) for row in numbers["classes"]] == [
        ["a", 100, 100, 100, 2],
        ["b", 100, 100, 100, 1],
        ["c", None, None, None, 0],
    ]


@pytest.mark.parametrize("name", ["evaluate", "predict"])
def test_a_file_that_exists_is_not_overwritten(name: str, trained: Trained, tmp_path: Path, program: Program) -> None:
    record = Path(shutil.copy(plan(trained.config).path, tmp_path))
    before = record.read_bytes()
    words = [str(trained.folder), *["image.png"] * (name == "predict"), f"--output={record}"]
    line = f"error: {record}: exists already; --output=FILE must be a new file"
    assert program("capsexp", name, *words) == (2, [], [line])
    assert record.read_bytes() == before


@pytest.mark.parametrize(
    ("word", "code", "printed", "error"),
    [("a=b", 2, "", "error: missing: RUN; capsexp evaluate --help says more"), ("--help", 0, "--output", "")],
)
def test_the_program_ends_with_a_code_and_without_importing_torch(
    word: str, code: int, printed: str, error: str
) -> None:
    ended = process("-X", "importtime", "-m", "capsexp", "evaluate", word)
    errors = [line for line in ended.stderr.splitlines() if not line.startswith("import time:")]
    assert (ended.returncode, errors) == (code, [error] if error else [])
    assert printed in ended.stdout
    assert bool(ended.stdout) == bool(printed)
    assert "torch" not in imports(ended)
