"""Optimisation steps that leave the device to itself: no number is asked of it, and a GPU gets a whole step at a time.

A network of capsules is hundreds of small operations. On a GPU each takes less time than it takes Python to ask for it,
so a whole step (forward, backward, update) is recorded once, as a CUDA graph, and then replayed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from capsexp.data.loader import Batch
from capsexp.nn.precision import full_precision

WARM_UP = 3  # steps before the recording: they set up what libraries set up, and the optimiser's state


class Outcome(NamedTuple):
    """What a step says of its batch."""

    loss: Tensor  # mean over the batch, scalar
    scores: Tensor  # [B, J]


class Stepper(Protocol):
    """Does a step."""

    def __call__(self, batch: Batch) -> Outcome:
        """Forward, backward, update; the outcome as it was before the update, without gradient."""


class EagerSteps:
    """Each operation by itself.

    Args:
        forward: batch -> outcome, with gradient.
        backward: of a loss.
        optimizer: whose parameters are trained.
    """

    def __init__(
        self,
        forward: Callable[[Batch], Outcome],
        backward: Callable[[Tensor], None],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.forward, self.backward, self.optimizer = forward, backward, optimizer

    def __call__(self, batch: Batch) -> Outcome:
        # Inside one autocast region, weights would stay what their first copies in bfloat16 were.
        torch.clear_autocast_cache()
        self.optimizer.zero_grad()
        loss, scores = self.forward(batch)
        with full_precision(loss):  # under autocast, products in float32 regions would have bfloat16 gradients
            self.backward(loss if batch.weight == 1 else loss * batch.weight)
        self.optimizer.step()
        return Outcome(loss.detach(), scores.detach())


class RecordedSteps:
    """The same steps from a recording. It is made again when the learning rate has changed, which is part of it.

    Batches of another size than the first, as the last of an epoch, are done by `steps` each time.

    Args:
        steps: what is recorded.
        record: calls its argument, which does a step, without doing it, and returns what does it again and again.
    """

    def __init__(self, steps: EagerSteps, record: "Callable[[Callable[[], None]], Callable[[], None]]") -> None:
        self.steps, self.record = steps, record
        self.done = 0
        self.shapes: list[torch.Size] = []
        self.rates: list[Any] = []
        self.replay: Callable[[], None] | None = None
        self.given: Batch
        self.outcome: Outcome

    def __call__(self, batch: Batch) -> Outcome:
        shapes = [batch.pixels.shape, batch.labels.shape]
        self.shapes = self.shapes or shapes
        self.done += 1
        if shapes != self.shapes or self.done <= WARM_UP:
            return self.steps(batch)
        rates = [group["lr"] for group in self.steps.optimizer.param_groups]
        if self.replay is None or rates != self.rates:
            self.replay, self.rates = None, rates  # the old recording gives its memory back first
            self.given = Batch(batch.pixels.clone(), batch.labels.clone())
            self.steps.optimizer.zero_grad()  # gradients are to lie in the recording's memory
            self.replay = self.record(self._step)
        self.given.pixels.copy_(batch.pixels)
        self.given.labels.copy_(batch.labels)
        self.replay()
        return Outcome(self.outcome.loss.clone(), self.outcome.scores.clone())

    def _step(self) -> None:
        self.outcome = self.steps(self.given)
        torch.clear_autocast_cache()  # its copies of the weights belong to the recording


def cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """Records the step as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def make_recordable(optimizer: torch.optim.Optimizer) -> None:
    """Lets an optimiser that may come from a checkpoint be recorded: it counts its steps on the device."""
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    for parameter, state in optimizer.state.items():
        if "step" in state:
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float32).to(parameter.device)
