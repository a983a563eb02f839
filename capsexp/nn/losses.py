"""Losses on class scores [B, J] and labels [B]; each is a mean over the batch, in float32."""

from typing import Annotated

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
