"""Losses, accuracy and mask against numbers computed by hand; whether scores are logits or probabilities."""

from math import log

import pytest
import torch
from support import composed_config
from torch import Tensor, nn

from capsexp.nn.decoder import mask
from capsexp.nn.losses import (
    BinaryCrossEntropyLoss,
    CrossEntropyLoss,
    MarginLoss,
    MultilabelLoss,
    ProbabilityLoss,
    SpreadLoss,
    reconstruction_loss,
)
from capsexp.run.build import build, make_loss
from capsexp.run.module import Metrics

CLASSES = torch.tensor([0, 2])
AS_SETS = torch.tensor([[1, 0, 0], [0, 0, 1]])
SETS = torch.tensor([[1, 1, 0], [0, 0, 1]])
SCORES, LABELS = torch.tensor([[0.9, 0.5, 0.1], [0.3, 0.2, 0.6]]), torch.tensor([0, 1])
SHARES = torch.tensor([[0.6, 0.1, 0.3], [0.2, 0.4, 0.4]])
P = torch.tensor([[0.7, 0.8, 0.3], [0.95, 0.05, 0.9]])

#: A loss, probabilities, labels and the value.
BY_HAND = [
    (MarginLoss(), P, SETS, ((0.2**2 + 0.1**2 + 0.5 * 0.2**2) + 0.5 * 0.85**2) / 2),
    (MarginLoss(), torch.tensor([[0.95, 0.05]]), torch.tensor([0]), 0.0),
    (MarginLoss(positive=1, negative=0, down_weight=0.25), torch.tensor([[0.95, 0.05]]), CLASSES[:1], 1.25 * 0.05**2),
    (SpreadLoss(first=0.5, last=0.5), SCORES, LABELS, ((0.5 - 0.4) ** 2 + (0.5 + 0.1) ** 2 + (0.5 + 0.4) ** 2) / 2),
    (BinaryCrossEntropyLoss(logits=False), P, SETS, -sum(map(log, (0.7, 0.8, 0.7, 0.05, 0.95, 0.9))) / 6),
    (CrossEntropyLoss(), SHARES.log() + 3, CLASSES, -(log(0.6) + log(0.4)) / 2),
]


@pytest.mark.parametrize(("loss", "p", "labels", "value"), BY_HAND)
def test_losses_by_hand(loss: nn.Module, p: Tensor, labels: Tensor, value: float) -> None:
    assert loss(p, labels).item() == pytest.approx(value)
    rounded = loss(p.bfloat16(), labels)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, loss(p.bfloat16().float(), labels))
    if isinstance(loss, ProbabilityLoss):
        assert loss(p, labels.reshape(len(p), -1)) == loss(p, labels)
        loss.logits = True
        found, loss.logits = loss(p.logit(), labels).item(), False
        assert found == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("loss", [BinaryCrossEntropyLoss(), BinaryCrossEntropyLoss(logits=False), MarginLoss()])
def test_a_label_equals_its_multi_hot_label(loss: MultilabelLoss) -> None:
    for labels in (CLASSES, CLASSES[:, None]):
        assert torch.equal(loss(SCORES, labels), loss(SCORES, AS_SETS))
    for labels in (AS_SETS[:, :2], AS_SETS[:1, :2]):  # of two classes
        with pytest.raises(RuntimeError):
            loss(SCORES[: len(labels)], labels)


def test_reconstruction_sums_over_pixels_and_averages_over_the_batch() -> None:
    drawn, images = torch.zeros(2, 1, 28, 28), torch.ones(2, 1, 28, 28)
    images[1] = 0
    assert reconstruction_loss(drawn, images).item() == 784 / 2
    assert reconstruction_loss(drawn, images, "mean").item() == 1 / 2


def test_the_spread_losss_margin_grows_in_training_only() -> None:
    loss = SpreadLoss(first=0.2, last=0.6, steps=2)

    def by_hand(margin: float) -> float:
        return ((margin + 0.1) ** 2 + (margin + 0.4) ** 2 + max(0.0, margin - 0.4) ** 2) / 2

    margins = [0.2, 0.4, 0.6, 0.6]
    assert [loss(SCORES, LABELS).item() for _ in margins] == pytest.approx([by_hand(m) for m in margins])
    fresh = SpreadLoss(first=0.2, last=0.6, steps=2).eval()
    assert [fresh(SCORES, LABELS).item() for _ in range(3)] == pytest.approx([by_hand(0.2)] * 3)


def test_the_spread_losss_margin_grows_over_the_steps_of_its_run() -> None:
    own, given = SpreadLoss(steps=None), SpreadLoss(steps=4)
    with pytest.warns(UserWarning, match="stays 0.2 until grow_over"):
        assert own(SCORES, LABELS) == SpreadLoss(first=0.2, last=0.2)(SCORES, LABELS)  # of no run
    own = SpreadLoss(steps=None)
    for loss in (own, given):
        loss.grow_over(4)
    resumed = SpreadLoss(steps=None)
    assert [own(SCORES, LABELS) for _ in range(5)] == [given(SCORES, LABELS) for _ in range(5)]
    resumed.load_state_dict(own.state_dict())
    assert resumed.eval()(SCORES, LABELS) == SpreadLoss(first=0.9, last=0.9)(SCORES, LABELS)


def test_steps_that_are_set_are_not_those_of_the_run_and_a_checkpoint_has_those_done() -> None:
    loss, resumed = SpreadLoss(steps=10), SpreadLoss(steps=10)
    loss.grow_over(4)
    for _ in range(4):
        loss(SCORES, LABELS)
    assert list(loss.state_dict()) == ["steps_done"]  # as in checkpoints from before
    resumed.load_state_dict(loss.state_dict())
    assert loss(SCORES, LABELS) == resumed(SCORES, LABELS) != SpreadLoss(steps=10)(SCORES, LABELS)


def test_the_loss_is_finite_for_large_logits_and_for_probabilities_of_0_and_1_and_a_rounding_error_above() -> None:
    logits = torch.tensor([[1000.0, -1000.0, 0.0]])
    assert BinaryCrossEntropyLoss()(logits, torch.tensor([[0, 0, 1]])).item() == pytest.approx((1000 + log(2)) / 3)
    p = torch.tensor([[0.0, 1.0, 1.0000001]], requires_grad=True)
    loss = BinaryCrossEntropyLoss(logits=False)(p, torch.tensor([[1, 0, 1]]))
    loss.backward()
    assert loss.item() == pytest.approx(200 / 3)
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


@pytest.mark.parametrize("loss", [MarginLoss(), SpreadLoss(last=0.2), BinaryCrossEntropyLoss(), CrossEntropyLoss()])
def test_one_label_isnt_taken_for_all_images(loss: nn.Module) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        loss(torch.rand(2, 3), torch.tensor([0]))
    with pytest.raises(RuntimeError):
        mask(torch.rand(2, 3, 4), torch.tensor([0]))


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
