"""One optimisation step, optimisers and schedules.

No step synchronises host and device. A capsule network is hundreds of small operations, each of which a GPU computes
faster than Python launches it: there a whole step is captured once as a CUDA graph, and then replayed.
"""

import gc
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from capsexp.config.checks import check_value
from capsexp.config.schema import Optim
from capsexp.data.loader import Batch
from capsexp.errors import InputError, first_line
from capsexp.nn.precision import full_precision

log = logging.getLogger("capsexp")

#: Max relative difference of the first replay and the eager step: in bfloat16, sums in another order change an update
#: of Adam by some percent.
AGREEING = 0.1

#: Arguments of optimisers that aren't options: implementation flags; maximize would train for the highest loss.
NOT_OPTIONS = ("foreach", "capturable", "fused", "differentiable", "maximize")

WARM_UP = 3  # eager steps before the capture, in which libraries and the optimiser allocate their state


class StepOutput(NamedTuple):
    """Loss and scores of a batch."""

    loss: Tensor  # mean over the batch, scalar
    scores: Tensor  # [B, J]


@dataclass(eq=False)
class EagerStep:
    """Forward, backward, update."""

    forward: Callable[[Batch], StepOutput]  # with gradient
    backward: Callable[[Tensor], None]
    optimizer: torch.optim.Optimizer
    buffers: Sequence[Tensor] = ()  # what a step changes beside the optimiser's parameters

    def __call__(self, batch: Batch) -> StepOutput:
        """Loss and scores before the update, without gradient."""
        torch.clear_autocast_cache()  # in one autocast region, weights would stay what their first bfloat16 copies were
        self.optimizer.zero_grad()
        loss, scores = self.forward(batch)
        with full_precision(loss):  # under autocast, products in float32 regions would have bfloat16 gradients
            self.backward(loss if batch.weight == 1 else loss * batch.weight)
        self.optimizer.step()
        return StepOutput(loss.detach(), scores.detach())

    def state(self) -> list[Tensor]:
        """The parameters, and then everything else that a step changes."""
        parameters = [parameter.data for group in self.optimizer.param_groups for parameter in group["params"]]
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*parameters, *(value for value in kept if isinstance(value, Tensor)), *self.buffers]


class CapturedStep:
    """The same step, captured once and replayed; it reads the learning rates from the device, where they may change.

    Batches of another shape than the first, such as the last of an epoch, take the eager step. So do all, where the
    capture fails, or its first replay changes the parameters in another way than the eager step: a line of the log
    `capsexp` says so.

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
        self.failed = ""  # why there is none
        self.input: Batch
        self.output: StepOutput

    def __call__(self, batch: Batch) -> StepOutput:
        shapes = batch.pixels.shape, batch.labels.shape
        self.shapes = self.shapes or shapes
        self.steps += 1
        if self.failed or shapes != self.shapes or self.steps <= WARM_UP:
            return self.step(batch)
        if self.replay is None:
            return self._first(batch)
        return self._replayed(batch)

    def release(self, reason: str) -> None:
        """Gives the capture's memory back; from now on steps are eager."""
        self.failed, self.replay = reason, None
        self.rates = []
        vars(self).pop("input", None)
        vars(self).pop("output", None)
        self.step.optimizer.zero_grad()  # gradients of the last replay are in the capture's memory
        gc.collect()  # tensors in the frames of an error
        log.warning("no CUDA graph (%s): steps are eager, and slower", reason)

    def _replayed(self, batch: Batch) -> StepOutput:
        assert self.replay is not None
        self.input.pixels.copy_(batch.pixels)
        self.input.labels.copy_(batch.labels)
        for rate, group in zip(self.rates, self.step.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        self.replay()
        return StepOutput(self.output.loss.clone(), self.output.scores.clone())

    def _first(self, batch: Batch) -> StepOutput:
        """The eager step of a batch, which the capture's first replay has to repeat."""
        state, reason = self.step.state(), ""
        before = [value.to("cpu", copy=True) for value in state]  # the device may have no memory for copies
        device = batch.pixels.device
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):  # both drop out the same units
                self.rates = [torch.tensor(group["lr"], device=device) for group in self.step.optimizer.param_groups]
                self.input = Batch(batch.pixels.clone(), batch.labels.clone())
                self.step.optimizer.zero_grad()  # gradients have to be allocated in the capture
                self.replay = self.capture(self._captured)
                replayed = self._replayed(batch)
            after = [value.to("cpu", copy=True) for value in state]
        except Exception as error:  # a compiler's own; a step that fits the memory can run out of it in its capture
            reason = f"{type(error).__name__}: {first_line(error).partition('. ')[0]}"
        if reason:
            self.release(reason)
        for value, old in zip(state, before, strict=True):
            value.copy_(old)
        eager = self.step(batch)
        if self.replay and (difference := _difference(replayed, eager, after, state, before)) > AGREEING:
            self.release(f"its first replay differs from the eager step by {difference:.1e}")
        return eager

    def _captured(self) -> None:
        groups = self.step.optimizer.param_groups
        numbers = [group["lr"] for group in groups]
        for group, rate in zip(groups, self.rates, strict=True):
            group["lr"] = rate
        try:
            self.output = self.step(self.input)
        finally:
            for group, number in zip(groups, numbers, strict=True):  # for schedules, histories and checkpoints
                group["lr"] = number
            torch.clear_autocast_cache()  # the bfloat16 copies of the weights are in the capture's memory


