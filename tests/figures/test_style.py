"""Files are the same in every drawing, published numbers don't overlap, series differ without colours."""

from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from drawing import seeds, sources
from matplotlib.backends.backend_agg import FigureCanvasAgg

from capsexp.figures import catalogue, style
from capsexp.figures.style import STYLES, PaperFigure, default_style, spaced


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.1, 0.52, 0.54], [0.1, 0.48, 0.58]),
        ([0.2, 0.29, 0.3], [0.16333, 0.26333, 0.36333]),  # the first joins the group of the others
        ([], []),
    ],
)
def test_places_are_moved_as_little_as_possible(places: list[float], expected: list[float]) -> None:
    assert spaced(places, 0.1) == pytest.approx(expected, abs=1e-4)


def test_places_keep_order_distance_and_middle() -> None:
    places = sorted([0.83, 0.81, 0.8, 0.79, 0.3, 0.31, 0.05, 0.99])
    moved = spaced(places, 0.05)
    assert all(b - a > 0.05 - 1e-9 for a, b in pairwise(moved))
    assert sum(moved) == pytest.approx(sum(places))


def test_series_differ_in_more_than_colour() -> None:
    for part in ("color", "marker", "line", "hatch"):
        assert len({str(getattr(style, part)) for style in STYLES}) == len(STYLES)


def test_colours_differ_in_grey_too() -> None:
    """The four of huang's networks; six can't all lie far apart."""
    lightness = []
    for series in STYLES[:4]:
        red, green, blue = (int(series.color[i : i + 2], 16) for i in (1, 3, 5))
        lightness.append(0.299 * red + 0.587 * green + 0.114 * blue)
    assert all(b - a > 15 for a, b in pairwise(sorted(lightness)))


def test_the_same_records_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the user's matplotlib is set to, and whenever it is."""
    records = seeds("huang_table2", "CapsNet SVHN", [[50.0, 60.0], [52.0, 61.0]])
    drawn = []
    for name in ("a", "b"):
        assert catalogue.draw("huang_fig13", sources(tmp_path / name, *records), tmp_path / name)[0]
        drawn.append([(tmp_path / name / f"huang_fig13{suffix}").read_bytes() for suffix in style.SUFFIXES])
        monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)
        monkeypatch.setitem(matplotlib.rcParams, "svg.hashsalt", None)
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert drawn[0] == drawn[1]
    assert b"1970" not in drawn[0][1]
    assert b'clip-path="url(#clip1)"' in drawn[0][1]  # matplotlib's own ids differ from process to process


def test_notes_are_below_the_plot_whatever_their_number() -> None:
    with default_style():
        heights = []
        for number in (1, 12):
            figure = PaperFigure("A title", (6, 4))
            figure.axes[0][0].plot([1, 2], label="line")
            style.legend(figure.axes[0][0])
            figure.note(*["A note of some words."] * number)
            figure.files()
            (note,) = (text for text in figure.figure.texts if "note" in text.get_text())
            renderer = FigureCanvasAgg(figure.figure).get_renderer()
            legend = figure.axes[0][0].get_legend()
            assert legend is not None
            assert note.get_window_extent(renderer).y0 >= -1
            assert note.get_window_extent(renderer).y1 <= legend.get_window_extent(renderer).y0 + 1
            assert legend.get_window_extent(renderer).y1 < figure.axes[0][0].get_window_extent(renderer).y0
            heights.append(figure.axes[0][0].get_window_extent(renderer).height)
        assert heights[0] == pytest.approx(heights[1], rel=0.02)
