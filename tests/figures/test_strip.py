"""The strip plot: marks at their places, numbers beside them, nothing that overlaps or is cut off."""

from pathlib import Path

import pytest
from drawing import legend
from made import CBAM, PLAIN, SHORT, claim, results, row, run, runs, study
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.strip import MEANINGS, Strip, StripRow, limits_of, of_study
from capsexp.figures.strip import SHORT as SHORT_TRAINING
from capsexp.figures.style import NARROW, WIDE, default_style
from capsexp.results.steps import Steps, name_of
from capsexp.study import studies
from capsexp.study.selection import select

ROWS = [
    StripRow("CNN", None, [82.0, 82.5], 82.25, ("", "82.25")),
    StripRow("CapsNet & <co>", 82.95, [83.0, 84.0], 83.5, ("82.95", "83.50")),
    StripRow("DA", 85.0, texts=("85.0", "")),
]


def drawn(strip: Strip, narrow: bool = False) -> Figure:
    with default_style():
        figure = strip.plot(narrow)
        figure.draw_without_rendering()
    return figure


def texts(axis: Axes) -> list[str]:
    return [text.get_text() for text in axis.texts if text.get_text()]


def marks(axis: Axes, marker: str, size: float) -> list[float]:
    """The numbers with a mark of this kind and size."""
    lines = [line for line in axis.lines if (line.get_marker(), line.get_markersize()) == (marker, size)]
    return [float(x) for line in lines for x in line.get_xdata()]


def test_a_row_has_a_tick_a_dot_a_seed_and_their_mean_with_both_numbers() -> None:
    figure = drawn(Strip({"": ROWS}, "accuracy, %"))
    (axis,) = figure.axes
    numbers = ["82.25", "82.95", "83.50", "85.0"]  # as printed, if it is known
    assert [text for text in texts(axis) if text in numbers] == numbers
    assert {"CNN", "CapsNet & <co>", "DA", "published", "measured"} <= {*texts(axis)}
    assert (axis.get_xlabel(), legend(figure)) == ("accuracy, %", [*MEANINGS.values()][:3])
    assert marks(axis, "|", 16) == [82.95, 85.0]
    assert marks(axis, "o", 6) == [82.0, 82.5, 83.0, 84.0]
    assert marks(axis, "|", 13) == [82.25, 83.5]
    assert axis.get_xlim() == pytest.approx((82 - 0.18, 85 + 0.18))


def test_of_a_study_of_costs_the_seconds_of_its_steps_are_drawn(tmp_path: Path) -> None:
    study = studies.load("tsai_fig4_cost")
    name = name_of(next(one for one in study.claims if one.measure == "inference"), select(study).blocks[0])
    seconds = {row.name: [1.0, 2.0, 9.0] for row in study.rows}
    drawn = of_study(Inputs([], tmp_path, steps=Steps("a processor", {name: seconds})), study.name).files()
    assert b">2.00<" in drawn["_light.svg"]
    assert b"Here: processor time of 3 rounds on a processor." in drawn["_light.svg"]
    with pytest.raises(UndrawnError, match="make bench-claims"):
        of_study(Inputs([], tmp_path), study.name)


@pytest.mark.parametrize("narrow", [False, True])
def test_two_panels_stand_beside_each_other_and_on_a_narrow_screen_below(narrow: bool) -> None:
    figure = drawn(Strip({"CIFAR-10": ROWS, "SVHN": ROWS, "MNIST": ROWS}, "accuracy, %"), narrow)
    first, second, third = (axis.get_position() for axis in figure.axes[:3])
    assert (first.y0 == second.y0, third.y1 < second.y0) == (not narrow, True)
    assert figure.get_figwidth() == (NARROW if narrow else WIDE)


