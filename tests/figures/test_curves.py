"""Curves, bars and points have the records' numbers, the published numbers, and footnotes."""

from itertools import chain
from pathlib import Path

import pytest
import torch
from drawing import ATTENTION, curve, drawn, everything, labels, seeds, sources, texts, words
from made import run
from matplotlib.axes import Axes

from capsexp.figures import catalogue, huang
from capsexp.figures.style import PaperFigure
from capsexp.study import studies
from capsexp.study.selection import select

SHORT = "budget.epochs=2"
TABLE2 = {"huang_fig11": "CIFAR-10", "huang_fig12": "Fashion-MNIST", "huang_fig13": "SVHN"}


def only(figure: PaperFigure) -> Axes:
    """The axes of a figure with one plot."""
    ((axis,),) = figure.axes
    return axis


def test_squash_functions_are_those_of_the_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axis = only(drawn("huang_fig3", sources(tmp_path)))
    lengths, one = curve(axis, "constant 1.0")
    _, half = curve(axis, "constant 0.5")
    at = lengths.index(1.0)
    assert (one[at], half[at]) == pytest.approx((1 / 2, 2 / 3))
    assert one == pytest.approx([x * x / (1 + x * x) for x in lengths])
    monkeypatch.setattr(huang, "squash", lambda s, constant: torch.zeros_like(s))
    assert not any(curve(only(drawn("huang_fig3", sources(tmp_path))), "constant 1.0")[1])


def test_a_curve_is_the_mean_over_seeds_and_its_band_the_standard_deviation(tmp_path: Path) -> None:
    axis = only(drawn("huang_fig13", sources(tmp_path, *seeds("huang_table2", "CapsNet SVHN", [[10, 20], [20, 60]]))))
    epochs, accuracies = curve(axis, "CapsNet (n = 2)")
    assert (epochs[:2], accuracies[:2]) == ([1.0, 2.0], [15.0, 40.0])
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == pytest.approx((15 - 50**0.5, 40 + 800**0.5))


def test_one_seed_has_no_band_and_a_note(tmp_path: Path) -> None:
    figure = drawn("huang_fig13", sources(tmp_path, *seeds("huang_table2", "DA-CapsNet SVHN", [[10.0, 20.0]])))
    assert labels(only(figure)) == ["DA-CapsNet (n = 1)"]
    assert not only(figure).collections
    assert "n = 1: one run" in everything(figure)


@pytest.mark.parametrize("name", TABLE2)
def test_every_published_number_is_drawn_with_runs_or_without(tmp_path: Path, name: str) -> None:
    rows = [row for row in studies.load("huang_table2").rows if row.labels[1] == TABLE2[name]]
    axis = only(drawn(name, sources(tmp_path, *seeds("huang_table2", f"CapsNet {TABLE2[name]}", [[40.0]]))))
    printed = [row.published["accuracy"] for row in rows]
    assert sorted(texts(axis)) == sorted(printed)
    heights = [line.get_ydata()[0] for line in axis.lines if list(line.get_xdata()) == [0, 1]]
    assert heights == [float(text) for text in printed]
    legend = axis.get_legend()
    assert legend is not None
    named = {text.get_text().partition(" (")[0] for text in legend.get_texts()}
    assert named == set(ATTENTION)  # one style a level
    low, high = axis.get_ylim()
    assert low < 40
    assert high > max(heights)


def test_reduced_training_and_other_data_stand_beside_the_names(tmp_path: Path) -> None:
    note = "first 4,434 of 73,257 training digits"
    found = [
        *seeds("huang_table2", "CapsNet SVHN", [[10.0] * 100]),
        *seeds("huang_table2", "CapsNet+Conv SVHN", [[10.0, 20.0]], SHORT),
        *seeds("huang_table2", "DA-CapsNet SVHN", [[10.0] * 100], note=note),
    ]
    figure = drawn("huang_fig13", sources(tmp_path, *found))
    assert labels(only(figure)) == [
        "CapsNet (n = 1), all 100 epochs, bf16",
        f"DA-CapsNet (n = 1), {note}, bf16",
    ]
    assert "No finished runs of CapsNet+Caps SVHN." in figure.notes
    assert "Not drawn, as they were trained for fewer epochs: CapsNet+Conv SVHN." in figure.notes


