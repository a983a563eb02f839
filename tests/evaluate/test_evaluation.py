"""An evaluation gives the accuracy and loss of the run's record; its tables agree with them."""

from pathlib import Path

import pytest
import torch
from support import Trained, train

from capsexp.data import source
from capsexp.data.module import test_split as split_of
from capsexp.evaluate.evaluation import by_class, confusion_matrix, evaluate, most_confused
from capsexp.run.plan import LAST
from capsexp.run.restore import restore

NAMES = ["a", "b", "c"]


def test_accuracy_loss_and_reconstruction_error_are_the_records(trained: Trained) -> None:
    best, last = (evaluate(restore(path)) for path in (trained.folder, trained.folder / LAST))
    assert (best.accuracy, last.accuracy) == (trained.record.max_accuracy, trained.record.last_accuracy)
    assert last.loss == trained.record.epochs[-1]["test_loss"]
    assert last.reconstruction == trained.record.epochs[-1]["test_reconstruction"]
    assert last.images == 200
    assert last.note == "sample of 5,000 training and 1,000 test images"


def test_of_synthesised_images_in_bfloat16_too(trained_pairs: Trained) -> None:
    evaluation = evaluate(restore(trained_pairs.folder))
    assert evaluation.accuracy == trained_pairs.record.last_accuracy
    assert evaluation.loss == trained_pairs.record.epochs[-1]["test_loss"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_accuracy_is_the_records_and_close_to_a_cpus(tmp_path: Path) -> None:
    words = ("trainer.accelerator=gpu", "trainer.deterministic=false", "optim.lr=0.01")
    run = train(tmp_path, *words)
    restored = restore(run.folder / LAST, None)
    assert restored.module.device.type == "cuda"
    assert evaluate(restored).accuracy == run.record.last_accuracy
    assert evaluate(restore(run.folder / LAST)).accuracy == pytest.approx(run.record.last_accuracy, abs=1)


def test_tables_of_one_class_an_image_agree_with_the_accuracy(trained: Trained) -> None:
    evaluation = evaluate(restore(trained.folder))
    classes, confusion = evaluation.classes, evaluation.confusion
    right = confusion.to_numpy().diagonal()
    assert confusion.to_numpy().sum() == classes.images.sum() == evaluation.images
    assert 100 * right.sum() / evaluation.images == pytest.approx(evaluation.accuracy)
    assert list(classes.images) == list(confusion.sum(axis=1))
    assert list(classes.recall) == pytest.approx(list(100 * right / confusion.sum(axis=1)))


def test_the_table_of_sets_of_classes_agrees_with_the_accuracy(trained_pairs: Trained) -> None:
    restored = restore(trained_pairs.folder)
    evaluation = evaluate(restored)
    images, sets = split_of(source.load(restored.config.data), restored.config)
    predicted = restored(images.float() / 255).scores > 0.5
    assert evaluation.confusion is None
    assert 100 * (predicted == sets.bool()).all(dim=1).double().mean() == pytest.approx(evaluation.accuracy)
    assert evaluation.classes.equals(by_class(sets.bool(), predicted, list("0123456789")))
    assert evaluation.classes.images.sum() > evaluation.images  # some have two


def test_precision_recall_and_f1_by_hand() -> None:
    true = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]]).bool()
    predicted = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]]).bool()
    table = by_class(true, predicted, NAMES)
    assert table.loc["a"].tolist() == pytest.approx([200 / 3, 200 / 3, 200 / 3, 3])
    assert table.loc["b"].tolist() == pytest.approx([100, 50, 200 / 3, 2])
    assert table.loc["c", ["precision", "recall", "f1"]].isna().all()


def test_confusions_by_hand() -> None:
    eye = torch.eye(3).bool()
    table = confusion_matrix(eye[[0, 0, 0, 1, 2, 2, 2]], eye[[0, 1, 1, 1, 0, 0, 1]], NAMES)
    assert table.to_numpy().tolist() == [[1, 2, 0], [0, 1, 0], [2, 1, 0]]  # rows are true
    assert most_confused(table, 2) == [("a", "b", 2), ("c", "a", 2)]
    assert most_confused(table, 9)[2:] == [("c", "b", 1)]
