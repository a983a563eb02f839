"""The report in a real browser."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from made import CBAM, PLAIN, claim, row, run, runs, study
from made import report_page as report_of
from support import ROOT

from capsexp.report import page as report
from capsexp.report import pictures
from capsexp.report.pictures import Picture

expect = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install -e '.[dev]'").expect

PHONE, TABLET, DESK = ({"width": width, "height": 900} for width in (390, 768, 1280))
LENGTH, SIZE = 20_000, 2e6  # at most, of the page in px as it opens, and of the file in bytes


def svg(name: str, width: int = 830) -> str:
    """An empty picture, as an address; its name is in it."""
    text = f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='300' id='{name}'></svg>"
    return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


ANSWERS = [Picture(name, "the answer", svg(name), (830, 300)) for name in pictures.ANSWERS.values()]
WIDE = Picture(
    "made_table1",
    "a wide figure",
    svg("wide", 3000),
)

#: What sticks out of the window, but for what a box of its own scrolls.
OUTSIDE = """() => [...document.querySelectorAll('body *')]
    .filter(element => !element.parentElement.closest('.scroll, svg') && !element.matches('.skip, thead, thead *'))
    .filter(element => element.checkVisibility())
    .filter(element => {
        const box = element.getBoundingClientRect();
        return box.width > 0 && (box.left < -0.5 || box.right > WIDTH + 0.5);
    })
    .map(element => element.outerHTML.slice(0, 100))"""

#: Texts whose colour stands out from what is behind them by less than 4.5 to 1, as WCAG counts.
FAINT = """() => {
    const parse = colour => colour.match(/[\\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [r, g, b].map(value => value / 255)
        .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
    const behind = element => {
        for (let node = element; node; node = node.parentElement) {
            const colour = parse(getComputedStyle(node).backgroundColor);
            if (colour.length === 3 || colour[3] > 0) return colour;
        }
    };
    const texts = [...document.querySelectorAll('body *:not(script)')].filter(element =>
        [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()));
    return [texts.length, texts.map(element => {
        const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(luminance);
        return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.outerHTML.slice(0, 100)];
    }).filter(([ratio]) => ratio < 4.5)];
}"""


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the committed records and figures."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.regenerate(results=ROOT / "results", output=path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two studies and ten runs: of all states, protocols, two data sets."""
    found = [
        *(run(PLAIN, seed, [maximum]) for seed, maximum in ((10, 9.5), (2, 99.5), (1, 100.0))),
        *runs(CBAM, [99.1, 99.2, 99.3]),
        run(CBAM, 4, failed=True),
        run(f"{CBAM} protocol=heldout", 5, [9.0], tested=97.5),
        run(PLAIN.replace("mnist", "svhn"), 7, [50.0], parameters=99_999),
        run(f"{PLAIN} budget=smoke", 3),
    ]
    counted = claim("relative", text="B has more parameters", measure="parameters")
    fashion = row("C", PLAIN.replace("mnist", "svhn"), accuracy="90.00")
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(
        report_of(found, study(claims=[claim(), counted]), study(fashion, name="other_table2"), drawn=[WIDE, *ANSWERS])
    )
    return path


def column(page: Any, name: str) -> list[str]:
    """The texts of a column of the table of runs, in the order on the screen, of the lines that are shown."""
    names = page.locator("table.runs thead th").all_inner_texts()
    (index,) = [number for number, text in enumerate(names, 1) if text.strip() == name]
    lines = page.locator(f"table.runs tbody tr:not([hidden]) td:nth-child({index})")
    return [text.strip() for text in lines.all_inner_texts()]


@pytest.mark.slow
def test_the_whole_report_loads_and_links_to_every_source(open_page: Any, whole: Path, errors: list[str]) -> None:
    page = open_page(whole)
    assert page.locator("article.study").count() > 10
    names = page.locator("section.source").evaluate_all("sections => sections.map(section => section.id)")
    assert len(names) == 6
    for name in names:
        page.locator(f"nav a[href='#{name}']").click()
        expect(page.locator(f"section#{name} h2")).to_be_in_viewport()
        assert page.locator(f"section#{name} table").count() >= 1
    broken = page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.alt)")
    assert broken == []
    assert page.locator("img").count() == page.locator("img[alt]").count() > 0
    lost = page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(link => link.getAttribute('href').slice(1))"
        ".filter(name => !document.getElementById(name))"
    )
    assert lost == []
    assert errors == []


