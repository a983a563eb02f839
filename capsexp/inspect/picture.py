"""The picture of an `Analysis`: rows of panels, from the prediction to the traversal of the predicted capsule."""

import io
import math
import textwrap
from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from capsexp.figures.style import GREY, STYLES, default_style
from capsexp.figures.traversal import draw_traversal
from capsexp.inspect.analysis import Analysis
from capsexp.routing.observe import ObservedLayer

WIDTH = 11.0  # inches
MAX_ITERATIONS = 5  # side by side
MAX_CLASSES = 10  # whose scores are shown
HEAT = "viridis"  # its lightness grows monotonically, so that it can be printed grey
SMALL, TINY = 9, 8  # points


def picture(analysis: Analysis) -> bytes:
    """A PNG file; the same bytes for the same image and checkpoint."""
    rows: list[tuple[float, Callable[[SubFigure], None]]] = [(2.7, partial(_prediction, analysis))]  # heights in inches
    layers = enumerate(analysis.captured.layers)
    placed = [number for number, layer in layers if layer.presence[0, :, :, 0].numel() > 1]  # children with positions
    rows += [(2.7, partial(_routing, analysis, number)) for number in placed]
    if analysis.captured.attention:
        rows.append((2.5, partial(_attention, analysis)))
    if analysis.traversal is not None:
        rows.append((0.9 + 0.55 * len(analysis.traversal), partial(_traversal, analysis, analysis.traversal)))
    heights = [height for height, _ in rows]
    with default_style():
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # type: ignore[union-attr,call-arg]
        parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, (_, draw) in zip(parts, rows, strict=True):
            draw(part)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()


def _prediction(analysis: Analysis, part: SubFigure) -> None:
    """The image, the scores, the reconstruction."""
    image, restored, reconstructed = analysis.image, analysis.restored, analysis.reconstruction
    _title(part, f"{image.name}: {analysis.title}   ({restored.name}, epoch {restored.epoch})")
    widths = [1, 2.2] if reconstructed is None else [1, 2.2, 1, 1.2]
    axes = part.subplots(1, len(widths), width_ratios=widths)
    _image(axes[0], image.pixels, "input")
    draw_scores(axes[1], analysis)
    if reconstructed is not None:
        _image(axes[2], reconstructed, "reconstruction")
        difference = (reconstructed - image.pixels).mean(dim=0)
        drawn = _map(axes[3], difference, "reconstruction − input", "PuOr", -1, 1)
        part.colorbar(drawn, ax=axes[3], shrink=0.8)


def draw_scores(axis: Axes, analysis: Analysis) -> None:
    """A bar per class; of many classes those with the highest scores, in the order of the labels."""
    scores, true = analysis.scores, analysis.image.labels or []
    labels = scores.topk(min(MAX_CLASSES, len(scores))).indices.sort().values.tolist()
    colors = [STYLES[2]["color"] if label == analysis.predicted else "0.8" for label in labels]
    bars = axis.barh(range(len(labels)), scores[labels].tolist(), color=colors, edgecolor="black", linewidth=0.6)
    axis.bar_label(bars, fmt="%.3f", fontsize=TINY, padding=3)
    names = [analysis.class_names[label] + (" (true)" if label in true else "") for label in labels]
    axis.set_yticks(range(len(labels)), names, fontsize=TINY)
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.spines[["top", "right"]].set_visible(False)
    rest = "" if len(labels) == len(scores) else f", the {len(labels)} highest of {len(scores)}"
    axis.set_title(f"{analysis.restored.score_kind} of each class{rest}", fontsize=SMALL)


def _routing(analysis: Analysis, number: int, part: SubFigure) -> None:
    """The contributions of a layer's children to the predicted class by position, iteration by iteration."""
    layers, contributions = analysis.captured.layers, analysis.contributions[number]
    _, height, width, types = layers[number].presence.shape
    which = "routing" if len(layers) == 1 else f"routing, layer {number + 1} of {len(layers)}"
    children, predicted = f"({types} at each of {height}×{width} positions)", analysis.class_names[analysis.predicted]
    _title(part, f"{which}: contribution of its child capsules {children} to {predicted}: Σ coefficient × presence")
    count = len(contributions)
    iterations = np.linspace(0, count - 1, min(count, MAX_ITERATIONS)).round().astype(int).tolist()
    maps = contributions[iterations]
    axes = part.subplots(1, max(len(iterations), 3) + 1)
    for axis, iteration, heat in zip(axes, iterations, maps, strict=False):
        drawn = _positions(axis, heat, f"iteration {iteration + 1}", maps)
    part.colorbar(drawn, ax=list(axes[: len(iterations)]), shrink=0.8)
    for axis in axes[len(iterations) : -1]:
        axis.axis("off")
    _entropies(axes[-1], layers[number])


