"""The spread loss (Hinton et al. 2018, Eq. 3)."""

import pytest
import torch

from capsexp.nn.losses import SpreadLoss

SCORES, LABELS = torch.tensor([[0.9, 0.5, 0.1], [0.3, 0.2, 0.6]]), torch.tensor([0, 1])


def test_by_hand():
    loss = SpreadLoss(first=0.5, last=0.5, steps=1)
    first = (0.5 - 0.4) ** 2  # 0.5 − 0.8 is below 0
    second = (0.5 + 0.1) ** 2 + (0.5 + 0.4) ** 2
    assert loss(SCORES, LABELS).item() == pytest.approx((first + second) / 2)


def test_the_margin_grows_with_training_steps_alone():
    loss = SpreadLoss(first=0.2, last=0.6, steps=2)

    def by_hand(margin: float) -> float:
        return ((margin + 0.1) ** 2 + (margin + 0.4) ** 2 + max(0.0, margin - 0.4) ** 2) / 2

    margins = [0.2, 0.4, 0.6, 0.6]
    assert [loss(SCORES, LABELS).item() for _ in margins] == pytest.approx([by_hand(m) for m in margins])
    fresh = SpreadLoss(first=0.2, last=0.6, steps=2).eval()
    assert [fresh(SCORES, LABELS).item() for _ in range(3)] == pytest.approx([by_hand(0.2)] * 3)


def test_a_checkpoint_has_the_margin():
    loss, resumed = SpreadLoss(steps=10), SpreadLoss(steps=10)
    for _ in range(4):
        loss(SCORES, LABELS)
    resumed.load_state_dict(loss.state_dict())
    assert loss(SCORES, LABELS) == resumed(SCORES, LABELS) != SpreadLoss(steps=10)(SCORES, LABELS)


def test_gradients():
    scores = torch.rand(4, 5, dtype=torch.float64, requires_grad=True)
    loss = SpreadLoss().eval()
    assert torch.autograd.gradcheck(lambda s: loss(s, torch.tensor([0, 1, 4, 2])), (scores,))
