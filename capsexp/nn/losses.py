"""Losses on class scores [B, J] and labels [B] int64; each is a mean over the batch, in float32.

A `MultilabelLoss` also takes multi-hot labels, [B, J] of 0 and 1: the set of classes in an image.
"""

import math
import warnings
from typing import Literal

import torch
from torch import Tensor, nn

from capsexp import Count, UnitInterval
from capsexp.errors import check_choice
from capsexp.nn.precision import at_least_float32, full_precision


def _checked(scores: Tensor) -> Tensor:
    """The scores in float32; raises TypeError for what isn't a tensor."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores must be a tensor, not {type(scores).__name__}; of a network's output its .scores")
    return at_least_float32(scores)


def multi_hot(labels: Tensor, classes: int) -> Tensor:
    """Labels [B] or [B, 1], or multi-hot labels [B, J] -> multi-hot labels [B, J], int64.

    Raises RuntimeError for other shapes, and for numbers that are no class's.
    """
    return labels if labels.shape[1:] == (classes,) else nn.functional.one_hot(labels.reshape(len(labels)), classes)


class ProbabilityLoss(nn.Module):
    """A loss of probabilities p.

    Args:
        logits: the scores are logits x, with p = sigmoid(x), as those of inverted routing and of networks without
            capsules are. False: they are p, as the lengths of dynamic routing and the activations of EM routing are.
    """

    def __init__(self, logits: bool = False) -> None:
        super().__init__()
        self.logits = logits

    def probabilities(self, scores: Tensor) -> Tensor:
        """p of these scores, [B, J] -> [B, J]."""
        scores = _checked(scores)
        return scores.sigmoid() if self.logits else scores


class MultilabelLoss(ProbabilityLoss):
    """A loss with one term a class, for images with any number of classes."""

    @property
    def threshold(self) -> float:
        """The score above which a class counts as predicted, at which p is 0.5; the papers don't give one."""
        return 0.0 if self.logits else 0.5


class MarginLoss(MultilabelLoss):
    """L_k = T_k max(0, m⁺ − p_k)² + λ (1 − T_k) max(0, p_k − m⁻)², summed over the classes k.

    Sabour et al. 2017, Eq. 4; jiao, Eq. 2: there p_k is a capsule's length ‖v_k‖. `logits`: see ProbabilityLoss.
    """

    def __init__(
        self,
        logits: bool = False,
        *,
        positive: UnitInterval = 0.9,
        negative: UnitInterval = 0.1,
        down_weight: UnitInterval = 0.5,
    ) -> None:
        super().__init__(logits)
        self.positive, self.negative, self.down_weight = positive, negative, down_weight

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Scores [B, J], labels [B] or multi-hot [B, J] -> scalar."""
        p = self.probabilities(scores)
        targets = multi_hot(labels, p.shape[1]).to(p.dtype).view_as(p)  # one label a row of scores: none is repeated
        too_short = (self.positive - p).relu().square()
        too_long = (p - self.negative).relu().square()
        return (targets * too_short + self.down_weight * (1 - targets) * too_long).sum(dim=1).mean()


class SpreadLoss(ProbabilityLoss):
    """Σ_{i≠t} max(0, m − (a_t − a_i))², t the label, a the probabilities (Hinton et al. 2018, Eq. 3).

    Args:
        logits: see ProbabilityLoss.
        first, last: the margin m at the first step and after the last.
        steps: number of optimisation steps over which m grows linearly; after them it is constant. None: those that
            `grow_over` sets. Hinton et al. only write "during training". The counts of steps are buffers, so that
            checkpoints contain them. In evaluation the margin is that of the last training step.
    """

    steps_done: Tensor
    steps_in_all: Tensor

    def __init__(
        self, logits: bool = False, *, first: UnitInterval = 0.2, last: UnitInterval = 0.9, steps: Count | None = None
    ) -> None:
        super().__init__(logits)
        self.first, self.last, self.steps, self.endless = first, last, steps, steps is None and first != last
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))
        self.register_buffer("steps_in_all", torch.tensor(float(steps or math.inf)), persistent=steps is None)

    def grow_over(self, steps: int) -> None:
        """Sets the number of optimisation steps over which the margin grows, unless `steps` does.

        Before this call the margin stays at `first`, and training warns of it.
        """
        self.endless = False
        if self.steps is None:
            self.steps_in_all.fill_(steps)

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Scores [B, J], labels [B] -> scalar."""
        active = self.probabilities(scores)
        if self.training and self.endless:
            warnings.warn(f"SpreadLoss: its margin stays {self.first} until grow_over(steps) is called", stacklevel=2)
        margin = self.first + (self.last - self.first) * (self.steps_done / self.steps_in_all).clamp(max=1)
        if self.training:
            self.steps_done += 1
        targets = nn.functional.one_hot(labels.reshape(len(labels)), active.shape[1]).to(active.dtype).view_as(active)
        target = (targets * active).sum(dim=1, keepdim=True)
        others = (margin - (target - active)).relu().square()
        return ((1 - targets) * others).sum(dim=1).mean()


class CrossEntropyLoss(nn.Module):
    """−log softmax(scores)[label]; the scores are logits."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Scores [B, J], labels [B] -> scalar."""
        return nn.functional.cross_entropy(_checked(scores), labels)


class BinaryCrossEntropyLoss(MultilabelLoss):
    """Σ_k −T_k log p_k − (1 − T_k) log(1 − p_k), over the J classes k, divided by J (tsai, section 4.2); of logits.

    The paper doesn't say whether the classes are summed or averaged; libraries average. Logarithms of scores that are
    p are clamped at −100, so that the loss is finite for p of 0 or 1. `logits`: see ProbabilityLoss.
    """

    def __init__(self, logits: bool = True) -> None:
        super().__init__(logits)

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Scores [B, J], labels [B] or multi-hot [B, J] -> scalar."""
        scores = _checked(scores)
        targets = multi_hot(labels, scores.shape[1]).to(scores.dtype)
        if self.logits:
            return nn.functional.binary_cross_entropy_with_logits(scores, targets)
        # In float32 a length can be 1 + 1e-7, for which torch raises, as it does under autocast on a GPU.
        with full_precision(scores):
            return nn.functional.binary_cross_entropy(scores.clamp(0, 1), targets)


def reconstruction_loss(drawn: Tensor, images: Tensor, reduction: Literal["sum", "mean"] = "sum") -> Tensor:
    """The squared error's sum or mean over pixels, mean over the batch: two [B, channels, H, W] -> scalar.

    Sabour et al. 2017 weigh the sum with 0.0005; for the mean over 784 pixels that is 0.392.
    """
    check_choice("reduction", reduction, "sum", "mean")
    errors = (drawn - images.reshape(drawn.shape)).square().flatten(1)
    return (errors.sum(dim=1) if reduction == "sum" else errors).mean()
