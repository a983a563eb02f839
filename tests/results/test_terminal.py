"""Pages of tables on terminals of any width."""

import re
from collections import Counter

import pytest

from capsexp.results.terminal import print_page

CELLS = [
    ["network", "iterations", "published", "maximum", "verdict"],
    ["CapsNet5", "5", "99.65000153", "70.39 ± 45.42 (3) [a]", "undecided"],
    ["CapsNet5_CBAM [c]", "5", "not reported", "97.64 ± 0.06 (2) [a]", ""],
]
TEXT = "\n".join(
    ["# A table", "", *("| " + " | ".join(row) + " |" for row in (CELLS[0], ["---", "--:", "--:", "--:", "---"]))]
    + ["| " + " | ".join(row) + " |" for row in CELLS[1:]]
    + ["", "A caption.", "", "<details>what is folded</details>"]
)


def drawn(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the page on a terminal of this width, without colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    print_page(TEXT)
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("width", [30, 44, 56, 64, 80, 120])
def test_no_word_is_lost_or_cut(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = drawn(width, monkeypatch, capsys)
    assert max(map(len, lines)) <= width
    words = Counter(" ".join(lines).replace(":", " ").split())
    assert not Counter(" ".join(" ".join(row) for row in CELLS[1:]).split()) - words
    assert "caption." in words
    assert "folded" not in words


def test_a_wide_terminal_has_a_line_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = drawn(120, monkeypatch, capsys)
    for row in CELLS:
        assert any(re.fullmatch(r"\s*" + r"\s+".join(map(re.escape, row)) + r"\s*", line) for line in lines)


def test_a_narrow_one_has_wrapped_cells_then_a_list_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrapped = drawn(56, monkeypatch, capsys)
    assert any(line.split() == ["CapsNet5_CBAM", "5", "not", "97.64", "±"] for line in wrapped)
    listed = [line.rstrip() for line in drawn(44, monkeypatch, capsys)]
    at = listed.index("CapsNet5_CBAM [c]")
    assert listed[at + 1 : at + 5] == [
        "  iterations: 5",
        "  published: not reported",
        "  maximum: 97.64 ± 0.06 (2) [a]",
        "",
    ]


def test_a_file_gets_the_page_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_page(TEXT)
    assert capsys.readouterr().out == TEXT + "\n"
