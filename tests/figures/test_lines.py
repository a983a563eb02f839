"""Lines and bands have the records' numbers, of one setting; missing runs are named with a command."""

from pathlib import Path

import numpy as np
import pytest
from drawing import inputs, legend, plot, seeds, words
from made import run
from matplotlib.axes import Axes

from capsexp.figures import catalogue
from capsexp.figures.inputs import UndrawnError
from capsexp.figures.style import STYLES, THEMES
from capsexp.study import studies
from capsexp.study.selection import LAPTOP, PAPER


def curve(axis: Axes, name: str) -> tuple[list[float], list[float]]:
    """x and y of a line."""
    (line,) = (line for line in axis.lines if line.get_label() == name)
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def test_a_curve_is_the_mean_over_seeds_and_its_band_the_standard_deviation(tmp_path: Path) -> None:
    found = seeds("huang_table2", "CapsNet CIFAR-10", [[10, 20], [20, 60]])
    figure = plot("huang_fig11", inputs(tmp_path, *found))
    (axis,) = figure.axes
    assert curve(axis, "CapsNet") == ([*range(1, 11)], [15.0] + 9 * [40.0])
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == pytest.approx((15 - 50**0.5, 40 + 800**0.5))
    below = " ".join(figure.get_suptitle().splitlines()[1:])
    setting = studies.load("huang_table2").settings[LAPTOP]
    assert below == f"mean ± standard deviation over 2 runs; {setting.title}"


def test_a_figure_has_one_protocol_and_the_setting_of_the_studys_answer(tmp_path: Path) -> None:
    found = [
        *seeds("huang_table2", "CapsNet CIFAR-10", [[30.0, 40.0], [32.0, 42.0]]),
        *seeds("huang_table2", "DA-CapsNet CIFAR-10", [[50.0, 60.0]]),
        run(f"{words('huang_table2', 'CapsNet CIFAR-10')} protocol=heldout", 0, [90.0, 90.0], tested=95.0),
        run(words("huang_table2", "CapsNet CIFAR-10"), 2, [0.0, 0.0], failed=True),
    ]
    made = inputs(tmp_path, *found, typed=["paths.results=here"])
    figure = plot("huang_fig11", made)
    assert legend(figure) == ["CapsNet", "DA-CapsNet"]
    assert curve(figure.axes[0], "CapsNet")[1][:2] == [31.0, 41.0]
    (line,) = catalogue.drawing("huang_fig11", made).missing
    assert line == (
        "no finished runs of CapsNet+Conv CIFAR-10, CapsNet+Caps CIFAR-10: "
        "capsexp reproduce huang_table2 --budget=laptop paths.results=here"
    )
    whole = seeds("huang_table2", "CapsNet+Conv CIFAR-10", [[10.0], [11.0]], PAPER)
    assert legend(plot("huang_fig11", inputs(tmp_path, *found, *whole))) == ["CapsNet", "DA-CapsNet"]
    whole += seeds("huang_table2", "CapsNet CIFAR-10", [[10.0], [11.0]], PAPER)  # then a claim is judged there
    assert legend(plot("huang_fig11", inputs(tmp_path, *found, *whole))) == ["CapsNet", "CapsNet+Conv"]


def test_of_a_long_training_the_beginning_and_single_epochs_may_lie_below(tmp_path: Path) -> None:
    jumped = [1.0] * 25 + [80.0] * 74 + [20.0]
    (axis,) = plot("huang_fig11", inputs(tmp_path, *seeds("huang_table2", "CapsNet CIFAR-10", [jumped], PAPER))).axes
    assert axis.get_ylim()[0] > 75
    short = seeds("huang_table2", "CapsNet CIFAR-10", [[1, 80]])
    (axis,) = plot("huang_fig11", inputs(tmp_path / "b", *short)).axes
    assert axis.get_ylim()[0] < 1


