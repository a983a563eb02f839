"""From class capsules to class scores."""

import torch
from torch import Tensor, nn

from capsexp.nn.capsules import Capsules, Routing
from capsexp.nn.precision import at_least_float32, full_precision


class Scores(nn.Module):
    """What the class capsules say, in the way of their routing; see the table at `Routing`.

    With `pose`, one linear classifier D → 1 reads every class capsule (tsai, "Post-Capsule Layers"). A capsule that
    has an activation as well is read as the layers above a capsule read it, weighted: a_j · classifier(p_j).

    Args:
        routing: of the class capsules.
        pose: D.
    """

    def __init__(self, routing: Routing, pose: int) -> None:
        super().__init__()
        self.presence = routing.presence
        self.classifier = nn.Linear(pose, 1) if routing.presence == "pose" else None

    def forward(self, classes: Capsules) -> Tensor:
        """Poses [B, J, D] -> [B, J], in float32: between 0 and 1, but for `pose`, which gives logits."""
        poses, activations = classes
        if self.classifier is None and activations is not None:
            return activations
        with full_precision(poses):
            poses = at_least_float32(poses)
            if self.classifier is None:
                return torch.linalg.vector_norm(poses, dim=-1)
            logits: Tensor = self.classifier(poses).squeeze(-1)
            return logits if activations is None else activations * logits
