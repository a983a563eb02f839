"""Files are the same in every drawing, published numbers don't overlap, series differ without colours."""

from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from drawing import drawn, seeds, sources
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

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


def test_the_caption_is_a_text_beside_the_plot_and_texts_in_it_are_texts() -> None:
    with default_style():
        figure = PaperFigure("A title", (6, 4))
        figure.axes[0][0].plot([1, 2], label="line")
        style.legend(figure.axes[0][0])
        figure.describe("It rises.")
        figure.note("A note.", "", "Another.")
        files = figure.files()
    assert files[".txt"] == b"A title. It rises.\nA note. Another.\n"
    assert b">A title</text>" in files[".svg"]
    assert b"note" not in files[".svg"]
    renderer = FigureCanvasAgg(figure.figure).get_renderer()
    legend = figure.axes[0][0].get_legend()
    assert legend is not None
    assert legend.get_window_extent(renderer).y1 < figure.axes[0][0].get_window_extent(renderer).y0


def test_text_is_at_least_9_px_on_a_page_of_720_px(tmp_path: Path) -> None:
    """Whatever is drawn: tick labels, legends, notes, published numbers."""
    records = [*seeds("tsai_fig4", "EM 2", [[50.0]]), *seeds("huang_table2", "CapsNet SVHN", [[50.0, 60.0]])]
    records += [*seeds("jiao_table2", "CapsNet1", [[98.0]]), *seeds("huang_fig10", "CapsNet", [[98.0]])]
    made = sources(tmp_path, *records)
    with default_style():
        for name in ("tsai_fig4", "huang_fig13", "jiao_table2", "huang_fig10", "huang_fig3"):
            figure = drawn(name, made)
            figure.figure.draw_without_rendering()
            pixels = 720 / (72 * figure.figure.get_figwidth())  # of a point
            assert min(text.get_fontsize() for text in figure.figure.findobj(Text) if text.get_text()) * pixels >= 9


def test_the_background_is_white_and_opaque(tmp_path: Path) -> None:
    """So that black text can be read on a dark page."""
    catalogue.draw("huang_fig3", sources(tmp_path), tmp_path)
    with Image.open(tmp_path / "huang_fig3.png") as image:
        assert image.mode in ("RGB", "L")
        assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    card = (tmp_path / "huang_fig3.svg").read_text().partition('<g id="patch_1">')[2].partition("</g>")[0]
    assert "fill: #ffffff" in card
    assert "opacity" not in card


def test_a_published_number_far_from_the_curves_is_an_arrow() -> None:
    axis = PaperFigure("A title", (6, 4)).axes[0][0]
    axis.set_ylim(10, 20)
    style.draw_published(axis, [("24", STYLES[0]), ("80", STYLES[1])], farthest=0.5)
    assert [text.get_text() for text in axis.texts] == ["24", "80 ↑"]
    assert axis.get_ylim()[1] < 26
