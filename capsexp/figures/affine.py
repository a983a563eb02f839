"""alberti, "Affine Transformation Robustness": accuracy against rotation, shear and scale, each alone."""

from capsexp.evaluate.robustness import robustness
from capsexp.figures.curves import Drawn, levels
from capsexp.figures.networks import trained
from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import LOOKS, Page, legend, level

STUDY = "alberti_affine"
IMAGES = 500  # test digits: more would take a CPU more than minutes

#: Map -> the axis's label, and the values: as far as affNIST goes, and twice as far.
MAPS = {
    "rotation": ("rotation, degrees clockwise", (-40, -20, 0, 20, 40)),
    "shear": ("shear, pixels to the right a pixel down", (-0.4, -0.2, 0, 0.2, 0.4)),
    "scale": ("scale, of lengths", (0.6, 0.8, 1, 1.2, 1.4)),
}


def robust(sources: Sources) -> Drawn:
    """One plot a map, both networks, and the published accuracies under all maps together."""
    rows = sources.lines(STUDY)
    missing = sources.missing([measured for measured in rows if not measured.runs], STUDY)
    page = Page("alberti: robustness to affine maps, trained on shifted digits", (12, 4.5), (1, len(MAPS)))
    drawn = False
    for measured, look in zip(rows, LOOKS, strict=False):
        network = None
        if measured.runs:
            network = trained(sources, measured, f"budget.test_images={IMAGES}", device=None)
        if isinstance(network, Missing):
            missing.append(network)
        if network is None or isinstance(network, Missing):
            page.note(f"Without {measured.row.name}.")
            for axis in page.axes[0]:
                axis.plot([], [], label=f"{measured.row.name} (not drawn)", **look.curve)
        else:
            drawn = True
            print(f"{STUDY}: {measured.row.name}: {IMAGES} images under {len(MAPS) * 5} maps …", flush=True)
            accuracies = robustness(network, {kind: values for kind, (_, values) in MAPS.items()})
            for axis, kind in zip(page.axes[0], MAPS, strict=True):
                of_kind = accuracies[accuracies["map"] == kind]
                axis.plot(of_kind.value, of_kind.accuracy, label=f"{measured.row.name} (n = 1)", **look.curve)
            setting, seed = measured.setting, network.config.seed
            page.note(f"{measured.row.name}: after epoch {network.epoch}: {setting}; one run (seed {seed}).")
    if not drawn:
        return None, missing
    for axis, (label, values) in zip(page.axes[0], MAPS.values(), strict=True):
        axis.axvspan(values[1], values[3], color="0.93", zorder=0)
        axis.set(xlabel=label, ylabel=f"accuracy on {IMAGES:,} test digits, %", ylim=(0, 100))
        level(axis, levels(rows))
        legend(axis, 2)
    page.note(
        "Grey: as far as affNIST goes. Dotted levels and the numbers at the right: published, under all maps together."
    )
    return page, missing