def test_a_curve_has_one_setting_and_one_protocol(tmp_path: Path) -> None:
    base = words("huang_table2", "CapsNet SVHN")
    found = [
        *seeds("huang_table2", "CapsNet SVHN", [[30.0, 40.0], [32.0, 42.0]], SHORT),
        run(f"{base} budget.epochs=1", 0, [99.0]),
        run(f"{base} {SHORT} protocol=heldout", 0, [90.0, 90.0], tested=95.0),
        run(f"{base} {SHORT}", 2, [0.0, 0.0], failed=True),
        run(f"{base} {SHORT}", 0, [70.0, 70.0], precision="float32"),
    ]
    axis = only(drawn("huang_fig13", sources(tmp_path, *found)))
    assert curve(axis, "CapsNet (") == ([1.0, 2.0], [31.0, 41.0])
    assert labels(axis) == ["CapsNet (n = 2)"]


def test_long_curves_may_begin_below_the_plot(tmp_path: Path) -> None:
    found = seeds("huang_table2", "CapsNet SVHN", [[1.0] * 25 + [80.0] * 75])
    figure = drawn("huang_fig13", sources(tmp_path, *found))
    assert only(figure).get_ylim()[0] > 75
    assert "may lie below the plot" in everything(figure)
    short = drawn("huang_fig13", sources(tmp_path / "b", *seeds("huang_table2", "CapsNet SVHN", [[1, 80]], SHORT)))
    assert only(short).get_ylim()[0] < 1
    assert "below the plot" not in everything(short)


def test_bars_are_mean_first_epochs_beside_the_published_ones(tmp_path: Path) -> None:
    accuracies = [[90.0, 99.0, 98.0], [99.0, 98.0, 98.0], [90.0, 98.0, 99.0]]
    found = [*seeds("huang_fig10", "CapsNet", accuracies), *seeds("huang_fig10", "DA-CapsNet", accuracies[:1])]
    figure = drawn("huang_fig10", sources(tmp_path, *found))
    left, right = figure.axes[0]
    assert [bar.get_height() for bar in right.patches] == [2.0, 25, 16, 13, 2.0, 10]  # ours, published, …
    assert texts(right) == ["25", "16", "13", "10"]
    assert [tick.get_text().replace("\n", "") for tick in right.get_xticklabels()] == list(ATTENTION)
    circles = [list(line.get_ydata()) for line in right.lines if line.get_marker() == "o"]
    assert circles == [[2, 1, 3], [2]]
    assert labels(left) == ["CapsNet (n = 3)", "DA-CapsNet (n = 1)"]


# tsai


def test_points_by_iteration_are_joined_only_within_a_setting(tmp_path: Path) -> None:
    found = [
        *seeds("tsai_fig4", "Inverted 1", [[50.0, 60.0], [50.0, 62.0]], SHORT),
        *seeds("tsai_fig4", "Inverted 2", [[70.0, 60.0]], SHORT),
        *seeds("tsai_fig4", "Inverted 4", [[80.0]], "budget.epochs=1"),
        *seeds("tsai_fig4_ablation", "A 5", [[10.0, 10.0]], SHORT),
    ]
    figure = drawn("tsai_fig4", sources(tmp_path, *found))
    accuracy = figure.axes[1][1]
    joined = [line for line in accuracy.lines if line.get_marker() == "^" and len(line.get_xdata()) > 1]
    assert [list(line.get_ydata()) for line in joined if list(line.get_xdata()) != [0, 1]] == [[61.0, 70.0]]
    assert accuracy.get_legend_handles_labels()[1] == [  # without those that have no run
        "inverted routing (n = 2, 1, 1), 2 of 350 epochs, bf16",
        "inverted routing (n = 2, 1, 1), 1 of 350 epochs, bf16",
        "A, no LayerNorm (n = 1), 2 of 350 epochs, bf16",
        "B, sequential (n = 2), 2 of 350 epochs, bf16",  # the first iteration is the same run
    ]
    (legend,) = figure.figure.legends
    routings = ["inverted routing", "A, no LayerNorm", "B, sequential"]
    assert [text.get_text() for text in legend.get_texts()][-3:] == routings
    assert "1 of 350 epochs, bf16 (Inverted 4)" in everything(figure)


def test_tsais_table_1_and_uniform_prediction_are_drawn(tmp_path: Path) -> None:
    figure = drawn("tsai_fig4", sources(tmp_path, *seeds("tsai_fig4", "EM 2", [[50.0]], "budget.epochs=1")))
    (*first, inverted, accuracy, _, _) = chain(*figure.axes)
    top = [*first, inverted]
    printed = [[text for text in texts(axis) if text != "no runs"] for axis in top]
    assert printed == [
        ["84.08 ↑"],
        ["82.19 ↑"],
        ["85.17 ↑"],
    ]  # far above the plot, which keeps its height for the curves
    assert top[1].get_ylim()[1] < 60
    assert sorted(texts(accuracy)) == ["82.19 ↑", "84.08 ↑", "85.17 ↑"]
    assert '"a uniform prediction", 10 %' in everything(figure)
    assert ["no runs" in texts(axis) for axis in top] == [True, False, True]
    assert len({axis.get_ylim() for axis in top}) == 1
    assert top[1].get_legend_handles_labels()[1] == ["2 iterations (n = 1)"]


