"""One optimisation step, optimisers and schedules.

No step synchronises host and device. A capsule network is hundreds of small operations, each of which a GPU computes
faster than Python launches it: there a whole step is captured once as a CUDA graph, and then replayed.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, ReduceLROnPlateau

from capsexp.config.schema import Optim
from capsexp.data.loader import Batch
from capsexp.nn.precision import full_precision

WARM_UP = 3  # eager steps before the capture, in which libraries and the optimiser allocate their state


class StepOutput(NamedTuple):
    """Loss and scores of a batch."""

    loss: Tensor  # mean over the batch, scalar
    scores: Tensor  # [B, J]


class EagerStep:
    """Forward, backward, update.

    Args:
        forward: batch -> loss and scores, with gradient.
        backward: of a loss.
        optimizer: of the parameters.
    """

    def __init__(
        self,
        forward: Callable[[Batch], StepOutput],
        backward: Callable[[Tensor], None],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.forward, self.backward, self.optimizer = forward, backward, optimizer

    def __call__(self, batch: Batch) -> StepOutput:
        """Loss and scores before the update, without gradient."""
        torch.clear_autocast_cache()  # in one autocast region, weights would stay what their first bfloat16 copies were
        self.optimizer.zero_grad()
        loss, scores = self.forward(batch)
        with full_precision(loss):  # under autocast, products in float32 regions would have bfloat16 gradients
            self.backward(loss if batch.weight == 1 else loss * batch.weight)
        self.optimizer.step()
        return StepOutput(loss.detach(), scores.detach())


class CapturedStep:
    """The same step, captured once and replayed; it reads the learning rates from the device, where they may change.

    Batches of another shape than the first, such as the last of an epoch, take the eager step.

    Args:
        step: what is captured.
        capture: makes of a function without arguments one that repeats its work.
    """

    def __init__(self, step: EagerStep, capture: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
        self.step, self.capture = step, capture
        self.steps = 0
        self.shapes: tuple[torch.Size, torch.Size] | None = None
        self.rates: list[Tensor] = []  # of the parameter groups
        self.replay: Callable[[], None] | None = None
        self.input: Batch
        self.output: StepOutput

    def __call__(self, batch: Batch) -> StepOutput:
        """Loss and scores before the update, without gradient."""
        shapes = batch.pixels.shape, batch.labels.shape
        self.shapes = self.shapes or shapes
        self.steps += 1
        if shapes != self.shapes or self.steps <= WARM_UP:
            return self.step(batch)
        groups = self.step.optimizer.param_groups
        if self.replay is None:
            self.rates = [torch.tensor(group["lr"], device=batch.pixels.device) for group in groups]
            self.input = Batch(batch.pixels.clone(), batch.labels.clone())
            self.step.optimizer.zero_grad()  # gradients have to be allocated in the capture
            self.replay = self.capture(self._captured)
        self.input.pixels.copy_(batch.pixels)
        self.input.labels.copy_(batch.labels)
        for rate, group in zip(self.rates, groups, strict=True):
            rate.fill_(group["lr"])
        self.replay()
        return StepOutput(self.output.loss.clone(), self.output.scores.clone())

    def _captured(self) -> None:
        groups = self.step.optimizer.param_groups
        numbers = [group["lr"] for group in groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate
        self.output = self.step(self.input)
        for group, number in zip(groups, numbers, strict=True):  # for schedules, histories and checkpoints
            group["lr"] = number
        torch.clear_autocast_cache()  # the bfloat16 copies of the weights are in the capture's memory


def capture_cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph.

    Raises torch.OutOfMemoryError in place of the error that the capture's end has after it.
    """
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        if isinstance(error.__context__, torch.OutOfMemoryError):
            raise error.__context__ from None
        raise
    return graph.replay


def fit_to_device(optimizer: torch.optim.Optimizer, cuda: bool, captured: bool) -> None:
    """Sets how an optimiser, which may come from another device's checkpoint, counts and computes steps.

    On CUDA one kernel updates all parameters. In a captured step it also counts, on the device.
    """
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = captured
        group["fused"] = cuda or None
    for parameter, state in optimizer.state.items():
        if "step" in state:
            device = parameter.device if cuda else torch.device("cpu")
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float32).to(device)


def make_step(
    forward: Callable[[Batch], StepOutput],
    backward: Callable[[Tensor], None],
    optimizer: torch.optim.Optimizer,
    cuda: bool,
    captured: bool,
) -> EagerStep | CapturedStep:
    """The step of a run, see EagerStep; on CUDA it can be captured."""
    fit_to_device(optimizer, cuda, captured)
    step = EagerStep(forward, backward, optimizer)
    return CapturedStep(step, capture_cuda_graph) if captured else step


def make_optimizer(parameters: Iterable[nn.Parameter], optim: Optim) -> torch.optim.Optimizer:
    """Adam or SGD."""
    if optim.name == "adam":
        return torch.optim.Adam(parameters, optim.lr, weight_decay=optim.weight_decay)
    return torch.optim.SGD(parameters, optim.lr, momentum=optim.momentum, weight_decay=optim.weight_decay)


def make_schedule(optimizer: torch.optim.Optimizer, optim: Optim, epochs: int) -> LRScheduler | None:
    """The learning rate's schedule, stepped once an epoch; its milestones are scaled to the run's number of epochs."""
    if optim.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, factor=optim.factor, patience=optim.patience)
    if optim.schedule == "steps":
        milestones = [max(1, round(milestone * epochs / optim.epochs)) for milestone in optim.milestones]
        return MultiStepLR(optimizer, milestones, optim.factor)
    return None
