"""Multi-hot labels: losses, accuracy and mask by hand; whether scores are logits or probabilities."""

import math

import pytest
import torch
from support import composed_config

from capsexp.nn.decoder import mask
from capsexp.nn.losses import BinaryCrossEntropyLoss, MarginLoss
from capsexp.run.build import build, make_loss
from capsexp.run.module import Metrics

CLASSES = torch.tensor([0, 2])
AS_SETS = torch.tensor([[1, 0, 0], [0, 0, 1]])
SETS = torch.tensor([[1, 1, 0], [0, 0, 1]])


def test_binary_cross_entropy_by_hand() -> None:
    p = torch.tensor([[0.9, 0.2, 0.4], [0.5, 0.1, 0.8]])
    right = (0.9, 0.2, 0.6, 0.5, 0.9, 0.8)  # the probability of the true label, class after class
    expected = -sum(map(math.log, right)) / 6
    assert BinaryCrossEntropyLoss(logits=False)(p, SETS).item() == pytest.approx(expected)
    assert BinaryCrossEntropyLoss()(p.logit(), SETS).item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", [BinaryCrossEntropyLoss(), BinaryCrossEntropyLoss(logits=False), MarginLoss()])
def test_a_label_equals_its_multi_hot_label(loss: BinaryCrossEntropyLoss | MarginLoss) -> None:
    scores = torch.rand(2, 3)
    for labels in (CLASSES, CLASSES[:, None]):
        assert torch.equal(loss(scores, labels), loss(scores, AS_SETS))
    for labels in (AS_SETS[:, :2], AS_SETS[:1, :2]):  # of two classes
        with pytest.raises(RuntimeError):
            loss(scores[: len(labels)], labels)


def test_margin_loss_by_hand() -> None:
    lengths = torch.tensor([[0.7, 0.8, 0.3], [0.95, 0.05, 0.9]])
    # (0.9 − 0.7)² + (0.9 − 0.8)² + 0.5 (0.3 − 0.1)²;  0.5 (0.95 − 0.1)²
    expected = ((0.04 + 0.01 + 0.5 * 0.04) + 0.5 * 0.7225) / 2
    assert MarginLoss()(lengths, SETS).item() == pytest.approx(expected)
    assert MarginLoss(logits=True)(lengths.logit(), SETS).item() == pytest.approx(expected)


def test_the_loss_is_finite_for_large_logits_and_for_probabilities_of_0_and_1_and_a_rounding_error_above() -> None:
    logits = torch.tensor([[1000.0, -1000.0, 0.0]])
    assert BinaryCrossEntropyLoss()(logits, torch.tensor([[0, 0, 1]])).item() == pytest.approx((1000 + math.log(2)) / 3)
    p = torch.tensor([[0.0, 1.0, 1.0000001]], requires_grad=True)
    loss = BinaryCrossEntropyLoss(logits=False)(p, torch.tensor([[1, 0, 1]]))
    loss.backward()
    assert loss.item() == pytest.approx(200 / 3)
    assert p.grad is not None
    assert bool(p.grad.isfinite().all())


@pytest.mark.parametrize(
    ("loss", "shift"), [(BinaryCrossEntropyLoss(), 0.5), (BinaryCrossEntropyLoss(logits=False), 0.0)]
)
def test_a_prediction_is_correct_if_all_classes_are(loss: BinaryCrossEntropyLoss, shift: float) -> None:
    labels = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 1, 0]])
    p = torch.tensor(
        [[0.6, 0.9, 0.1], [0.6, 0.4, 0.1], [0.6, 0.9, 0.7], [0.1, 0.9, 0.7], [0.4, 0.51, 0.49], [0.4, 0.45, 0.1]]
    )  # correct, one too few, one too many, one exchanged, correct, none (though the greatest is correct)
    metrics = Metrics(loss.threshold)
    for part in (slice(0, 4), slice(4, 6)):
        metrics.update(torch.tensor(1.0), p[part] - shift, labels[part])
    assert metrics.results("test")["test_accuracy"] == pytest.approx(100 * 2 / 6, abs=1e-4)
    metrics.reset()
    metrics.update(torch.tensor(1.0), p[:1] - shift, labels[:1])
    assert metrics.results("test")["test_accuracy"] == 100


def test_the_mask_keeps_the_labelled_capsules() -> None:
    poses = torch.arange(1.0, 13).view(2, 3, 2)
    assert mask(poses, SETS).tolist() == [[1, 2, 3, 4, 0, 0], [0, 0, 0, 0, 11, 12]]
    assert torch.equal(mask(poses, CLASSES), mask(poses, AS_SETS))


@pytest.mark.parametrize(
    ("overrides", "logits"),
    [
        (["model=inverted_capsnet_multimnist"], True),
        (["model=inverted_capsnet_multimnist", "routing.activations=true"], True),
        (["model=inverted_capsnet_multimnist", "routing=em"], False),
        (["model=dynamic_capsnet_multimnist"], False),
        (["model=tsai_cnn_multimnist"], True),
        (["model=sabour_cnn", "loss=binary_cross_entropy"], True),
        (["model=capsnet", "loss=binary_cross_entropy"], False),
        (["model=da_capsnet", "loss=binary_cross_entropy"], False),
        (["model=em_capsnet", "loss=binary_cross_entropy"], False),
        (["model=em_capsnet", "loss=margin"], False),
        (["model=inverted_capsnet", "loss=margin"], True),
    ],
)
def test_the_network_decides_whether_scores_are_logits(overrides: list[str], logits: bool) -> None:
    config = composed_config("data=diverse_multimnist", *overrides)
    with torch.device("meta"):
        loss = make_loss(config.loss, build(config).network)
    assert loss.logits is logits
    assert loss.threshold == (0.0 if logits else 0.5)
