"""Losses against numbers computed by hand."""

import pytest
import torch

from capsexp.nn.losses import (
    BinaryCrossEntropyLoss,
    CrossEntropyLoss,
    LogLikelihoodLoss,
    MarginLoss,
    SpreadLoss,
    reconstruction_loss,
)


def test_margin_loss_is_zero_outside_the_margins_and_uses_its_options() -> None:
    lengths = torch.tensor([[0.95, 0.05]])
    assert MarginLoss()(lengths, torch.tensor([0])).item() == 0
    other = MarginLoss(positive=1.0, negative=0.0, down_weight=0.25)
    assert other(lengths, torch.tensor([0])).item() == pytest.approx(0.05**2 + 0.25 * 0.05**2)


@pytest.mark.parametrize(
    "loss",
    [
        CrossEntropyLoss(),
        SpreadLoss(),
        *(kind(logits=logits) for kind in (MarginLoss, BinaryCrossEntropyLoss) for logits in (True, False)),
    ],
)
def test_losses_of_bfloat16_scores_are_in_float32(loss: torch.nn.Module) -> None:
    scores = torch.rand(4, 10).bfloat16()
    found = loss(scores, torch.tensor([1, 2, 3, 4]))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(scores.float(), torch.tensor([1, 2, 3, 4])))


def test_cross_entropy() -> None:
    scores = torch.randn(4, 10)
    labels = torch.tensor([1, 2, 3, 4])
    expected = -scores.log_softmax(1)[torch.arange(4), labels].mean()
    torch.testing.assert_close(CrossEntropyLoss()(scores, labels), expected)


def test_reconstruction_sums_over_pixels_and_averages_over_the_batch() -> None:
    drawn, images = torch.zeros(2, 1, 28, 28), torch.ones(2, 1, 28, 28)
    images[1] = 0
    assert reconstruction_loss(drawn, images).item() == 784 / 2
    assert reconstruction_loss(drawn, images, "mean").item() == 1 / 2


# Spread loss (Hinton et al. 2018, Eq. 3)

SCORES, LABELS = torch.tensor([[0.9, 0.5, 0.1], [0.3, 0.2, 0.6]]), torch.tensor([0, 1])


def test_spread_loss_by_hand() -> None:
    loss = SpreadLoss(first=0.5, last=0.5, steps=1)
    first = (0.5 - 0.4) ** 2  # 0.5 − 0.8 is below 0
    second = (0.5 + 0.1) ** 2 + (0.5 + 0.4) ** 2
    for labels in (LABELS, LABELS[:, None]):
        assert loss(SCORES, labels).item() == pytest.approx((first + second) / 2)
    loss.logits = True
    assert loss(SCORES.logit(), LABELS).item() == pytest.approx((first + second) / 2)


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


# Log-likelihood of the activations (Hahn et al. 2019)


def test_log_likelihood_by_hand_and_of_a_zero_finite() -> None:
    shares = torch.tensor([[0.6, 0.1, 0.3], [0.0, 0.0, 1.0]])
    expected = -(torch.tensor([0.6, 1.0]).log()).mean()
    torch.testing.assert_close(LogLikelihoodLoss()(shares, torch.tensor([0, 2])), expected)
    torch.testing.assert_close(LogLikelihoodLoss()(shares / 2, torch.tensor([[0], [2]])), expected)
    assert LogLikelihoodLoss()(shares, torch.tensor([0, 1])).isfinite()


def test_a_spread_loss_of_no_run_warns_that_its_margin_stays() -> None:
    with pytest.warns(UserWarning, match="stays 0.2 until grow_over"):
        SpreadLoss()(SCORES, LABELS)