@pytest.mark.slow
def test_the_whole_report_is_short_and_small(open_page: Any, whole: Path) -> None:
    assert whole.stat().st_size <= SIZE
    assert open_page(whole).evaluate("document.documentElement.scrollHeight") <= LENGTH


@pytest.mark.parametrize("viewport", [PHONE, TABLET, DESK])
@pytest.mark.parametrize("which", [pytest.param("whole", marks=pytest.mark.slow), "made"])
def test_nothing_sticks_out_of_the_window(
    open_page: Any, request: pytest.FixtureRequest, which: str, viewport: dict[str, int]
) -> None:
    page, width = open_page(request.getfixturevalue(which), viewport=viewport), viewport["width"]
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert page.evaluate(OUTSIDE.replace("WIDTH", str(width))) == []
    assert page.locator(".scroll").count() == 1
    assert page.evaluate("document.querySelector('.scroll').getBoundingClientRect().right") <= width


def test_the_first_column_of_the_runs_stays_while_the_rest_scrolls(open_page: Any, made: Path) -> None:
    page = open_page(made, viewport=PHONE)
    first = page.locator("table.runs tbody td").first
    before = first.bounding_box()["x"]
    page.evaluate("document.querySelector('.scroll').scrollLeft = 500")
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") > 0
    assert first.bounding_box()["x"] == before


@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "light"), (PHONE, "dark"), (TABLET, "dark"), (DESK, "light")])
def test_the_answer_and_its_picture_are_on_the_first_screen(
    open_page: Any, made: Path, viewport: dict[str, int], scheme: str
) -> None:
    page = open_page(made, viewport=viewport, color_scheme=scheme)
    expect(page.locator(".lead")).to_be_in_viewport(ratio=1)
    expect(page.locator(".answer")).to_be_in_viewport(ratio=1)
    shown = page.evaluate("atob(document.querySelector('.answer').currentSrc.split(',')[1])")
    narrow = "_narrow" if viewport is PHONE else ""
    assert f"answer{narrow}_{scheme}" in shown


@pytest.mark.parametrize("viewport", [PHONE, TABLET, DESK])
def test_a_claims_effect_stands_beside_it_and_no_text_is_squeezed(
    open_page: Any, made: Path, viewport: dict[str, int]
) -> None:
    page = open_page(made, viewport=viewport)
    row = page.locator(".claims tbody tr").first
    assert row.locator("svg.effect").bounding_box()["width"] > 150
    assert "claimed" in row.locator("[data-name=claimed]").evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    ) or (viewport is DESK)
    assert row.locator("[data-name=from]").bounding_box()["width"] > 90


def test_few_stops_lie_before_the_filter_and_a_link_skips_them(open_page: Any, made: Path) -> None:
    page = open_page(made)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#runs"
    names = []
    while "contains" not in names and len(names) < 30:
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.name"))
    assert "contains" in names
    summary = page.locator("summary", has_text="All numbers").first
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Commands").first).to_be_visible()


