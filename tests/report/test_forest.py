"""The picture of an effect beside its claim, and the bar of verdicts."""

import re

import pytest
from made import CBAM, PLAIN, claim, results, row, run, runs, study

from capsexp.report.forest import HALF, bar, effect
from capsexp.results.claims import MeasuredClaim
from capsexp.study.studies import Claim


def made(*claims: Claim, part: str = "", higher: float = 2.0) -> list[MeasuredClaim]:
    """The claims of a study in which B is some points better than A, after the whole training or a part."""
    found = [*runs(f"{PLAIN}{part}", [50.0, 50.1]), *runs(f"{CBAM}{part}", [50.0 + higher, 50.1 + higher])]
    rows = [row("A", PLAIN, accuracy="90.0"), row("B", CBAM, accuracy="92.0"), row("C", None)]
    return results(study(*rows, claims=claims), found).claims


def place(picture: str, pattern: str) -> float:
    found = re.search(pattern, picture)
    assert found, picture
    return float(found[1]) / HALF


CIRCLE, CLAIMED = r'<circle class="mark [^>]*cx="([-\d.]+)"', r'class="claimed" d="M([-\d.]+) '


def test_an_effect_stands_at_its_place_with_its_interval_and_the_claimed_size() -> None:
    (one,) = made(claim(claimed="+3.5"))
    picture = effect(one)
    assert place(picture, CIRCLE) == pytest.approx(2 / 8, abs=0.01)
    assert place(picture, CLAIMED) == pytest.approx(3.5 / 8, abs=0.01)
    assert one.measured is not None
    assert one.measured.interval is not None
    ends = re.search(r'<path d="M([-\d.]+) 0H([-\d.]+)"', picture)
    assert ends
    assert [float(end) / HALF * 8 for end in ends.groups()] == pytest.approx(one.measured.interval, abs=0.06)
    assert 'class="effect holds"' in picture


@pytest.mark.parametrize(("claimed", "arrow"), [("increase", "M0 -6h16"), ("decrease", "M0 -6h-16")])
def test_a_direction_is_an_arrow(claimed: str, arrow: str) -> None:
    (one,) = made(claim(claimed=claimed))
    assert arrow in effect(one)


def test_no_difference_has_its_margins() -> None:
    (one,) = made(claim(claimed="same", margin="1"))
    found = [float(x) / HALF for x in re.findall(CLAIMED, effect(one))]
    assert found == pytest.approx([-1 / 8, 1 / 8], abs=0.01)


@pytest.mark.parametrize(("part", "hollow"), [("", False), (" budget.epochs=2", True)])
def test_a_mark_is_hollow_after_shorter_training(part: str, hollow: bool) -> None:
    (one,) = made(claim(), part=part)
    assert ('class="mark hollow"' in effect(one)) == hollow
    assert bar([one]) == [("supported so far" if hollow else "supported", "holds", 1)]


def test_an_effect_beyond_the_axis_is_a_triangle_at_its_edge() -> None:
    (one,) = made(claim(), higher=40)
    assert "<circle" not in effect(one)
    assert f"M{HALF - 4:.1f} -5v10l8 -5z" in effect(one)


def test_ratios_have_a_logarithmic_axis() -> None:
    (one,) = made(claim("factor", "20", text="A has more", measure="parameters", pairs=[["B", "A"]]))
    assert place(effect(one), CLAIMED) == pytest.approx(1)
    assert abs(place(effect(one), CIRCLE)) < 0.02  # CBAM adds a few parameters


def test_what_was_not_measured_has_no_picture_and_a_segment_of_its_own() -> None:
    claims = made(claim(text="C is better", pairs=[["A", "C"]]), claim(), claim(text="A is better", pairs=[["B", "A"]]))
    assert effect(claims[0]) == ""
    assert bar(claims) == [("supported", "holds", 1), ("contradicted", "differs", 1), ("not run", "none", 1)]


def test_one_run_a_network_has_no_interval() -> None:
    (one,) = results(study(claims=[claim()]), [run(PLAIN, 0, [90.0]), run(CBAM, 0, [92.0])]).claims
    assert place(effect(one), CIRCLE) == pytest.approx(2 / 8, abs=0.01)
    assert "0H" not in effect(one)
