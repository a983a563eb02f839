"""The picture of `capsexp.inspect.analysis`: rows of panels, from the image to what each number of the winner draws."""

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from capsexp.figures.style import GREY, LOOKS, ours
from capsexp.inspect.analysis import Child, Inside, Layer, factors
from capsexp.inspect.traversal import OFFSETS

WIDTH = 11.0  # inches
SHOWN = 5  # iterations side by side at most
CLASSES = 10  # whose scores are shown at most
HEAT = "viridis"  # grows in lightness all the way, so that it can be printed grey
CASED = [withStroke(linewidth=2.5, foreground="white")]  # seen on black, too
SMALL, TINY = 9, 8  # points

#: A row of the picture: its height in inches, and what draws it.
Row = tuple[float, Callable[[SubFigure], None]]


def picture(inside: Inside) -> bytes:
    """A PNG file; the same for the same image and checkpoint."""
    rows: list[Row] = [(2.7, partial(_prediction, inside))]
    placed = [layer for layer in inside.layers if layer.fields is not None]
    rows += [(2.7, partial(_routing, inside, layer)) for layer in placed]
    rows += [(2.9, partial(_strongest, inside, layer)) for layer in placed[-1:]]
    if inside.observation.attention:
        rows.append((2.5, partial(_attention, inside)))
    if inside.traversal is not None:
        moved = inside.traversal
        rows.append((0.9 + 0.55 * len(moved), partial(_traversal, inside, moved)))
    heights = [height for height, _ in rows]
    with ours():
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # type: ignore[union-attr,call-arg]
        parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, (_, draw) in zip(parts, rows, strict=True):
            draw(part)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()


def _prediction(inside: Inside, part: SubFigure) -> None:
    """The image, the scores, the reconstruction."""
    asked, restored, drawn = inside.asked, inside.restored, inside.reconstruction
    _title(part, f"{asked.name}: {inside.verdict}   ({restored.name}, epoch {restored.epoch})")
    axes = part.subplots(1, 2 if drawn is None else 4, width_ratios=[1, 2.2] + ([] if drawn is None else [1, 1.2]))
    _image(axes[0], asked.pixels, "input")
    _scores(axes[1], inside)
    if drawn is not None:
        _image(axes[2], drawn, "reconstruction")
        _image(axes[3], torch.zeros_like(drawn), "reconstruction − input")
        difference = axes[3].imshow((drawn - asked.pixels).mean(dim=0), cmap="PuOr", vmin=-1, vmax=1)
        part.colorbar(difference, ax=axes[3], shrink=0.8)


def _scores(axis: Axes, inside: Inside) -> None:
    scores, truth = inside.scores, inside.asked.labels or []
    order = scores.topk(min(CLASSES, len(scores))).indices.sort().values.tolist()
    values = [float(scores[label]) for label in order]
    colors = [LOOKS[2].color if label == inside.winner else "0.8" for label in order]
    bars = axis.barh(range(len(order)), values, color=colors, edgecolor="black", linewidth=0.6)
    axis.bar_label(bars, [f"{value:.3f}" for value in values], fontsize=TINY, padding=3)
    names = [inside.names[label] + (" (true)" if label in truth else "") for label in order]
    axis.set_yticks(range(len(order)), names, fontsize=TINY)
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.spines[["top", "right"]].set_visible(False)
    rest = "" if len(order) == len(scores) else f", the {len(order)} greatest of {len(scores)}"
    axis.set_title(f"{inside.score_is} of each class{rest}", fontsize=SMALL)


def _routing(inside: Inside, layer: Layer, part: SubFigure) -> None:
    """What the children give to the winning class, iteration by iteration, on the pixels that they look at."""
    assert layer.fields is not None
    height, width, types = layer.presence.shape
    winner = inside.names[inside.winner]
    _title(
        part,
        f"{_which(inside, layer)}: how much of its child capsules ({types} at each of {height}×{width} positions) "
        f"goes to {winner}: Σ share × presence",
    )
    shown = _some(len(layer.shares), SHOWN)
    maps = torch.stack([layer.on_pixels(iteration) for iteration in shown])
    axes = part.subplots(1, max(len(shown), 3) + 1)
    for axis, iteration, heat in zip(axes, shown, maps, strict=False):
        drawn = _heat(axis, inside, heat, f"iteration {iteration + 1}", maps)
    part.colorbar(drawn, ax=list(axes[: len(shown)]), shrink=0.8)
    for axis in axes[len(shown) : -1]:
        axis.axis("off")
    _entropies(axes[-1], layer)


