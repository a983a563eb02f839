"""The README's picture: which claims it shows, in what order, and what stands beside them."""

import dataclasses
import re
from xml.etree import ElementTree

import pytest
from made import CBAM, PLAIN, claim, results, row, runs, study

from capsexp.figures.answer import COLOURS, Answer, gains
from capsexp.figures.style import default_style
from capsexp.results.collect import Results

SVHN, SVHN_CBAM = (words.replace("mnist", "svhn") for words in (PLAIN, CBAM))
FASHION, FASHION_CBAM = (words.replace("mnist", "fashion_mnist") for words in (PLAIN, CBAM))
SHORT = " budget.epochs=2"


def made() -> Results:
    """Attention gives 2 points on MNIST, after 2 epochs −1 on SVHN; and claims that the picture leaves out."""
    rows = [row("A", PLAIN, accuracy="90.0"), row("B", CBAM, accuracy="91.0")]
    rows += [row("S", SVHN, accuracy="80.0"), row("T", SVHN_CBAM, accuracy="80.5")]
    rows += [row("N", "model=huang_cnn data=mnist"), dataclasses.replace(row("R", PLAIN), reading_of="A")]
    rows += [row("F", FASHION), row("G", FASHION_CBAM), row("D", f"{CBAM} routing.iterations=1")]
    claims = [
        claim(text="ours", claimed="+9", ours=True),
        claim(text="a reading", claimed="+9", pairs=[["R", "B"]]),
        claim(text="memory", claimed="+9", measure="memory"),
        claim(text="attention in both", claimed="+9", pairs=[["D", "B"]]),
        claim(text="on SVHN", pairs=[["S", "T"]]),  # no size: what the rows' numbers give
        claim(text="another network", claimed="+1.5", pairs=[["N", "B"]]),
        claim(text="unsized"),
        claim(text="sized", claimed="+1.5"),
        claim(text="larger", claimed="+2.5", pairs=[["F", "G"]]),
    ]
    found = [*runs(PLAIN, [90.0, 90.1]), *runs(CBAM, [92.0, 92.1]), *runs("model=huang_cnn data=mnist", [80.0])]
    found += [*runs(FASHION, [90.0, 90.1]), *runs(FASHION_CBAM, [90.0, 90.1])]
    found += runs(f"{CBAM} routing.iterations=1", [92.0, 92.1])
    found += [*runs(f"{SVHN}{SHORT}", [70.0, 70.1]), *runs(f"{SVHN_CBAM}{SHORT}", [69.0, 69.1])]
    return results(study(*rows, claims=claims), found)


def test_a_row_is_the_sized_claim_of_a_data_set_and_trained_ones_come_first() -> None:
    larger, first, second = gains([made()])
    assert (larger.data, larger.published) == ("Fashion-MNIST", 2.5)
    assert (first.data, first.attention, first.one.claim.text, first.published) == ("MNIST", "CBAM", "sized", 1.5)
    assert first.measured.value == pytest.approx(2)
    assert first.runs == pytest.approx([1.95, 2.05])
    assert (second.data, second.one.claim.text, second.published, second.measured.value) == ("SVHN", "on SVHN", 0.5, -1)
    assert second.training == "2/250 ep"


def test_the_sentences_say_where_a_gain_is_shown() -> None:
    _, mnist, svhn = gains([made()])
    shown = "On MNIST with CBAM (+2.00 points, published +1.50) yes."
    assert Answer([mnist, svhn]).sentences == [shown, "Elsewhere no gain is shown."]
    assert Answer([svhn]).sentences == ["No gain is shown."]
    lossless = dataclasses.replace(mnist.one.claim, claimed="no decrease", margin="0.5")
    for change in ({"adjusted": 0.2}, {"claim": lossless}):
        changed = dataclasses.replace(mnist, attention="dual", one=dataclasses.replace(mnist.one, **change))
        assert Answer([changed]).sentences[0] == "On MNIST only before Holm's correction."
    so_far = dataclasses.replace(mnist, one=dataclasses.replace(mnist.one, so_far="2 of 250 epochs"))
    assert Answer([so_far]).sentences[0] == "On MNIST with CBAM so far, before correction."


def test_there_is_a_file_for_each_width_and_theme_with_texts_and_its_own_colours() -> None:
    with default_style():
        files = Answer(gains([made()])).files()
    assert [*files] == ["_light.svg", "_dark.svg", "_narrow_light.svg", "_narrow_dark.svg", ".txt"]
    assert b"MNIST, CBAM attention: published +1.50, measured +2.00 points (" in files[".txt"]
    for suffix, width in (("_light.svg", 830), ("_narrow_dark.svg", 360)):
        root = ElementTree.fromstring(files[suffix])
        assert root.attrib["viewBox"].split()[2] == str(width)
        texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
        assert {"+1.50", "+2.00", "+0.50", "−1.00", "2/250 ep", "published", "measured"} <= set(texts)
        ink, *_ = COLOURS[suffix[:-4].rpartition("_")[2]]
        assert ink.encode() in files[suffix]
        sizes = re.findall(rb"font(?:-size)?: (?:700 )?([\d.]+)px", files[suffix])
        assert min(map(float, sizes)) >= 11