def _entropies(axis: Axes, layer: ObservedLayer) -> None:
    """The layer's entropy by iteration, and its greatest value."""
    parents, entropies = layer.coefficients[0].shape[-1], layer.entropies
    iterations = range(1, len(entropies) + 1)
    axis.plot(iterations, entropies, **STYLES[0])
    for iteration in {1, len(iterations)}:
        value = entropies[iteration - 1]
        axis.annotate(f"{value:.4f}", (iteration, value), (0, -5), textcoords="offset points", ha="center", va="top")
    axis.axhline(math.log(parents), color=GREY, linestyle="--", linewidth=1)
    axis.margins(y=0.35)  # for the values below the curve
    axis.ticklabel_format(axis="y", useOffset=False)
    axis.set_title(f"entropy (dashed: log {parents})", fontsize=SMALL)
    axis.set(xticks=iterations, xlim=(0.5, len(iterations) + 0.5), xlabel="iteration")


def _attention(analysis: Analysis, part: SubFigure) -> None:
    """The factors of the attention modules."""
    maps, predicted = analysis.captured.attention, analysis.class_names[analysis.predicted]
    _title(part, "attention: the factors that its input is multiplied with")
    widths = [2 if each.kind in ("channel", "conv") else 1 for each in maps]
    for each, axis in zip(maps, part.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0], strict=True):
        factors = analysis.factors(each)
        if each.kind == "channel":
            _bars(axis, factors, 0, "channel attention, by channel")
        elif each.kind == "conv":
            _bars(axis, factors, 1, "Conv-Attention, by channel")
        elif each.kind == "spatial":
            part.colorbar(_positions(axis, factors, "spatial attention, by position", factors), ax=axis, shrink=0.8)
        elif factors[..., 0].numel() == 1:
            _bars(axis, factors.flatten(), 1, f"Caps-Attention,\nvotes for {predicted} by child")
        else:
            heat, title = factors.mean(dim=-1), f"Caps-Attention,\nvotes for {predicted}"
            part.colorbar(_positions(axis, heat, title, heat), ax=axis, shrink=0.8)


def _bars(axis: Axes, values: Tensor, foot: int, title: str) -> None:
    """Bars from `foot`: 1 is the factor that changes nothing; 0 in channel attention, whose factors are all below 1."""
    axis.bar(range(len(values)), (values - foot).tolist(), width=1.0, bottom=foot, color=STYLES[2]["color"])
    axis.axhline(foot, color="black", linewidth=0.8)
    axis.set_title(title, fontsize=SMALL)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _traversal(analysis: Analysis, traversal: Tensor, part: SubFigure) -> None:
    """The reconstruction, and its changes by each dimension of the predicted capsule."""
    predicted = analysis.class_names[analysis.predicted]
    _title(part, f"what changes in the reconstruction with one dimension of the capsule of {predicted}")
    axis = part.subplots()
    drawn = draw_traversal(axis, traversal)
    axis.set_ylabel("dimension")
    axis.set_xlabel("added to it; at 0 the reconstruction itself")
    part.colorbar(drawn, ax=axis, shrink=0.5, label="difference from the unchanged reconstruction")


def _title(part: SubFigure, text: str) -> None:
    part.suptitle("\n".join(textwrap.wrap(text, 120)), x=0.01, ha="left", fontsize=SMALL + 1, fontweight="bold")


def _image(axis: Axes, pixels: Tensor, title: str) -> None:
    _map(axis, pixels.movedim(0, -1).squeeze(-1), title, "gray", 0, 1)


def _positions(axis: Axes, heat: Tensor, title: str, scale: Tensor) -> ScalarMappable:
    """Values by position, [H, W], in colours over the range of `scale`."""
    return _map(axis, heat, title, HEAT, float(scale.min()), float(scale.max()))


def _map(axis: Axes, values: Tensor, title: str, colors: str, low: float, high: float) -> ScalarMappable:
    axis.set_title(title, fontsize=SMALL)
    axis.set(xticks=[], yticks=[])
    return axis.imshow(values, cmap=colors, vmin=low, vmax=high)