def _which(inside: Inside, layer: Layer) -> str:
    number, count = inside.layers.index(layer) + 1, len(inside.layers)
    return "routing" if count == 1 else f"routing, layer {number} of {count}"


def _entropies(axis: Axes, layer: Layer) -> None:
    parents = layer.observed.coefficients[0].shape[-1]
    iterations = range(1, len(layer.entropies) + 1)
    axis.plot(iterations, layer.entropies, **LOOKS[0].curve)
    for iteration in {1, len(iterations)}:
        value = layer.entropies[iteration - 1]
        axis.annotate(f"{value:.3f}", (iteration, value), (0, -5), textcoords="offset points", ha="center", va="top")
    axis.axhline(math.log(parents), color=GREY, linestyle="--", linewidth=1)
    axis.set_ylim(0, 1.15 * math.log(parents))
    axis.set_title(f"entropy (dashed: log {parents})", fontsize=SMALL)
    _count_iterations(axis, len(iterations))


def _strongest(inside: Inside, layer: Layer, part: SubFigure) -> None:
    """Single children, where they are, and what they give in each iteration."""
    children = layer.strongest()
    _title(part, f"{_which(inside, layer)}: the child capsules of which most goes to {inside.names[inside.winner]}")
    places, lines, listed = part.subplots(1, 3, width_ratios=[1, 1.7, 1.8])
    _image(places, inside.asked.pixels, "what they see")
    for number, (child, look) in enumerate(zip(children, LOOKS, strict=False), 1):
        lines.plot(range(1, len(child.shares) + 1), child.shares, label=_described(number, child), **look.curve)
    _boxes(places, children)
    lines.set_ylim(0, 1.08 * max(max(child.shares) for child in children))
    lines.set_title("share", fontsize=SMALL)
    _count_iterations(lines, len(layer.shares))
    listed.axis("off")
    listed.legend(*lines.get_legend_handles_labels(), loc="center left", frameon=False, fontsize=TINY)


def _described(number: int, child: Child) -> str:
    return f"{number}: type {child.type}, row {child.row}, column {child.column}, presence {child.presence:.2f}"


def _boxes(axis: Axes, children: Sequence[Child]) -> None:
    """What each of them sees, once where several stand at one position, with their numbers in the middle."""
    numbers: dict[tuple[int, int, int, int], list[int]] = {}
    for number, child in enumerate(children, 1):
        if child.box is not None:
            numbers.setdefault(child.box, []).append(number)
    for (top, left, bottom, right), here in numbers.items():
        look = LOOKS[here[0] - 1]
        box = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, path_effects=CASED)
        box.set(edgecolor=look.color, linestyle=look.line)
        axis.add_patch(box)
        middle = ((left + right - 1) / 2, (top + bottom - 1) / 2)
        axis.annotate(",".join(map(str, here)), middle, color=look.color, ha="center", va="center", path_effects=CASED)


def _count_iterations(axis: Axes, count: int) -> None:
    axis.set_xticks(range(1, count + 1))
    axis.set_xlim(0.5, count + 0.5)
    axis.set_xlabel("iteration")


