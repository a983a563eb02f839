"""The README's picture: which claims it shows, and what stands beside them."""

import dataclasses

import pytest
from made import CBAM, PLAIN, SHORT, claim, results, row, runs, study

from capsexp.figures import attention
from capsexp.figures.attention import KINDS, LEGEND, SHORTER, WHOLE
from capsexp.results.questions import Asked, asked

SVHN, SVHN_CBAM = (words.replace("mnist", "svhn") for words in (PLAIN, CBAM))


def claims() -> list[Asked]:
    """Attention gives 2 points on MNIST, after 2 epochs −1 on SVHN."""
    rows = [row("A", PLAIN), row("B", CBAM), row("S", SVHN, accuracy="80.0"), row("T", SVHN_CBAM, accuracy="80.5")]
    asking = [
        claim(claimed="+1.5", question="On MNIST?"),
        claim(pairs=[["S", "T"]], question="On SVHN?"),  # no size: what the rows' numbers give
        claim(claimed="+9"),  # has no question
    ]
    found = [*runs(PLAIN, [90.0, 90.1]), *runs(CBAM, [92.0, 92.1])]
    found += [*runs(f"{SVHN} {SHORT}", [70.0, 70.1]), *runs(f"{SVHN_CBAM} {SHORT}", [69.0, 69.1])]
    return asked([results(study(*rows, claims=asking), found)])


def test_a_row_has_both_numbers_and_is_bold_where_it_is_decided_after_the_papers_training() -> None:
    whole, shorter = claims()
    mnist, svhn = map(attention.row, (whole, shorter))
    assert (mnist.label, mnist.published, mnist.note) == ("MNIST, CBAM", 1.5, "250 epochs of all images")
    assert (mnist.decided, mnist.hollow, mnist.center) == (True, False, pytest.approx(2))
    assert mnist.values == pytest.approx([1.95, 2.05])
    assert (svhn.published, svhn.center, svhn.note) == (0.5, pytest.approx(-1), "2 epochs")
    assert (svhn.decided, svhn.hollow) == (False, True)
    for change in ({"adjusted": 0.2}, {"verdict": "ceiling"}):
        changed = attention.row(dataclasses.replace(whole, one=dataclasses.replace(whole.one, **change)))
        assert not changed.decided
        assert changed.note.endswith("no room below 100 %") == ("verdict" in change)


def test_every_mark_and_kind_of_attention_is_said_in_words() -> None:
    strip = attention.picture(claims())
    assert [*strip.panels] == [WHOLE, SHORTER]
    svg = strip.drawing().files()["_light.svg"].decode()
    for text in (*LEGEND.values(), KINDS["CBAM"], "+1.50", "+2.00", "+0.50", "−1.00", "2 epochs"):
        assert text in svg
    assert KINDS["dual"] not in svg