def test_a_published_number_near_the_curves_extends_all_scales(tmp_path: Path) -> None:
    found = seeds("tsai_fig4", "EM 2", [[60.0] * 20 + [83.5] * 20], "budget.epochs=40")
    top = [*chain(*drawn("tsai_fig4", sources(tmp_path, *found)).axes)][:3]
    (limits,) = {axis.get_ylim() for axis in top}
    assert limits[1] > 85.17
    assert [[text for text in texts(axis) if text != "no runs"] for axis in top] == [["84.08"], ["82.19"], ["85.17"]]


def test_a_marker_has_one_meaning_in_a_figure(tmp_path: Path) -> None:
    found = [*seeds("tsai_fig4", "EM 2", [[50.0]]), *seeds("tsai_fig4", "Inverted 1", [[50.0]])]
    found += seeds("tsai_fig4_ablation", "A 1", [[50.0]])
    *above, accuracy, _, _ = chain(*drawn("tsai_fig4", sources(tmp_path, *found)).axes)
    by_epoch = {str(line.get_marker()) for axis in above for line in axis.lines} - {"None"}
    assert {"$1$", "$2$"} <= by_epoch
    assert not by_epoch & {str(line.get_marker()) for line in accuracy.lines} - {""}


def test_memory_is_the_devices_or_on_a_cpu_the_processes(tmp_path: Path) -> None:
    found = seeds("tsai_fig4_cost", "Inverted 3", [[50.0]])
    memory, time = drawn("tsai_fig4", sources(tmp_path, *found)).axes[2]
    assert "device" in memory.get_ylabel()
    assert 1000.0 in [y for line in memory.lines for y in line.get_ydata()]
    assert 128.0 in [y for line in time.lines for y in line.get_ydata()]  # 10 s for 10,000 images, of 128
    on_cpu = seeds("tsai_fig4_cost", "Inverted 3", [[50.0]], peak_memory_mb={"device": None, "host": 2000.0})
    memory = drawn("tsai_fig4", sources(tmp_path / "b", *on_cpu)).axes[2][0]
    assert "no GPU" in memory.get_ylabel()
    assert 2000.0 in [y for line in memory.lines for y in line.get_ydata()]


def test_overlaid_digits(tmp_path: Path) -> None:
    figure = drawn("tsai_fig5", sources(tmp_path, *seeds("tsai_fig5", "CapsNet vector", [[50.0], [60.0]])))
    left, memory, _ = figure.axes[0]
    assert labels(left) == ["CapsNet vector, 42.48M (n = 2)"]
    assert set(texts(left)) == {"83.39", "80.59", "85.74", "79.81", "84.84"}
    assert [bar.get_width() for bar in memory.patches] == [1000.0]
    assert len(memory.get_yticklabels()) == 5


# jiao


def test_table_ii_has_published_beside_measured(tmp_path: Path) -> None:
    found = [
        *seeds("jiao_table2", "CapsNet1", [[98.0, 99.0, 98.0], [98.0, 99.2, 98.0]]),
        *seeds("jiao_table2", "CapsNet2_CBAM", [[97.0, 98.0]], SHORT),
    ]
    figure = drawn("jiao_table2", sources(tmp_path, *found))
    accuracy, first = figure.axes[0]
    places = [
        (float(line.get_xdata()[0]), line.get_ydata()[0]) for line in accuracy.lines if len(line.get_xdata()) == 1
    ]
    assert {(99.70999908, 0), (99.61000061, 3)} <= set(places)
    assert (pytest.approx(99.1), 0) in places
    assert next(tick.get_text() for tick in accuracy.get_yticklabels()) == "CapsNet1, all 250 epochs, bf16"
    assert texts(first) == ["≥ 2"]  # with an arrow: the maximum is in the last epoch
    assert first.get_xscale() == "log"
    assert "CapsNet1: 99.10 % (2 seeds) first in epoch 2; published 99.71 % first in epoch 133." in figure.alt
    assert "CapsNet2_CBAM: 98.00 % (1 seed) first in epoch ≥ 2; published 99.61 % first in epoch 42." in figure.alt
    assert "CapsNet5_CBAM: no runs; published: not reported." in figure.alt


