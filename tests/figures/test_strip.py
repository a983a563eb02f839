"""The strip plot: marks at their places, numbers beside them, nothing that overlaps or is cut off."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made import CBAM, PLAIN, SHORT, claim, results, row, runs, study

from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.strip import NARROW, SEEDS, WIDE, Strip, StripRow, limits_of, of_study, ticks
from capsexp.figures.strip import SHORT as SHORT_TRAINING
from capsexp.figures.style import THEMES
from capsexp.results.steps import Steps, name_of
from capsexp.study import studies
from capsexp.study.selection import select

ROWS = [
    StripRow("CNN", None, [82.0, 82.5], 82.25, ("", "82.25")),
    StripRow("CapsNet & <co>", 82.95, [83.0, 84.0], 83.5, ("82.95", "83.50")),
    StripRow("DA", 85.0, texts=("85.0", "")),
]
NAME = re.compile(r"\{.*\}")

Attributes = dict[str, str]


def drawn(strip: Strip, suffix: str = "_light.svg") -> tuple[list[tuple[str, Attributes]], list[Attributes]]:
    """The texts and the other elements of a file."""
    elements = [*ElementTree.fromstring(strip.drawing().files()[suffix])]
    named = [(NAME.sub("", element.tag), element) for element in elements]
    texts = [("".join(element.itertext()), element.attrib) for name, element in named if name == "text"]
    return texts, [{"name": name, **element.attrib} for name, element in named if name != "text"]


def published(marks: list[Attributes], theme: str = "light") -> list[float]:
    """Where the ticks of published numbers are, without that of the legend."""
    return [float(mark["x1"]) for mark in marks if mark.get("stroke") == THEMES[theme].published][1:]


def test_a_row_has_a_tick_a_dot_a_seed_and_their_mean_with_both_numbers() -> None:
    texts, marks = drawn(Strip({"": ROWS}, "accuracy, %"))
    shown = [text for text, _ in texts]
    numbers = ["82.25", "82.95", "83.50", "85.0"]  # as printed, if it is known
    assert [text for text in shown if text in numbers] == numbers
    assert {"CNN", "CapsNet & <co>", "DA", "accuracy, %", "published", "measured", *SEEDS.values()} <= {*shown}
    (first, last), (low, high) = published(marks), limits_of(ROWS)
    scale = (last - first) / (85.0 - 82.95)
    dots = [float(mark["cx"]) for mark in marks if mark["name"] == "circle"][1:]
    assert [82.95 + (x - first) / scale for x in dots] == pytest.approx([82.0, 82.5, 83.0, 84.0], abs=0.01)
    means = [float(mark["x1"]) for mark in marks if mark.get("stroke") == THEMES["light"].ink][1:]
    assert [82.95 + (x - first) / scale for x in means] == pytest.approx([82.25, 83.5], abs=0.01)
    assert (low, high) == pytest.approx((82 - 0.18, 85 + 0.18))


def test_of_a_study_of_costs_the_seconds_of_its_steps_are_drawn(tmp_path: Path) -> None:
    study = studies.load("tsai_fig4_cost")
    name = name_of(next(one for one in study.claims if one.measure == "inference"), select(study).blocks[0])
    seconds = {row.name: [1.0, 2.0, 9.0] for row in study.rows}
    drawn = of_study(Inputs([], tmp_path, steps=Steps("a processor", {name: seconds})), study.name).files()
    assert b">2.00<" in drawn["_light.svg"]
    assert b"Here: processor time of 3 rounds on a processor." in drawn["_light.svg"]
    with pytest.raises(UndrawnError, match="make bench-claims"):
        of_study(Inputs([], tmp_path), study.name)


def test_two_panels_stand_beside_each_other_and_on_a_narrow_screen_below() -> None:
    strip = Strip({"CIFAR-10": ROWS, "SVHN": ROWS, "MNIST": ROWS}, "accuracy, %")
    for suffix, beside, width in (("_light.svg", True, WIDE), ("_narrow_light.svg", False, NARROW)):
        texts, _ = drawn(strip, suffix)
        places = {text: (float(at["x"]), float(at["y"])) for text, at in texts}
        assert (places["CIFAR-10"][1] == places["SVHN"][1]) == beside
        assert places["MNIST"][1] > places["SVHN"][1]
        root = ElementTree.fromstring(strip.drawing().files()[suffix])
        assert root.attrib["width"] == str(width)
        assert all(float(at["y"]) < float(root.attrib["height"]) for _, at in texts)


def test_a_seed_far_below_is_an_arrow_and_the_others_can_be_told_apart() -> None:
    rows = [StripRow("A", 99.7, [17.95, 97.0], 57.48), StripRow("B", 99.6, [97.2, 97.4], 97.3)]
    assert limits_of(rows)[0] > 96
    texts, marks = drawn(Strip({"": rows}, "accuracy, %"))
    assert sum(mark["name"] == "path" for mark in marks) == 2  # in the legend, too
    assert "beyond the axis" in [text for text, _ in texts]
    assert sum(mark.get("stroke") == THEMES["light"].ink for mark in marks) == 2  # the legend's mean, and B's
    assert limits_of([StripRow("A", 91.0, [80.0, 80.1])])[0] < 80  # two of three are no exception
    assert limits_of([StripRow("A", None)])[0] < limits_of([StripRow("A", None)])[1]


def test_after_a_shorter_training_marks_are_hollow_and_published_numbers_grey(tmp_path: Path) -> None:
    made = study(row("A", PLAIN, accuracy="99.8"), row("B", CBAM), claims=[claim()])
    inputs, theme = Inputs([], tmp_path), THEMES["light"]
    for words, short in (("", False), (f" {SHORT}", True)):
        found = [*runs(PLAIN + words, [98.9, 99.0, 99.1]), *runs(CBAM + words, [99.4, 99.5, 99.6])]
        inputs.__dict__["measured"] = {made.name: results(made, found)}
        svg = of_study(inputs, made.name).files()["_light.svg"].decode()
        assert (SHORT_TRAINING in svg, theme.published in svg, f'fill="{theme.paper}"' in svg) == (
            short,
            not short,
            short,
        )
        (low, high) = re.findall(r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)" [^>]*width="1.5"', svg)[1]
        dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', svg)][1:]
        scale = (dots[2] - dots[0]) / 0.2  # px a point
        assert (float(high) - float(low)) / scale == pytest.approx(0.5, abs=0.01)  # +0.25 to +0.75
        assert (float(high) + float(low)) / 2 == pytest.approx(dots[4], abs=0.2)  # B's mean, from A's


@pytest.mark.parametrize("suffix", ["_light.svg", "_narrow_light.svg"])
def test_texts_can_be_read_and_do_not_overlap(suffix: str) -> None:
    name = "A very long name of a network, with attention"
    rows = [StripRow(name, 99.1, [98.0, 98.5], 98.25, ("99.1", "98.25")), *ROWS]
    texts, _ = drawn(Strip({"CIFAR-10": rows, "SVHN": rows}, "accuracy, %"), suffix)
    assert all(int(at["font-size"]) >= 11 for _, at in texts)
    boxes = []
    for text, at in texts:
        size, x, wide = int(at["font-size"]), float(at["x"]), 0.56 * int(at["font-size"]) * len(text)
        left = x - {"end": wide, "middle": wide / 2}.get(at.get("text-anchor", ""), 0.0)
        boxes.append((text, left, left + wide, float(at["y"]) - 0.8 * size, float(at["y"])))
    for at, (text, left, right, top, bottom) in enumerate(boxes):
        for other, begin, end, above, below in boxes[at + 1 :]:
            assert right <= begin or end <= left or bottom <= above or below <= top, (text, other)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (82.1, 85.9, [83, 84, 85]),
        (-5, 5, [-4, -2, 0, 2, 4]),
        (92.4, 94.1, [92.5, 93, 93.5, 94]),
        (0, 1000, None),
        (89.1, 89.95, [89.2, 89.4, 89.6, 89.8]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float] | None) -> None:
    assert ticks(low, high) == (expected or [0, 200, 400, 600, 800, 1000])


def test_without_published_numbers_neither_legend_nor_column_names_them() -> None:
    texts, _ = drawn(Strip({"": ROWS[:1]}, "accuracy, %"))
    assert "published" not in [text for text, _ in texts]
