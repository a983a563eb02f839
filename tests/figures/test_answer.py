"""The README's picture: which claims it shows, in what order, and what stands beside them."""

import dataclasses

import pytest
from capsexp.results.collect import Results
from made import CBAM, PLAIN, claim, results, row, runs, study

from capsexp.figures.answer import KINDS, LEGEND, LONG, SHORT, gains, picture

SVHN, SVHN_CBAM = (words.replace("mnist", "svhn") for words in (PLAIN, CBAM))
FASHION, FASHION_CBAM = (words.replace("mnist", "fashion_mnist") for words in (PLAIN, CBAM))
BRIEF = " budget.epochs=2"


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
    found += [*runs(f"{SVHN}{BRIEF}", [70.0, 70.1]), *runs(f"{SVHN_CBAM}{BRIEF}", [69.0, 69.1])]
    return results(study(*rows, claims=claims), found)


def test_a_row_is_the_sized_claim_of_a_data_set_and_trained_ones_come_first() -> None:
    larger, first, second = gains([made()])
    assert (larger.data, larger.published) == ("Fashion-MNIST", 2.5)
    assert (first.data, first.attention, first.one.claim.text, first.published) == ("MNIST", "CBAM", "sized", 1.5)
    assert first.measured.value == pytest.approx(2)
    assert first.runs == pytest.approx([1.95, 2.05])
    assert (second.data, second.one.claim.text, second.published, second.measured.value) == ("SVHN", "on SVHN", 0.5, -1)
    assert second.row.note == "2/250 ep"


def test_bold_is_what_is_decided_after_training_as_long_as_the_claim_needs() -> None:
    _, mnist, svhn = gains([made()])
    assert (mnist.row.decided, mnist.row.hollow, mnist.row.label) == (True, False, "MNIST, CBAM")
    assert (svhn.row.decided, svhn.row.hollow, svhn.row.note) == (False, True, "2/250 ep")
    for change in ({"adjusted": 0.2}, {"verdict": "ceiling"}, {"so_far": "2 of 250 epochs"}):
        assert not dataclasses.replace(mnist, one=dataclasses.replace(mnist.one, **change)).row.decided
    full = dataclasses.replace(mnist, one=dataclasses.replace(mnist.one, verdict="ceiling"))
    assert full.row.note.endswith("no room: 100 % without")


def test_every_mark_and_kind_of_attention_is_said_in_words() -> None:
    strip = picture(gains([made()]))
    assert [*strip.panels] == [LONG, SHORT]
    svg = strip.drawing().files()["_light.svg"].decode()
    for text in (*LEGEND.values(), KINDS["CBAM"], "+1.50", "+2.00", "+0.50", "−1.00", "2/250 ep"):
        assert text in svg
    assert KINDS["dual"] not in svg
