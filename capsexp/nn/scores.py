"""Class scores: what every network returns, and how they are computed from class capsules."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing


class Prediction(NamedTuple):
    """A network's output for a batch."""

    scores: Tensor  # [B, J]: the largest is the predicted class; lengths, activations or logits
    poses: Tensor | None  # [B, J, D]: the class capsules; None for a network without capsules


class ClassScores(nn.Module):
    """Class scores from class capsules, according to the routing's `presence`; see the table at `Routing`.

    With `pose`, one linear classifier D → 1, the same for all classes, gives logits (tsai, "Post-Capsule Layers"). A
    capsule that has an activation as well is weighted with it, as in the layers below: a_j · classifier(p_j).

    Args:
        routing: of the class capsules.
        pose: D.
    """

    def __init__(self, routing: Routing, pose: int) -> None:
        super().__init__()
        self.presence = routing.presence
        self.classifier = nn.Linear(pose, 1) if routing.presence == "pose" else None

    def forward(self, classes: Capsules) -> Tensor:
        """Poses [B, J, D] -> [B, J], in float32: logits with presence `pose`, else between 0 and 1."""
        poses, activations = classes
        if self.classifier is None and activations is not None:
            return activations
        with full_precision(poses):
            poses = at_least_float32(poses)
            if self.classifier is None:
                return torch.linalg.vector_norm(poses, dim=-1)
            logits: Tensor = self.classifier(poses).squeeze(-1)
            return logits if activations is None else activations * logits
