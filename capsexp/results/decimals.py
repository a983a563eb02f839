"""Numbers as texts."""

from collections.abc import Sequence

from capsexp.results.cells import Cell
from capsexp.results.measures import MEASURES
from capsexp.study.studies import Published


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """−1,234.5, with a real minus; nothing is negative zero."""
    rounded = round(value, digits) or 0.0
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{digits}f}".replace("-", "−")


def printed(number: Published, measure: str) -> str:
    """A number as printed, but without the digits of single precision: 99.71 of 99.70999908."""
    if measure == "parameters":
        return f"{number.text}M"
    long = len(number.text.partition(".")[2]) > MEASURES[measure].digits
    return decimal(number.value, MEASURES[measure].digits) if long else number.text


def average(cell: Cell) -> str:
    """99.71, or ≥ 40: the mean alone."""
    return number(cell.mean or 0.0, None, cell.values, MEASURES[cell.measure].digits, cell.bounds)


def number(mean: float, sd: float | None, values: Sequence[float], digits: int, bounds: Sequence[bool] = ()) -> str:
    """99.71 ± 0.03; the values themselves where some of them are lower bounds."""
    if any(bounds):
        texts = [f"{'≥ ' if bound else ''}{decimal(value, 0)}" for value, bound in zip(values, bounds, strict=True)]
        return texts[0] if len(set(texts)) == 1 else ", ".join(texts)
    return decimal(mean, digits) + ("" if sd is None else f" ± {decimal(sd, digits)}")
