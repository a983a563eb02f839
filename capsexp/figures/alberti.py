"""alberti, "Affine Transformation Robustness": accuracy against rotation, shear and scale, one at a time."""

from capsexp.evaluate.robustness import robustness
from capsexp.figures.curves import Drawing, published_accuracies
from capsexp.figures.networks import trained
from capsexp.figures.sources import Sources, UndrawnError
from capsexp.figures.style import STYLES, WIDTH, PaperFigure, draw_published, legend

STUDY = "alberti_affine"
IMAGES = 500  # test digits: all would take a CPU many minutes

#: Map -> the axis's label, and the values: as far as affNIST goes, and twice as far.
MAPS = {
    "rotation": ("rotation, degrees clockwise", (-40, -20, 0, 20, 40)),
    "shear": ("shear, pixels to the right a pixel down", (-0.4, -0.2, 0, 0.2, 0.4)),
    "scale": ("scale, of lengths", (0.6, 0.8, 1, 1.2, 1.4)),
}


def affine_maps(sources: Sources) -> Drawing:
    """A plot per map, both networks, and the published accuracies under all maps together."""
    lines, missing = sources.rows(STUDY)
    figure = PaperFigure("alberti: robustness to affine maps, trained on shifted digits", (WIDTH, 4.5), (1, len(MAPS)))
    axes = dict(zip(MAPS, figure.axes[0], strict=True))
    undrawn = 0
    for line, style in zip(lines, STYLES, strict=False):
        name = line.row.name
        try:
            network = trained(sources, line, f"budget.test_images={IMAGES}", device=None)
        except UndrawnError as error:
            undrawn += 1
            missing += error.missing
            figure.note(f"Without {name}.")
            for axis in axes.values():
                axis.plot([], [], label=f"{name} (not drawn)", **style.curve)
            continue
        print(f"{STUDY}: {name}: {IMAGES} images under {len(MAPS) * 5} maps …", flush=True)
        accuracies = robustness(network, {kind: values for kind, (_, values) in MAPS.items()})
        ends = []
        for kind, of_kind in accuracies.groupby("map", sort=False):
            axes[str(kind)].plot(of_kind.value, of_kind.accuracy, label=f"{name} (n = 1)", **style.curve)
            first, *_, last = shown = of_kind.accuracy.tolist()
            ends.append(f"{kind} {first:.1f}, {shown[len(shown) // 2]:.1f}, {last:.1f} %")
        figure.describe(f"{name} at the lower end, in the middle and at the upper end: {'; '.join(ends)}.")
        figure.note(f"{name}: after epoch {network.epoch}: {line.setting}; one run (seed {network.config.seed}).")
    if undrawn == len(lines):
        raise UndrawnError(*missing)
    for axis, (label, values) in zip(axes.values(), MAPS.values(), strict=True):
        axis.axvspan(values[1], values[3], color="0.93", zorder=0)
        axis.set(xlabel=label, ylabel=f"accuracy on {IMAGES:,} test digits, %", ylim=(0, 100))
        draw_published(axis, published_accuracies(lines))
        legend(axis, 2)
    figure.note(
        "Grey: as far as affNIST goes. Dotted levels and the numbers at the right: published, under all maps together."
    )
    return figure, missing
