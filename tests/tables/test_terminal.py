"""Pages on terminals of any width."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from capsexp.tables import markdown
from capsexp.tables.pages import Note, Page, Table
from capsexp.tables.terminal import print_page, print_table

COLUMNS = ["network", "iterations", "published", "maximum", "verdict"]
ROWS = [
    ["CapsNet5", "5", "99.65000153", "70.39 ± 45.42 (3)", "open"],
    ["CapsNet5_CBAM", "5", "not reported", "97.64 ± 0.06 (2)", ""],
]
CLAIM = ["It is [bold]better[/bold]", "an increase", "+1.00 points", "supported so far, p = 0.004"]
PAGE = Page(
    name="made",
    title="A title",
    caution="",
    source="made, Table 1.",
    protocol="Their words",
    short=Table(
        "", ["", "all", "training"], "lrl", [["maximum %", "97.70 → 97.64", "2 epochs"]], [Note("A short caption.")]
    ),
    claims=Table("Claims", ["claim", "claimed", "measured", "verdict"], "lllv", [CLAIM]),
    tables=[Table("Accuracy", COLUMNS, "nrrrv", ROWS, [Note("A caption.")], ["CapsNet5: a [remark]."])],
    deviations=["Another optimiser."],
    runs="5 runs.",
    commands={"python -m capsexp folded": ["CapsNet5"]},
)


Draw = Callable[..., list[str]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Draw:
    """The lines of a page on a terminal of some width, without colours."""

    def draw(width: int, page: Page = PAGE) -> list[str]:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
        print_page(page)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()

    return draw


@pytest.mark.parametrize("width", [30, 44, 56, 64, 80, 120])
def test_no_word_is_lost_or_cut(width: int, drawn: Draw) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    words = Counter(re.split(r"[\s:,]+", " ".join(lines)))
    texts = [*ROWS[0], *ROWS[1], *CLAIM, PAGE.title, PAGE.source, PAGE.protocol, *PAGE.deviations, PAGE.runs]
    texts += ["A caption.", *PAGE.tables[0].remarks]
    assert not Counter(re.split(r"[\s:,]+", " ".join(texts))) - words
    assert "folded" not in words


def test_a_wide_terminal_has_a_line_a_row(drawn: Draw) -> None:
    lines = drawn(120)
    for row in [COLUMNS, *ROWS]:
        assert any(re.fullmatch(r"\s*" + r"\s+".join(map(re.escape, row)) + r"\s*", line) for line in lines)


def test_a_narrow_one_has_wrapped_cells_then_a_list_a_row(drawn: Draw) -> None:
    wrapped = drawn(56)
    assert any(line.split() == ["CapsNet5_CBAM", "5", "not", "97.64", "±"] for line in wrapped)
    listed = [line.rstrip() for line in drawn(44)]
    at = listed.index("CapsNet5_CBAM")
    assert listed[at + 1 : at + 5] == [
        "  iterations: 5",
        "  published: not reported",
        "  maximum: 97.64 ± 0.06 (2)",
        "",
    ]


def test_a_page_without_claims_and_deviations_has_no_such_headings(drawn: Draw) -> None:
    lines = [line.strip() for line in drawn(80, replace(PAGE, claims=None, deviations=[]))]
    assert "Accuracy" in lines
    assert not {"Claims", "Known deviations"} & set(lines)


def test_a_file_gets_the_page_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    print_page(PAGE)
    assert capsys.readouterr().out == markdown.document(PAGE) + "\n"


def test_a_piped_table_is_plain_text_and_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table("runs", ["claim", "p"], "lr", [["a gain " * 50, "< 0.001"]]))
    assert capsys.readouterr().out.splitlines()[-1].split("  ")[-1].strip() == "< 0.001"