def _difference(
    replayed: StepOutput, eager: StepOutput, after: list[Tensor], eager_after: list[Tensor], before: list[Tensor]
) -> float:
    """The largest relative difference of two steps in loss and scores, and of what they change, by how much they do.

    One tensor after the other, since the device's memory may hold no more of them.
    """
    worst, zeros = 0.0, [torch.zeros_like(value) for value in eager]
    for one, other, old in zip([*replayed, *after], [*eager, *eager_after], [*zeros, *before], strict=True):
        here = one.to(other.device)
        if other.is_floating_point() and not torch.equal(here, other):  # equal ones can be infinite
            change = other - old.to(other.device)
            error = ((here - other).double().norm() / change.double().norm()).item()
            worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def capture_cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph, which has memory of its own, as much as the eager steps before it, which keep theirs.

    Raises torch.OutOfMemoryError where that can't be had; the step's own error in place of the one that the capture's
    end has after it.
    """
    needed, (free, _) = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()
    if needed > free:
        raise torch.OutOfMemoryError(f"it takes up to {needed / 1e6:,.0f} MB more, and {free / 1e6:,.0f} are free")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        # By default, work of other threads on the device, such as a logger's, is an error during a capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    except RuntimeError as error:  # of the capture's end, after the step's own error, which says why
        torch.cuda.set_stream(stream)  # a capture whose end fails leaves its own
        torch._C._cuda_clearCublasWorkspaces()  # in torch 2.11, those of its stream keep the capture's memory
        generator = torch.cuda.default_generators[stream.device_index]
        generator.graphsafe_set_state(generator.clone_state())  # in torch 2.11, the old one refuses to draw
        raise error.__context__ or error from None
    return graph.replay


def fit_to_device(optimizer: torch.optim.Optimizer, cuda: bool, captured: bool) -> None:
    """Sets how an optimiser, which may come from another device's checkpoint, counts and computes steps.

    On CUDA one kernel updates all parameters. In a captured step it also counts, on the device.
    """
    takes_fused = "fused" in inspect.signature(type(optimizer)).parameters
    fused = cuda and takes_fused and not isinstance(optimizer, torch.optim.Adagrad)  # not on CUDA in torch 2.11
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = captured
        group["fused"] = fused or None
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter).copy_(value)  # a fused update needs the same strides
        if "step" in state:
            device = parameter.device if fused or captured else torch.device("cpu")
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float32).to(device)


def make_step(step: EagerStep, cuda: bool, captured: bool) -> EagerStep | CapturedStep:
    """The step of a run; on CUDA it can be captured."""
    fit_to_device(step.optimizer, cuda, captured)
    return CapturedStep(step, capture_cuda_graph) if captured else step


def make_optimizer(parameters: Iterable[nn.Parameter], optim: Optim) -> torch.optim.Optimizer:
    """The optimiser of torch.optim with its arguments; raises InputError for those that it doesn't take."""
    kind, arguments = optimizer_arguments(optim)
    try:
        return kind(parameters, lr=optim.lr, **arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"optim.options={optim.options}: {first_line(error)}") from None


def optimizer_arguments(optim: Optim) -> tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]:
    """The optimiser's class and its arguments but the learning rate.

    Raises InputError for what it doesn't take, and for a value of another type or length than its own default's.
    """
    classes = {name.lower(): cls for name, cls in vars(torch.optim).items() if isinstance(cls, type)}
    kind = classes[optim.name]
    taken = [*inspect.signature(kind).parameters.items()][2:]  # without the parameters to train and lr
    defaults = {name: parameter.default for name, parameter in taken if name not in NOT_OPTIONS}
    given = {"momentum": optim.momentum, "weight_decay": optim.weight_decay}
    arguments = {name: value for name, value in given.items() if value or name in defaults} | optim.options
    for name, value in [*arguments.items()]:
        key = f"optim.options.{name}" if name in optim.options else f"optim.{name}"
        if name not in defaults:
            raise InputError(f"{key}={value}: optim.name={optim.name} takes {', '.join(defaults)}")
        default = defaults[name]
        listed = isinstance(default, tuple)
        kind_of = bool if isinstance(default, bool) else list[float] if listed else float
        arguments[name] = check_value(value, kind_of, key)
        if listed and len(value) != len(default):
            raise InputError(f"{key}={value}: must be {len(default)} numbers, such as {[*default]}")
    return kind, arguments


def make_schedule(optimizer: torch.optim.Optimizer, optim: Optim, epochs: int) -> lr_scheduler.LRScheduler | None:
    """The learning rate's schedule, stepped once per epoch; what counts the paper's epochs is scaled to the run's."""
    warmup, *milestones = (round(epoch * epochs / optim.epochs) for epoch in (optim.warmup, *optim.milestones))
    later: lr_scheduler.LRScheduler
    match optim.schedule:
        case "plateau":
            mode: Literal["min", "max"] = "min" if optim.plateau_of == "train_loss" else "max"
            return lr_scheduler.ReduceLROnPlateau(optimizer, mode, optim.factor, optim.patience)
        case "steps":
            later = lr_scheduler.MultiStepLR(optimizer, [max(1, epoch - warmup) for epoch in milestones], optim.factor)
        case "cosine":
            later = lr_scheduler.CosineAnnealingLR(optimizer, max(1, epochs - warmup))
        case "exponential":
            later = lr_scheduler.ExponentialLR(optimizer, optim.factor ** (optim.epochs / epochs))
        case _ if not warmup:
            return None
        case _:
            later = lr_scheduler.ConstantLR(optimizer, 1.0)
    if not warmup:
        return later
    growing = lr_scheduler.LinearLR(optimizer, 1 / (warmup + 1), total_iters=warmup)
    return lr_scheduler.SequentialLR(optimizer, [growing, later], [warmup])