def test_first_epochs_are_drawn_where_some_are_more_than_bounds(tmp_path: Path) -> None:
    found = seeds("jiao_table2", "CapsNet1", [[98.0, 99.0]], SHORT)
    assert len(drawn("jiao_table2", sources(tmp_path, *found)).axes[0]) == 1
    rising = sources(tmp_path / "b", *seeds("huang_fig10", "CapsNet", [[98.0, 99.0]], SHORT))
    figure, lacks = catalogue.drawing("huang_fig10", rising)
    assert (figure, lacks[-1].what) == (None, "every maximum is in the last epoch trained")


def test_a_lower_bound_near_the_edge_is_drawn(tmp_path: Path) -> None:
    found = seeds("jiao_table2", "CapsNet1", [[98.0] * 249 + [99.0]])
    found += seeds("jiao_table2", "CapsNet2", [[98.0, 99.0, 98.0]])
    figure = drawn("jiao_table2", sources(tmp_path, *found))
    first = figure.axes[0][1]
    (bound,) = first.texts
    assert bound.get_text() == "≥ 250"
    figure.figure.draw_without_rendering()
    assert bound.get_window_extent().x1 > first.get_window_extent().x1
    assert bound.get_window_extent().x1 < figure.figure.bbox.x1


def test_seeds_of_an_unstable_cell_stand_alone(tmp_path: Path) -> None:
    found = seeds("jiao_table2", "CapsNet5", [[17.95], [96.2], [97.0]])
    for row in ("CapsNet1", "CapsNet2", "CapsNet3", "CapsNet4"):
        found += seeds("jiao_table2", row, [[97.0], [97.1], [97.2]])
    figure = drawn("jiao_table2", sources(tmp_path, *found))
    axis = figure.axes[0][0]
    assert texts(axis) == ["← 17.95"]
    assert axis.get_xlim()[0] > 95
    at = [list(line.get_xdata()) for line in axis.lines if line.get_ydata()[0] in (8, 8.25)]
    assert at == [[99.65000153], [96.2, 97.0]]  # published, and two seeds: no mean
    assert any("CapsNet5: unstable, 17.95, 96.20, 97.00 %" in sentence for sentence in figure.alt)


# ou


def test_routing_against_back_propagation(tmp_path: Path) -> None:
    found = [
        *seeds("ou_backprop", "Routing alone", [[50.0, 60.0]], SHORT),
        *seeds("ou_backprop", "Last iteration", [[55, 65]], SHORT),
    ]
    figure = drawn("ou_backprop", sources(tmp_path, *found))
    assert curve(only(figure), "Routing alone") == ([1.0, 2.0], [50.0, 60.0])
    assert labels(only(figure)) == ["Routing alone (n = 1)", "Last iteration (n = 1)"]
    assert "Routing alone: 50.0 % after epoch 1, 60.0 % after epoch 2 (1 seed)." in figure.alt
    assert "No finished runs of Routing and back-propagation." in figure.notes


# Missing runs

STUDIES = {
    "jiao_table2": ["jiao_table2"],
    "ou_backprop": ["ou_backprop"],
    "huang_fig8": ["huang_fig8"],
    "huang_fig10": ["huang_fig10"],
    **{key: ["huang_table2"] for key in TABLE2},
    "huang_fig14": ["huang_fig14"],
    "tsai_fig4": ["tsai_fig4", "tsai_fig4_ablation", "tsai_fig4_cost"],
    "tsai_fig5": ["tsai_fig5"],
    "ou_traversal_mnist": ["ou_traversal"],
    "ou_traversal_fashion_mnist": ["ou_traversal"],
}


def test_all_figures_are_in_the_table_above() -> None:
    assert catalogue.FIGURES.keys() == {"answer", "huang_fig3", "huang_fig7", *STUDIES}
    named = {figure for name in studies.names() for figure in studies.load(name).figures}
    assert named < catalogue.FIGURES.keys()


@pytest.mark.parametrize("name", STUDIES)
def test_without_runs_a_figure_names_them_and_a_command_that_makes_them(tmp_path: Path, name: str) -> None:
    figure, missing = catalogue.drawing(name, sources(tmp_path, typed=["paths.results=elsewhere"]))
    assert figure is None
    assert [lack.command.split("+study=")[1].split()[0] for lack in missing] == STUDIES[name]
    for lack in missing:
        python, m, capsexp, study, *typed = lack.command.split()
        assert (python, m, capsexp) == ("python", "-m", "capsexp")
        assert typed[-2:] == ["seed=0,1,2", "paths.results=elsewhere"]
        whole = studies.load(study.removeprefix("+study="))
        made = {frozenset(run.overrides) for run in select(whole, typed[:-2]).runs if run.selected}
        named = lack.what.removeprefix("no finished runs of ").split(", ")
        rows = [row for row in whole.rows if row.name in named]
        assert len(rows) == len(named)
        assert {frozenset(words) for row in rows for words in row.combinations()} == made