def test_curves_are_chosen_read_and_kept_in_the_address(open_page: Any, tmp_path: Path, errors: list[str]) -> None:
    (tmp_path / "report.html").write_text(report_of([run(PLAIN, 5, [99.0, 99.5]), run(CBAM, 6, [90.5, 91.5])]))
    page = open_page(tmp_path / "report.html")
    lines = page.locator(".plot > svg path:not(.grid)")
    expect(lines).to_have_count(2)
    assert page.locator(".plot .label").all_text_contents() == ["A", "B"]  # at the lines' ends, the upper one first
    heights = [float(text) for text in page.locator(".plot .end").all_text_contents() if text != "epoch"]
    assert min(heights) >= 90.5  # the axis begins where the lines are
    page.locator("#curves select[name=quantity]").select_option("loss")
    page.locator("#curves select[name=images]").select_option("train")
    assert "curves.quantity=loss&curves.images=train" in page.evaluate("location.href")
    expect(page.locator(".plot p")).to_have_text("train loss after each epoch")
    page.locator("#curves fieldset input").first.uncheck()
    expect(lines).to_have_count(1)
    again = open_page(page.evaluate("location.href"))
    assert again.locator("#curves select[name=quantity]").input_value() == "loss"
    expect(again.locator(".plot > svg path:not(.grid)")).to_have_count(1)
    again.locator("#curves select[name=quantity]").select_option("accuracy")
    again.locator("#curves select[name=images]").select_option("test")
    again.locator(".plot > svg").hover()
    expect(again.locator(".plot p")).to_have_text(
        re.compile(r"^made: B, 250 ep, bf16, seed 6, epoch [12]: 9[01]\.5 %$")
    )
    again.locator("#curves fieldset input").last.uncheck()
    again.locator(".plot > svg").hover()
    expect(again.locator(".plot > svg > *")).to_have_count(0)
    empty = open_page(again.evaluate("location.href"))  # curves.rows= in it
    expect(empty.locator("#curves fieldset input")).to_have_count(2)
    expect(empty.locator("#curves fieldset input:checked")).to_have_count(0)
    assert errors == []


def test_filters_are_kept_in_the_address(open_page: Any, made: Path) -> None:
    page = open_page(made)
    page.get_by_label("state").select_option("failed")
    page.get_by_label("Contains").fill("cbam")
    address = page.evaluate("location.href")
    assert address.endswith("?runs.state=failed&runs.contains=cbam")
    assert column(open_page(address), "seed") == ["4"]
    page.get_by_label("state").select_option("all")
    page.get_by_label("Contains").fill("")
    assert page.evaluate("location.href") == made.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(open_page: Any, made: Path, scheme: str) -> None:
    page = open_page(made, color_scheme=scheme)
    count, faint = page.evaluate(FAINT)
    assert count > 300
    assert faint == []
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")


def test_a_click_on_a_header_sorts_by_number_and_the_next_one_the_other_way(open_page: Any, made: Path) -> None:
    page = open_page(made)
    header = page.get_by_role("button", name="maximum %", exact=True)
    header.click()
    assert column(page, "maximum %") == ["9.50", "50.00", "90.00", "99.10", "99.20", "99.30", "99.50", "100.00", "", ""]
    assert header.locator("..").get_attribute("aria-sort") == "ascending"
    header.click()
    assert column(page, "maximum %") == ["100.00", "99.50", "99.30", "99.20", "99.10", "90.00", "50.00", "9.50", "", ""]
    assert header.locator("..").get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="seed", exact=True).click()
    assert column(page, "seed") == ["0", "1", "1", "2", "2", "3", "4", "5", "7", "10"]
    assert page.locator("table.runs [aria-sort]").count() == 1
    page.get_by_role("button", name="data", exact=True).click()
    assert column(page, "data") == ["mnist"] * 9 + ["svhn"]


def test_every_column_sorts_and_by_key_too(open_page: Any, made: Path, errors: list[str]) -> None:
    page = open_page(made)
    buttons = page.locator("table.runs thead button")
    assert buttons.count() == page.locator("table.runs thead th").count() > 20
    whole = sorted(page.locator("table.runs tbody tr").all_inner_texts())
    for index in range(buttons.count()):
        name = buttons.nth(index).inner_text().strip()
        buttons.nth(index).focus()
        page.keyboard.press("Enter")
        up = column(page, name)
        page.keyboard.press("Space")
        down = column(page, name)
        filled = len([text for text in up if text])
        assert up[filled:] == down[filled:] == [""] * (len(up) - filled)
        assert list(dict.fromkeys(down[:filled])) == list(reversed(dict.fromkeys(up[:filled])))
        if "number" in str(buttons.nth(index).locator("..").get_attribute("class")):
            numbers = [float(text.replace(",", "")) for text in up[:filled]]
            assert numbers == sorted(numbers)
    assert sorted(page.locator("table.runs tbody tr").all_inner_texts()) == whole
    assert errors == []


