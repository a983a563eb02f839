"""Losses on class scores [B, J] and labels [B]; each is a mean over the batch, in float32.

Those that are a `MultilabelLoss` also take sets of labels, [B, J] of 0 and 1.
"""

import torch
from torch import Tensor, nn

from capsexp import Count, UnitInterval
from capsexp.nn.labels import present


class MultilabelLoss(nn.Module):
    """One term a class: is it there or not?"""

    @property
    def threshold(self) -> float:
        """A score above it says that the class is there."""
        return 0.5


class MarginLoss(MultilabelLoss):
    """L_k = T_k max(0, m⁺ − ‖v_k‖)² + λ (1 − T_k) max(0, ‖v_k‖ − m⁻)², summed over the classes k.

    Sabour et al. 2017, Eq. 4; jiao, Eq. 2. The scores are the capsules' lengths.
    """

    def __init__(
        self, *, positive: UnitInterval = 0.9, negative: UnitInterval = 0.1, down_weight: UnitInterval = 0.5
    ) -> None:
        super().__init__()
        self.positive, self.negative, self.down_weight = positive, negative, down_weight

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """[B, J], [B] or [B, J] -> scalar."""
        targets = present(labels, scores.shape[1]).to(scores.dtype)
        too_short = (self.positive - scores).relu().square()
        too_long = (scores - self.negative).relu().square()
        return (targets * too_short + self.down_weight * (1 - targets) * too_long).sum(dim=1).mean()


class SpreadLoss(nn.Module):
    """Σ_{i≠t} max(0, m − (a_t − a_i))², t the label, a the scores (Hinton et al. 2018, Eq. 3).

    Args:
        first, last: the margin m at the first and the last step.
        steps: of the optimisation, over which m grows linearly; then it stays. Hinton et al. say "during training".
            The count is a buffer, and so in every checkpoint; in evaluation the margin is that of the last step.
    """

    steps_done: Tensor

    def __init__(self, *, first: UnitInterval = 0.2, last: UnitInterval = 0.9, steps: Count = 136_850) -> None:
        super().__init__()
        self.first, self.last, self.steps = first, last, steps
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """[B, J], [B] -> scalar."""
        margin = self.first + (self.last - self.first) * (self.steps_done / self.steps).clamp(max=1)
        if self.training:
            self.steps_done += 1
        targets = nn.functional.one_hot(labels, scores.shape[1]).to(scores.dtype)
        target = (targets * scores).sum(dim=1, keepdim=True)
        others = (margin - (target - scores)).relu().square()
        return ((1 - targets) * others).sum(dim=1).mean()


class CrossEntropyLoss(nn.Module):
    """−log softmax(scores)[label]; the scores are logits."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """[B, J], [B] -> scalar."""
        return nn.functional.cross_entropy(scores, labels)


class BinaryCrossEntropyLoss(MultilabelLoss):
    """Σ_k −T_k log p_k − (1 − T_k) log(1 − p_k), over the J classes k, divided by J (tsai, section 4.3).

    The paper doesn't say whether the classes are summed or averaged; averaged is what libraries do.

    Scores are logits x, which make p = sigmoid(x), or, without `logits`, p themselves: lengths or activations of
    capsules, see `Routing.presence`. Their logarithms are cut at −100, so that a p of 0 or 1 costs a finite amount.
    """

    def __init__(self) -> None:
        """It has no options; the network decides on `logits`, see capsexp.run.build.make_loss."""
        super().__init__()
        self.logits = True

    @property
    def threshold(self) -> float:
        """Where p is 0.5; the paper doesn't name it."""
        return 0.0 if self.logits else 0.5

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """[B, J], [B] or [B, J] -> scalar."""
        targets = present(labels, scores.shape[1]).to(scores.dtype)
        if self.logits:
            return nn.functional.binary_cross_entropy_with_logits(scores, targets)
        # A length may be 1 + 1e-7 in float32, which torch refuses.
        return nn.functional.binary_cross_entropy(scores.clamp(0, 1), targets)


def reconstruction_loss(drawn: Tensor, images: Tensor) -> Tensor:
    """The squared error, summed over an image's pixels, mean over the batch: two [B, channels, H, W] -> scalar.

    Sabour et al. 2017 weigh it with 0.0005; as a mean over 784 pixels that is 0.392.
    """
    return (drawn - images).square().flatten(1).sum(dim=1).mean()
