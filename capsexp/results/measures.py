"""The measures: what each number of a run is, in which unit, on which scale it is compared."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """A quantity that records hold, and that sources print."""

    name: str
    title: str  # at the head of a column
    unit: str = ""  # of a difference
    digits: int = 1  # behind the point of a mean
    scale: Literal["percent", "epochs", "amount"] = "amount"  # epochs are compared as logarithms
    machine: Literal["", "device", "quiet device"] = ""  # what runs must share to be compared: a cost's device
    judged: bool = False  # whether a printed number has a verdict
    counted: bool = False  # without a run

    def scaled(self, value: float, ratio: bool = False) -> float:
        """A value on the scale on which it is compared: logarithms of epochs, and of what is compared by ratios."""
        return math.log(value) if ratio or self.scale == "epochs" else value

    def unscaled(self, interval: tuple[float, float]) -> tuple[float, float]:
        """An interval in the measure's unit; of accuracies, within 0 to 100 %."""
        low, high = interval
        if self.scale == "epochs":
            return math.exp(low), math.exp(high)
        return (max(low, 0.0), min(high, 100.0)) if self.scale == "percent" else interval


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "best test accuracy, %", "points", 2, "percent", judged=True),
        Measure("last", "last epoch, %", "points", 2, "percent"),
        Measure("first_epoch", "first epoch to the maximum", scale="epochs", judged=True),
        Measure("level_epoch", "first epoch to the common level", scale="epochs"),
        Measure("first_five", "mean of epochs 1–5, %", "points", 2, "percent", judged=True),
        Measure("reconstruction", "squared error of a reconstruction", digits=2),
        Measure("seconds", "seconds an epoch", "s", 1, machine="quiet device"),
        Measure("memory", "MB on the device", "MB", 0, machine="device"),
        Measure("host", "MB of the process", "MB", 0, machine="device"),
        Measure("inference", "ms / 128 images", "ms", 2, machine="quiet device"),
        Measure("parameters", "parameters", digits=0, counted=True),
        Measure("operations", "operations of a forward pass", digits=0, counted=True),
    )
}


def title_of(measure: str, heldout: bool) -> str:
    """A measure's title; held out, the accuracy is no maximum over the epochs."""
    return "test accuracy, %" if heldout and measure == "accuracy" else MEASURES[measure].title


#: The measures of cells; operations are in claims only.
OF_CELLS = tuple(name for name in MEASURES if name != "operations")