def test_the_filters_narrow_the_runs_together(open_page: Any, made: Path) -> None:
    page = open_page(made)
    count = page.locator("#runs .filters output")
    assert count.inner_text() == "10 of 10 runs"
    labels = [text.split()[0] for text in page.locator("#runs .filters label").all_inner_texts()]
    assert labels == [
        "Contains",
        "study",
        "data",
        "attention",
        "state",
        "verdict",
        "training",
        "protocol",
    ]
    page.locator("#runs").get_by_label("study").select_option("made_table1")
    assert column(page, "study") == ["made_table1"] * 8
    page.get_by_label("state").select_option("failed")
    assert column(page, "seed") == ["4"]
    assert count.inner_text() == "1 of 10 runs"
    page.get_by_label("state").select_option("all")
    page.get_by_label("Contains").fill("99.  cbam")
    assert column(page, "attention") == ["CBAM"] * 3
    page.locator("#runs").get_by_label("verdict").select_option("ours is lower")
    assert set(column(page, "verdict")) == {"ours is lower"}
    page.get_by_label("Contains").fill("no such run")
    assert column(page, "seed") == []
    assert count.inner_text() == "0 of 10 runs"
    page.get_by_label("Contains").fill("")
    page.locator("#runs").get_by_label("study").select_option("all")
    page.locator("#runs").get_by_label("verdict").select_option("all")
    page.locator("#runs").get_by_label("data").select_option("svhn")
    assert column(page, "study") == ["other_table2"]


@pytest.mark.parametrize(
    ("refused", "shown", "read"),
    [(False, "Copied", "navigator.clipboard.readText()"), (True, "Selected", "getSelection().toString()")],
)
def test_a_command_is_copied_or_where_that_is_refused_selected(
    open_page: Any, made: Path, refused: bool, shown: str, read: str
) -> None:
    page = open_page(made, permissions=["clipboard-read", "clipboard-write"])
    if refused:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')) }")
    page.get_by_text("Commands").first.click()
    line = page.locator("article#made_table1 .commands div").first
    line.get_by_role("button", name="Copy").click()
    expect(line.get_by_role("button")).to_have_text(shown)
    assert page.evaluate(read) == f"python -m capsexp -m {PLAIN} trainer.precision=bf16 seed=1,2,10"


def test_the_table_of_runs_scrolls_and_is_reached_by_key(open_page: Any, made: Path) -> None:
    page = open_page(made, viewport={"width": 800, "height": 600})
    found = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(box => [box.tabIndex, box.scrollWidth > box.clientWidth])"
    )
    assert found == [[0, True]]


def test_without_scripts_everything_is_there(open_page: Any, made: Path) -> None:
    page = open_page(made, java_script_enabled=False)
    assert page.locator("table.runs tbody tr:visible").count() == 10
    assert page.locator(".filters:visible").count() == 0
    assert page.locator("button").count() == 0
    for name in ("#top", "#made", "#made_table1", "#other_table2", "#curves", "#runs"):
        assert page.locator(name).is_visible()
    page.get_by_text("Commands").first.click()
    assert page.locator("article#made_table1 .commands code:visible").count() == 3


@pytest.mark.parametrize("which", [pytest.param("whole", marks=pytest.mark.slow), "made"])
def test_the_answer_the_sources_and_their_claims_are_printed(
    open_page: Any, request: pytest.FixtureRequest, which: str
) -> None:
    page = open_page(request.getfixturevalue(which))
    printed: bytes = page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF-")
    assert 0 < len(re.findall(rb"/Type\s*/Page\b", printed)) < 16
    page.emulate_media(media="print")
    pixels = int((210 - 28) * 96 // 25.4)  # within the margins
    page.set_viewport_size({"width": pixels, "height": 1000})
    wide = page.evaluate(
        "width => [...document.querySelectorAll('body *')]"
        ".filter(element => !element.parentElement.closest('svg') && element.checkVisibility())"
        ".filter(element => element.getBoundingClientRect().right > width + 0.5)"
        ".map(element => element.outerHTML.slice(0, 100))",
        pixels,
    )
    assert wide == []
    for shown in (".lead", ".answer", ".bar", "article.study table", ".claims"):
        assert page.locator(f"{shown}:visible").count() > 0
    assert page.locator("nav:visible, details:visible, figure:visible, #curves:visible, #runs:visible").count() == 0