def test_the_first_epochs_of_pairs_are_beside_the_printed_ones_with_the_change(tmp_path: Path) -> None:
    curves = {"CapsNet1": (20, 45), "CapsNet1_CBAM": (40, 90), "CapsNet2": (7, 7)}
    found = [
        one
        for name, firsts in curves.items()
        for one in seeds("jiao_table2", name, [[1.0] * (first - 1) + [9.0, 1.0] for first in firsts])
    ]
    printed, measured = plot("jiao_table2", inputs(tmp_path, *found)).axes
    assert [list(line.get_xdata()) for line in printed.lines[:2]] == [[133.0], [100.0]]
    assert [list(line.get_xdata()) for line in measured.lines[:3]] == [[20.0, 45.0], [40.0, 90.0], [7.0, 7.0]]
    changes = [[text.get_text() for text in axis.texts if text.get_text()] for axis in (printed, measured)]
    assert changes == [["−25 %", "−62 %", "−37 %", "−39 %", "no pair"], ["+100 %", *["no pair"] * 4]]
    assert printed.get_xlim()[0] == 0


def test_numbers_by_iterations_have_the_same_drawing(tmp_path: Path) -> None:
    found = [
        *seeds("tsai_fig4", "Inverted 1", [[50.0, 60.0], [50.0, 62.0]]),
        *seeds("tsai_fig4", "Inverted 3", [[70.0, 60.0]]),
        *seeds("tsai_fig4_ablation", "A 5", [[10.0, 10.0]]),
    ]
    plots = {axis.get_title(): axis for axis in plot("tsai_fig4", inputs(tmp_path, *found)).axes}
    assert [*plots] == ["inverted routing", "accuracy", "ablations"]
    assert curve(plots["inverted routing"], "3 it.") == ([1.0, 2.0, 3.0, 4.0, 5.0], [70.0] + 4 * [60.0])
    for name in ("accuracy", "ablations"):
        assert curve(plots[name], "inverted routing") == ([1.0, 3.0], [61.0, 70.0])
    assert curve(plots["ablations"], "A, no LayerNorm") == ([5.0], [10.0])
    names = plots["ablations"].get_legend()
    assert "inverted routing" in [text.get_text() for text in names.get_texts()]


def _contrast(*colours: str) -> float:
    """Of two colours, as WCAG 2.2 has it."""
    linear = [np.array([int(one[at : at + 2], 16) / 255 for at in (1, 3, 5)]) for one in colours]
    light = [
        np.where(one <= 0.04045, one / 12.92, ((one + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
        for one in linear
    ]
    return float((max(light) + 0.05) / (min(light) + 0.05))


@pytest.mark.parametrize(("name", "page"), [("light", "#ffffff"), ("dark", "#0d1117")])
def test_each_colour_of_a_series_can_be_seen_and_none_is_that_of_published_numbers(name: str, page: str) -> None:
    theme = THEMES[name]
    assert all(_contrast(colour, page) >= 3 for colour in (*theme.series, theme.published, theme.soft))
    assert theme.published not in theme.series


def test_series_differ_in_more_than_colour() -> None:
    for part in ("color", "marker", "linestyle"):
        assert len({str(style[part]) for style in STYLES}) == len(STYLES)


@pytest.mark.parametrize("name", catalogue.FUNCTIONS)
def test_without_runs_a_figure_names_a_command_that_makes_them(tmp_path: Path, name: str) -> None:
    with pytest.raises(UndrawnError) as raised:
        catalogue.drawing(name, inputs(tmp_path))
    commands = [str(line).rpartition(": capsexp reproduce ")[2] for line in raised.value.args]
    assert {*commands} <= {f"{study} --budget=laptop" for study in studies.names()}


def test_the_figures_that_studies_name_are_in_the_catalogue() -> None:
    named = {figure for name in studies.names() for figure in studies.load(name).figures}
    assert named == catalogue.FUNCTIONS.keys()