def _attention(inside: Inside, part: SubFigure) -> None:
    """What the attention modules multiply with."""
    maps, winner = inside.observation.attention, inside.names[inside.winner]
    _title(part, "attention: what it multiplies its input with")
    widths = [2 if found.kind in ("channel", "conv") else 1 for found in maps]
    for found, axis in zip(maps, part.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0], strict=True):
        values = factors(found, inside.winner)
        if found.kind == "channel":
            _bars(axis, values, 0, "CBAM, by channel")
        elif found.kind == "conv":
            _bars(axis, values, 1, "Conv-Attention, by channel")
        elif found.kind == "spatial":
            heat = _enlarged(values, inside.asked.pixels.shape[-1])
            part.colorbar(_heat(axis, inside, heat, "CBAM, by position", heat), ax=axis, shrink=0.8)
        elif (looks := inside.fields_of(found.name)) is None:
            _bars(axis, values.flatten(), 1, f"Caps-Attention,\nvotes for {winner} by child")
        else:
            heat = looks.spread(values.mean(dim=-1))
            drawn = _heat(axis, inside, heat, f"Caps-Attention,\nvotes for {winner}", heat)
            part.colorbar(drawn, ax=axis, shrink=0.8)


def _bars(axis: Axes, values: Tensor, foot: int, title: str) -> None:
    """Bars that stand on, or hang from, `foot`: 1, which changes nothing; 0 in CBAM, whose factors are all below 1."""
    axis.bar(range(len(values)), (values - foot).tolist(), width=1.0, bottom=foot, color=LOOKS[2].color)
    axis.axhline(foot, color="black", linewidth=0.8)
    axis.set_title(title, fontsize=SMALL)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _enlarged(values: Tensor, size: int) -> Tensor:
    """A feature map's [h, h] on the pixels [size, size] that are nearest to its positions; NaN at the rim."""
    stride = size // len(values)
    large = values.repeat_interleave(stride, 0).repeat_interleave(stride, 1)
    before = (size - len(large)) // 2
    after = size - len(large) - before
    return torch.nn.functional.pad(large, (before, after, before, after), value=math.nan)


def _traversal(inside: Inside, moved: Tensor, part: SubFigure) -> None:
    """A row a dimension of the winning capsule, a column an offset."""
    dimensions, offsets, channels, height, width = moved.shape
    _title(part, f"reconstructions, one number of the capsule of {inside.names[inside.winner]} changed")
    axis = part.subplots()
    moved = torch.nn.functional.pad(moved, (1, 0, 1, 0), value=1)  # white lines between them
    height, width = height + 1, width + 1
    tiles = moved.permute(0, 3, 1, 4, 2).reshape(dimensions * height, offsets * width, channels)
    axis.imshow(tiles.squeeze(-1), cmap="gray", vmin=0, vmax=1)
    axis.set_xticks(
        [(column + 0.5) * width for column in range(offsets)],
        [f"{offset:+.2f}" if offset else "0" for offset in OFFSETS],
    )
    axis.set_yticks([(row + 0.5) * height for row in range(dimensions)], [str(row) for row in range(dimensions)])
    axis.set_ylabel("number")
    axis.set_xlabel("added to it")
    axis.tick_params(length=0)


def _title(part: SubFigure, text: str) -> None:
    part.suptitle("\n".join(textwrap.wrap(text, 120)), x=0.01, ha="left", fontsize=SMALL + 1, fontweight="bold")


def _image(axis: Axes, pixels: Tensor, title: str) -> None:
    axis.imshow(pixels.movedim(0, -1).squeeze(-1), cmap="gray", vmin=0, vmax=1)
    axis.set_title(title, fontsize=SMALL)
    axis.set_xticks([])
    axis.set_yticks([])


def _heat(axis: Axes, inside: Inside, heat: Tensor, title: str, scale: Tensor) -> ScalarMappable:
    """Values of the pixels, NaN where there is none, in colours that span the scale's; outlines of the image."""
    grey = inside.asked.pixels.mean(dim=0)
    _image(axis, grey[None], title)
    known = scale[~scale.isnan()]
    drawn = axis.imshow(heat, cmap=HEAT, vmin=float(known.min()), vmax=float(known.max()))
    axis.contour(grey, levels=[float(grey.mean())], colors="white", linewidths=1.0)
    return drawn


def _some(count: int, most: int) -> list[int]:
    """All of `count`, or `most` of them, with the first and the last."""
    return (
        sorted({round(index * (count - 1) / (most - 1)) for index in range(most)})
        if count > most
        else list(range(count))
    )