def test_a_seed_far_below_is_an_arrow_and_the_others_can_be_told_apart() -> None:
    rows = [StripRow("A", 99.7, [17.95, 97.0], 57.48), StripRow("B", 99.6, [97.2, 97.4], 97.3)]
    assert limits_of(rows)[0] > 96
    figure = drawn(Strip({"": rows}, "accuracy, %"))
    assert marks(figure.axes[0], "<", 6) == [limits_of(rows)[0]]
    assert legend(figure)[-1] == "beyond the axis"
    assert marks(figure.axes[0], "|", 13) == [97.3]  # B's mean
    assert limits_of([StripRow("A", 91.0, [80.0, 80.1])])[0] < 80  # two of three are no exception
    assert limits_of([StripRow("A", None)])[0] < limits_of([StripRow("A", None)])[1]


@pytest.mark.parametrize(("words", "short"), [("", False), (f" {SHORT}", True)])
def test_after_a_shorter_training_marks_are_hollow_and_published_numbers_grey(
    words: str, short: bool, tmp_path: Path
) -> None:
    made = study(row("A", PLAIN, accuracy="99.8"), row("B", CBAM), claims=[claim()])
    found = [*runs(PLAIN + words, [98.9, 99.0, 99.1]), *runs(CBAM + words, [99.4, 99.5, 99.6])]
    inputs = Inputs([], tmp_path)
    inputs.__dict__["measured"] = {made.name: results(made, found)}
    with default_style():
        figure = of_study(inputs, made.name).plot()
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert (SHORT_TRAINING["published"] in legend(figure), dots[0].get_markerfacecolor() == "none") == (short, short)
    (interval,) = (line.get_xdata() for line in figure.axes[0].lines if line.get_linestyle() == "-")
    assert interval[1] - interval[0] == pytest.approx(0.5, abs=0.01)  # +0.25 to +0.75
    assert sum(interval) / 2 == pytest.approx(99.5, abs=0.01)  # B's mean, from A's
    assert figure.get_supxlabel().endswith("Intervals: B against A.")


def test_the_mean_of_first_epochs_is_named_geometric(tmp_path: Path) -> None:
    made = study(measures=["first_epoch"])
    inputs = Inputs([], tmp_path)
    inputs.__dict__["measured"] = {made.name: results(made, [run(PLAIN, seed, [1.0, 2.0, 1.0]) for seed in (0, 1)])}
    with default_style():
        assert "geometric mean of the seeds" in legend(of_study(inputs, made.name).plot())


@pytest.mark.parametrize("narrow", [False, True])
def test_texts_can_be_read_and_do_not_overlap(narrow: bool) -> None:
    rows = [StripRow("A long name, with attention", 99.1, [98.0, 98.5], 98.25, ("99.1", "98.25")), *ROWS]
    figure = drawn(Strip({"CIFAR-10": rows, "SVHN": rows}, "accuracy, %"), narrow)
    every = [*figure.legends[0].get_texts(), *(text for axis in figure.axes for text in [axis.title, *axis.texts])]
    every = [text for text in every if text.get_text()]
    assert all(text.get_fontsize() >= 9 for text in every)
    boxes = [(text.get_text(), text.get_window_extent()) for text in every]
    for at, (text, box) in enumerate(boxes):
        for other, beside in boxes[at + 1 :]:
            assert not box.shrunk(0.98, 0.8).overlaps(beside.shrunk(0.98, 0.8)), (text, other)


def test_without_published_numbers_neither_legend_nor_column_names_them() -> None:
    figure = drawn(Strip({"": ROWS[:1]}, "accuracy, %"))
    assert "published" not in [*legend(figure), *texts(figure.axes[0])]


@pytest.mark.parametrize(("values", "ticks"), [([5.0, 6.0, 7.0], [5, 6, 7]), ([5.0, 6.5, 7.0], [5, 5.5, 6, 6.5, 7])])
def test_an_axis_of_epochs_has_whole_ticks(values: list[float], ticks: list[float]) -> None:
    (axis,) = drawn(Strip({"": [StripRow("A", None, values)]}, "epoch")).axes
    assert [tick for tick in axis.get_xticks() if 5 <= tick <= 7] == ticks
