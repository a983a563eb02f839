"""Losses on class scores [B, J] and labels [B]; each is a mean over the batch, in float32."""

from typing import Annotated

import torch
from torch import Tensor, nn

from capsexp.checks import Range

Fraction = Annotated[float, Range(0, 1)]


class MarginLoss(nn.Module):
    """L_k = T_k max(0, m⁺ − ‖v_k‖)² + λ (1 − T_k) max(0, ‖v_k‖ − m⁻)², summed over the classes k.

    Sabour et al. 2017, Eq. 4; jiao, Eq. 2. The scores are the capsules' lengths.
    """

    def __init__(self, *, positive: Fraction = 0.9, negative: Fraction = 0.1, down_weight: Fraction = 0.5) -> None:
        super().__init__()
        self.positive, self.negative, self.down_weight = positive, negative, down_weight

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """[B, J], [B] -> scalar."""
        targets = nn.functional.one_hot(labels, scores.shape[1]).to(scores.dtype)
        present = (self.positive - scores).relu().square()
        absent = (scores - self.negative).relu().square()
        return (targets * present + self.down_weight * (1 - targets) * absent).sum(dim=1).mean()


class SpreadLoss(nn.Module):
    """Σ_{i≠t} max(0, m − (a_t − a_i))², t the label, a the scores (Hinton et al. 2018, Eq. 3).

    Args:
        first, last: the margin m at the first and the last step.
        steps: of the optimisation, over which m grows linearly; then it stays. Hinton et al. say "during training".
            The count is a buffer, and so in every checkpoint; in evaluation the margin is that of the last step.
    """

    steps_done: Tensor

    def __init__(
        self, *, first: Fraction = 0.2, last: Fraction = 0.9, steps: Annotated[int, Range(1)] = 136_850
    ) -> None:
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


def reconstruction_loss(drawn: Tensor, images: Tensor) -> Tensor:
    """The squared error, summed over an image's pixels, mean over the batch: two [B, channels, H, W] -> scalar.

    Sabour et al. 2017 weigh it with 0.0005; as a mean over 784 pixels that is 0.392.
    """
    return (drawn - images).square().flatten(1).sum(dim=1).mean()
