"""Tables on terminals of any width."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from capsexp.tables.table import Table
from capsexp.tables.terminal import print_table

COLUMNS = ["network", "iterations", "published", "maximum", "verdict"]
ROWS = [
    ["CapsNet5", "5", "99.65000153", "70.39 ± 45.42 (3)", "open"],
    ["CapsNet5_CBAM", "5", "not reported", "97.64 ± 0.06 (2)", ""],
]
TABLE = Table("A [bold]title[/bold]", COLUMNS, "lrrrl", ROWS, ["A caption."])


Draw = Callable[..., list[str]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Draw:
    """The lines of a table on a terminal of some width, without colours."""

    def draw(width: int, table: Table = TABLE) -> list[str]:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(table)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()

    return draw


@pytest.mark.parametrize("width", [30, 44, 56, 64, 80, 120])
def test_no_word_is_lost_or_cut(width: int, drawn: Draw) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    words = Counter(re.split(r"[\s:,]+", " ".join(lines)))
    assert not Counter(re.split(r"[\s:,]+", " ".join([*ROWS[0], *ROWS[1], TABLE.title, *TABLE.notes]))) - words


def test_a_wide_terminal_has_a_line_a_row(drawn: Draw) -> None:
    lines = drawn(120)
    for row in [COLUMNS, *ROWS]:
        assert any(re.fullmatch(r"\s*" + r"\s+".join(map(re.escape, row)) + r"\s*", line) for line in lines)


def test_a_narrow_one_has_wrapped_cells_then_a_list_a_row(drawn: Draw) -> None:
    wrapped = drawn(56)
    assert any(line.split() == ["CapsNet5_CBAM", "5", "not", "97.64", "±"] for line in wrapped)
    listed = [line.rstrip() for line in drawn(44)]
    at = listed.index("CapsNet5_CBAM")
    assert listed[at + 1 : at + 4] == ["  iterations: 5", "  published: not reported", "  maximum: 97.64 ± 0.06 (2)"]


def test_what_a_terminal_takes_as_commands_is_shown(drawn: Draw) -> None:
    hostile = "\x1b]0;title\x07 \u202e\nred"
    for width in (80, 20):
        text = "\n".join(drawn(width, Table(hostile, [hostile], "l", [[hostile]], [hostile])))
        assert text.replace("\n", "").isprintable()
        assert text.count(r"\u202e") == 4


def test_a_piped_table_is_plain_text_and_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table("runs", ["claim", "p"], "lr", [["a gain " * 50, "< 0.001"]]))
    assert capsys.readouterr().out.splitlines()[-1].split("  ")[-1].strip() == "< 0.001"


@pytest.mark.parametrize(("width", "drawn_as"), [(55, "a table"), (52, "a table"), (51, "lists")])
def test_a_table_is_drawn_wherever_its_longest_words_fit(width: int, drawn_as: str, drawn: Draw) -> None:
    lines = drawn(width)
    assert any(line.split() == COLUMNS for line in lines) == (drawn_as == "a table")
    assert ("  iterations: 5" in map(str.rstrip, lines)) == (drawn_as == "lists")


def test_words_begin_and_numbers_end_at_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table("", ["network", "n"], "lr", [["a", "1"], ["b", "1,000"]]))
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert [line.split() for line in (head, *rows)] == [["network", "n"], ["a", "1"], ["b", "1,000"]]
    assert {len(line) - len(line.strip()) for line in (head, *rows)} == {0}
    assert len({len(line) for line in (head, *rows)}) == 1
