"""The claims as a picture: every tested claim has a row, in the order of verdicts, at its place on the axis."""

import dataclasses
import re
from xml.etree import ElementTree

import pytest
from made import CBAM, PLAIN, claim, results, row, run, runs, study

from capsexp.figures.forest import LETTER, Theme, anchor, forest, shorter
from capsexp.results.collect import Results
from capsexp.study.studies import Claim

CENTER, HALF = 0.53 * 800 - 120 + 12 + 108, 108  # px of the axis of points


def made(*claims: Claim, whole: bool = True) -> Results:
    """A study in which B is 2 points better than A, after the whole training or a part."""
    part = "" if whole else " budget.epochs=2"
    found = [*runs(f"{PLAIN}{part}", [90.0, 90.1, 90.2]), *runs(f"{CBAM}{part}", [92.0, 92.1, 92.2])]
    rows = [row("A", PLAIN, accuracy="90.0"), row("B", CBAM, accuracy="92.0"), row("C", None)]
    return results(study(*rows, claims=claims), found)


def texts(picture: str) -> list[str]:
    """What is written, from top to bottom."""
    root = ElementTree.fromstring(picture)
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def circles(picture: str) -> list[dict[str, str]]:
    """The dots of rows; two stand in the legend."""
    return [element.attrib for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("circle")][2:]


def test_claims_stand_by_verdict_with_the_effect_on_the_axis() -> None:
    wrong = claim(text="A is better", pairs=[["B", "A"]])
    found = made(wrong, claim(claimed="+3.5"), claim(text="C is better", pairs=[["A", "C"]]))
    picture = forest([found])
    written = texts(picture)
    order = [written.index(text) for text in ("supported", "B is better", "contradicted", "A is better")]
    assert order == sorted(order)
    assert "C is better" not in written
    assert written[0] == "1 supported"
    assert [text for text in written if text.startswith("+2.00 ±")]
    assert [float(one["cx"]) for one in circles(picture)] == [
        pytest.approx(CENTER + HALF * effect / 8, abs=0.1) for effect in (2, -2)
    ]
    tick = re.search(r'<path d="M([\d.]+) [\d.]+L\1 [\d.]+" class="claimed"/>', picture.partition("B is better")[2])
    assert tick
    assert float(tick[1]) == pytest.approx(CENTER + HALF * 3.5 / 8, abs=0.1)
    assert picture.count('class="side"') == 2  # in the legend, and of A is better


@pytest.mark.parametrize("whole", [True, False])
def test_a_dot_is_hollow_after_shorter_training_and_the_verdict_so_far(whole: bool) -> None:
    picture = forest([made(claim(), whole=whole)])
    (dot,) = circles(picture)
    assert ("hollow" in dot["class"]) == (not whole)
    assert ("supported" if whole else "supported so far") in texts(picture)
    assert ("250 ep" if whole else "2/250 ep") in texts(picture)


def test_an_effect_beyond_the_axis_is_a_triangle_at_its_edge() -> None:
    found = results(study(claims=[claim()]), [*runs(PLAIN, [50.0, 50.1]), *runs(CBAM, [90.0, 90.1])])
    picture = forest([found])
    assert circles(picture) == []
    assert f'<path d="M{CENTER + HALF - 4:g} ' in picture


def test_ratios_have_a_logarithmic_axis_of_their_own() -> None:
    counted = claim("factor", "2", text="A has more", measure="parameters", pairs=[["B", "A"]])
    found = made(counted, claim())
    picture = forest([found])
    assert texts(picture).index("Epochs, parameters, time: ratio") < texts(picture).index("A has more")
    assert abs(float(circles(picture)[-1]["cx"]) - CENTER) < 2  # CBAM adds a few parameters
    assert "counted" in texts(picture)


def test_readings_stand_below_their_claim_without_repeating_it() -> None:
    svhn = PLAIN.replace("mnist", "svhn")
    rows = [row("A", PLAIN), row("B", CBAM), dataclasses.replace(row("A2", svhn), reading_of="A")]
    claims = [claim(), claim(text="Read otherwise, B is better", pairs=[["A2", "B"]])]
    found = results(study(*rows, claims=claims), [*runs(PLAIN, [90.0, 90.1]), *runs(CBAM, [92.0]), *runs(svhn, [91.0])])
    written = texts(forest([found]))
    assert written.index("B is better") < written.index("↳ Read otherwise: open (one run)")
    assert "Read otherwise, B is better" not in written


def test_open_claims_are_counted_where_they_have_no_rows() -> None:
    found = results(study(claims=[claim()]), [run(PLAIN, 0, [90.0]), run(CBAM, 0, [92.0])])
    assert "B is better" in texts(forest([found]))
    written = texts(forest([found], undecided=False))
    assert "B is better" not in written
    assert written[-1] == "And 1 open claims: their intervals do not decide."


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_file_of_its_own_needs_no_page(theme: Theme) -> None:
    picture = forest([made(claim())], theme)
    assert "var(--" not in picture
    assert 'class="inverse">1 supported' in picture
    assert ".inverse { fill: #" in picture
    assert "<a " not in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert min(float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", picture)) >= 11


def test_a_row_on_the_page_leads_to_its_claim_and_nothing_is_markup() -> None:
    evil = "<script>alert(1)</script>"
    found = made(claim(text="first"), claim(text=evil, pairs=[["B", "A"]]))
    picture = forest([found])
    assert f'<a href="#{anchor(found, found.claims[1])}"' in picture
    assert "<script" not in picture
    assert any(evil in text for text in texts(picture))


@pytest.mark.parametrize("width", [360, 720, 800, 960])
def test_no_label_reaches_the_plot(width: int) -> None:
    text = "A claim with very many words that say in detail what is better than what and on which of the data sets"
    picture = forest([made(claim(text=text))], width=width)
    label = width if width < 600 else 0.53 * width - 120
    lines = [part for part in texts(picture) if part and part in text]
    assert len(lines) > 1
    assert max(map(len, lines)) * LETTER <= label


def test_trainings_are_abbreviated() -> None:
    long = {
        "5 of 350 epochs, 25 % of the channels, 10,000 training images": "5/350 ep, 25 % wide, 10k images",
        "40 of 100 epochs, first 4,434 of 73,257 training and 1,952 of 26,032 test digits, bf16": (
            "40/100 ep, 6 % of images, bf16"
        ),
        "all 250 epochs, float32": "250 ep, float32",
    }
    assert {text: shorter(text) for text in long} == long
