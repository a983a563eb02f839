"""huang, Figs. 3, 7 and 10 to 13: squash, sample images, epochs to the maximum on MNIST, accuracy by epoch."""

import torch
from matplotlib.axes import Axes
from torchvision.utils import make_grid

from capsexp.config.compose import composed
from capsexp.config.schema import check
from capsexp.data import source
from capsexp.errors import InputError
from capsexp.figures.curves import Drawing, draw_accuracy, published_accuracies
from capsexp.figures.networks import first_of_each, show
from capsexp.figures.sources import Missing, Sources, UndrawnError
from capsexp.figures.style import GREY, STYLES, WIDTH, PaperFigure, SeriesStyle, draw_published, legend
from capsexp.nn.squash import squash
from capsexp.results.collect import Line
from capsexp.study.setting import title

CONSTANTS = (1.0, 0.5)  # of Table 1
BARS = (
    "Bars: first epoch with the run's own maximum, mean over seeds ± standard deviation, a circle per seed; ≥: the "
    'last epoch trained. White: as published, to "100% accuracy".'
)

#: The data sets of Fig. 7.
SETS = ("mnist", "fashion_mnist", "cifar10", "svhn", "smallnorb", "coil20")

MAXIMA = "Dotted levels and the numbers at the right: the published maxima (Table 2)."


def squash_functions(sources: Sources) -> Drawing:
    """Fig. 3: the length of squash(s) over the length of s."""
    figure = PaperFigure("huang, Fig. 3: comparison of two squash functions", (6, 4.5))
    ((axis,),) = figure.axes
    lengths = torch.linspace(0, 5, 201, dtype=torch.float64)
    squashed = {k: squash(lengths[:, None], k)[:, 0] for k in CONSTANTS}
    for k, style in zip(CONSTANTS, STYLES, strict=False):
        axis.plot(lengths, squashed[k], label=f"constant {k}", markevery=20, **style.curve)
    axis.plot(lengths, squashed[0.5] - squashed[1.0], color=GREY, linewidth=1, label="their difference")
    axis.set(xlabel="length of the vector, ‖s‖", ylabel="length of the squashed vector", xlim=(0, 5), ylim=(0, 1))
    legend(axis, 3)
    figure.describe(
        *(f"With constant {k} a vector of length 1 gets {float(squashed[k][40]):.2f}." for k in CONSTANTS),
        "Both rise from 0 towards 1; their difference is greatest for short vectors.",
    )
    figure.note("squash(s) = ‖s‖ s / (k + ‖s‖²). Eqs. 2 and 3, which the source draws, are lost in our copy.")
    return figure, []


def sample_images(sources: Sources) -> Drawing:
    """Fig. 7: the first test image of each of up to ten classes of each data set, from the data sets' files."""
    sets: dict[str, torch.Tensor] = {}
    missing = []
    for option in SETS:
        data = check(composed([f"data={option}", "data.download=false"])).data
        try:
            files = source.load(data, lambda line: None)
            sets[title(option)] = first_of_each(files.test_images, files.test_labels)[0][:10]
        except InputError:
            missing.append(Missing(f"no files of {title(option)}", f"python -m capsexp data {option}"))
    if missing:
        raise UndrawnError(*missing)
    figure = PaperFigure("huang, Fig. 7: sample images of the data sets", (8.5, 0.75 * len(SETS)), (len(SETS), 1))
    for (axis,), (name, images) in zip(figure.axes, sets.items(), strict=True):
        blank = images.new_ones(10 - len(images), *images.shape[1:])
        show(axis, make_grid(torch.cat([images, blank]), 10, padding=1, pad_value=1).movedim(0, -1).numpy())
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
        figure.describe(f"{name}: {len(images)} images of {images.shape[-1]}×{images.shape[-2]} pixels.")
    figure.note("The first test image of each of up to ten classes, in the size and the colours that the networks get.")
    return figure, []


def epochs_to_maximum(sources: Sources) -> Drawing:
    """Fig. 10: accuracy by epoch, and the first epoch with the maximum beside the published one."""
    lines, missing = sources.rows("huang_fig10")
    if all(all(line.cell("first_epoch").bounds) for line in lines):
        raise UndrawnError(*missing, sources.sweep("every maximum is in the last epoch trained", "huang_fig10"))
    figure = PaperFigure("huang, Fig. 10: accuracy on MNIST's test set, and epochs to the top", (WIDTH, 5), (1, 2))
    left, right = figure.axes[0]
    draw_accuracy(figure, left, lines, BARS)
    for index, (line, style) in enumerate(zip(lines, STYLES, strict=False)):
        ours, published = _draw_first_epochs(right, index, line, style)
        figure.describe(f"{line.row.name}, epochs to the top: {ours}; published {published}.")
    right.set_xticks(range(len(lines)), [line.row.name.replace("+", "\n+") for line in lines])
    right.set_ylabel("epochs to the top")
    return figure, missing


def _draw_first_epochs(axis: Axes, at: int, line: Line, style: SeriesStyle) -> tuple[str, str]:
    """Two bars of a row, the measured and the published first epoch; both numbers."""
    cell, published = line.cell("first_epoch"), line.row.published["first_epoch"]
    ours = f"{'≥ ' * any(cell.bounds)}{cell.mean:.3g}" if cell.n else "no runs"
    if cell.n:
        left, top = at - 0.2, cell.mean or 0
        axis.bar(left, top, 0.36, yerr=cell.sd, capsize=4, **style.bar)
        if any(cell.bounds):
            axis.annotate(ours, (left, top), (0, 6), textcoords="offset points", ha="center")
        axis.plot([left] * cell.n, cell.values, "o", color="white", markeredgecolor="black", markersize=5)
    axis.bar(at + 0.2, float(published), 0.36, color="white", edgecolor=GREY, linestyle="--")
    axis.annotate(published, (at + 0.2, float(published)), ha="center", va="bottom", color=GREY)
    return ours, published


def accuracy_by_epoch(number: int, option: str, sources: Sources) -> Drawing:
    """Fig. 11, 12 or 13: the four attention cases on one data set, with Table 2's numbers."""
    data = title(option)
    lines, missing = sources.rows("huang_table2", option)
    longest = max(len(line.runs[0].curve) for line in lines if line.runs)
    shorter = [line.row.name for line in lines if line.runs and len(line.runs[0].curve) < longest]
    lines = [line for line in lines if line.row.name not in shorter]
    figure = PaperFigure(f"huang, Fig. {number}: accuracy on the test set of {data} by epoch", (7, 5))
    names = [line.row.name.removesuffix(f" {data}") for line in lines]
    draw_accuracy(figure, figure.axes[0][0], lines, MAXIMA, names=names)
    draw_published(figure.axes[0][0], published_accuracies(lines))
    figure.note(f"Not drawn, as they were trained for fewer epochs: {', '.join(shorter)}." if shorter else "")
    return figure, missing
