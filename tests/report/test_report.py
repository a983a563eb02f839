"""The report as text: everything is on it, and nothing of it is taken for markup."""

import base64
import dataclasses
import hashlib
import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made import CBAM, PLAIN, claim, project, results, row, run, runs, study, write
from made import report_page as page
from support import Program

from capsexp.figures.catalogue import FIGURES
from capsexp.report import curves, pictures, strips
from capsexp.report.all_runs import COLUMNS
from capsexp.report.forest import DIFFERS, HOLDS, OPEN, meaning
from capsexp.report.page import VERDICTS
from capsexp.report.pictures import Picture
from capsexp.study.studies import Row
from capsexp.tables import pages, summary
from capsexp.tables.texts import Verdict, shorter

VOID = {"meta", "link", "img", "input", "br"}


class Reader(HTMLParser):
    """A page's texts, its elements with their attributes, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        """What can be read, with single blanks."""
        return " ".join(" ".join(self.texts).split())


def cells(text: str) -> list[dict[str, str]]:
    """The table of all runs: for each run and column the text."""
    part = text.partition('<table class="runs">')[2].partition("</table>")[0]
    names = [html.unescape(name) for name in re.findall(r"<th [^>]*>([^<]*)</th>", part)]
    lines = []
    for line in re.findall(r"<tr>(.*?)</tr>", part.partition("<tbody>")[2], re.DOTALL):
        found = re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL)
        texts = [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", inner)).split()) for inner in found]
        lines.append(dict(zip(names, texts, strict=True)))
    return lines


def test_all_of_a_studys_page_is_in_its_section() -> None:
    short = f"{PLAIN} budget.epochs=2"
    found = [*runs(short, [99.0, 98.0]), *runs(short.replace("none", "cbam"), [97.0]), *runs(CBAM, [99.1, 99.2, 99.3])]
    found += runs(CBAM, [9.0], note="part")
    rows = [*study().rows, row("C", PLAIN.replace("mnist", "svhn"), note="Its own note")]
    made = study(
        *rows, claims=[claim(), claim(text="B is as good as C", claimed="same", margin="1", pairs=[["B", "C"]])]
    )
    shown = pages.page(results(made, found))
    text = Reader(page(found, made)).text
    assert [table.title for table in shown.tables] == [
        "Accuracy",
        "Also measured",
        "First epoch to the maximum",
        "Cost",
    ]
    expected = [shown.title, shown.source, shown.protocol, shown.runs, *shown.deviations]
    assert shown.claims is not None
    expected += [shorter(cell) for line in shown.claims.rows for cell in line[1:2] + line[3:]]
    for table in shown.tables:
        expected += [table.title, *table.columns, *(note.text for note in table.notes), *table.remarks]
        expected += [shorter(cell) for line in table.rows for cell in line]
    for command, names in shown.commands.items():
        expected += [f"{', '.join(names)} {command}"]
    assert [words for words in expected if " ".join(words.split()) not in text] == []


def test_it_begins_with_the_answer_and_the_verdicts_then_a_source_with_its_table_claims_and_figures() -> None:
    found = [*runs(PLAIN, [99.70, 99.72, 99.74]), *runs(CBAM, [99.80, 99.82, 99.84])]
    made = study(claims=[claim(claimed="+0.10"), claim(text="C is better", pairs=[["B", "A"]])])
    text = Reader(page(found, made, drawn=[Picture("made_table1", "own", "data:,1", caption="Its caption.")])).text
    order = ["On MNIST with CBAM (+0.10 points, published +0.10) yes."]
    order += ["✓ 1 supported ✗ 1 contradicted", *summary.answer([results(made, found)]), "A table"]
    order += ["99.80 → 99.72 ± 0.02 (3)", "Claims of made", "B is better", "C is better", "Its caption.", "All runs"]
    places = [text.rindex(one) if one == "All runs" else text.index(one) for one in order]
    assert places == sorted(places)


def test_the_answers_files_stand_in_the_page_for_each_width_and_theme() -> None:
    drawn = [Picture(name, "the answer", f"data:,{name}", (830, 420)) for name in pictures.ANSWERS.values()]
    found = [*runs(PLAIN, [99.70, 99.72]), *runs(CBAM, [99.80, 99.82])]
    text = page(found, study(claims=[claim(claimed="+0.10")]), drawn=drawn)
    whole = text.partition("<picture>")[2].partition("</picture>")[0]
    assert re.findall(r'srcset="data:,(\w+)"', whole) == [drawn[place].name for place in range(3)]
    assert 'src="data:,answer_light"' in whole
    assert "MNIST, CBAM attention: published +0.10, measured +0.10 points" in html.unescape(whole)
    assert text.count("data:,answer_light") == 1


def test_every_explanation_stands_once() -> None:
    text = Reader(page(runs(PLAIN, [99.0]), *(study(name=name, claims=[claim()]) for name in ("one", "two")))).text
    notes = [note.text for below in pages.NOTES.values() for note in below if not note.needs]
    for explanation in {*notes, *VERDICTS.values()}:
        assert text.count(explanation) == 1


def test_the_legend_has_every_verdict_in_order() -> None:
    assert [verdict for verdict in VERDICTS if verdict in summary.ORDER] == list(dict.fromkeys(summary.ORDER))


def test_a_mean_has_a_dot_for_each_seed_and_a_single_run_or_too_many_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "MOST", 3)
    other = PLAIN.replace("mnist", "svhn")
    made = study(*study().rows, row("C", other))
    text = page([*runs(PLAIN, [99.0, 99.2, 99.4]), *runs(CBAM, [99.0]), *runs(other, [9.0, 9.1, 9.2, 9.3])], made)
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition("<h4>Accuracy</h4>")[2].partition("</table>")[0], re.DOTALL)
    maxima = [re.search(r'data-name="maximum">(.*?)</td>', line, re.DOTALL) for line in rows[1:]]
    assert [found[1].count("<circle") for found in maxima if found] == [3, 0, 0]
    assert "seed 0: 99, seed 1: 99.2, seed 2: 99.4" in str(maxima[0] and maxima[0][1])


def test_labels_do_not_repeat_their_neighbours() -> None:
    printed = {"accuracy": "99.80"}
    rows = [Row(["CapsNet MNIST", "MNIST"], PLAIN, printed), Row(["mnist", "mnist"], CBAM, printed)]
    text = page([], study(*rows, columns=["network", "data"]))
    assert re.findall(r'<th scope="row">(.*?)</th>', text.partition("<h4>Accuracy</h4>")[2])[:2] == ["CapsNet", "mnist"]


def test_the_curves_of_each_row_are_data() -> None:
    found = [run(PLAIN, 1, [50.0, 60.123]), run(PLAIN, 0, [40.0, 70.0]), run(CBAM, 0, [30.0])]
    made = study(row("</script>", PLAIN), row("B", CBAM))
    text = page(found, made).partition('<script type="application/json" id="curves-data">')[2].partition("</script>")[0]
    data = json.loads(text)
    ((name, rows),) = data["sets"]
    assert (name, data["first"], data["rows"]) == ("MNIST", 0, [])
    ((label, training, seeds),) = rows  # a single epoch is no curve
    assert (label, training) == ("made: </script>", "250 ep, bf16")
    curves = {seed: data["runs"][place] for seed, place in seeds}
    assert curves[1] == {
        "epochs": 2,
        "test accuracy": [50.0, 60.12],
        "test loss": [0.1, 0.1],
        "train accuracy": [90.0, 90.0],
        "train loss": [0.1, 0.1],
    }


def test_curves_open_on_the_answers_rows_and_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST", 100)
    svhn = PLAIN.replace("mnist", "svhn")
    found = [run(words, seed, [float(one) for one in range(20)]) for words in (svhn, PLAIN, CBAM) for seed in (0, 1)]
    rows = [row("S", svhn, accuracy="90"), row("other", CBAM.replace("cbam", "dual")), *study().rows]
    text = page(found, study(*rows, claims=[claim(claimed="+0.10")]))
    data = json.loads(text.partition('id="curves-data">')[2].partition("</script>")[0])
    name, lines = data["sets"][data["first"]]
    assert (name, [lines[place][0] for place in data["rows"]]) == ("MNIST", ["made: A", "made: B"])
    assert data["every"] == 5
    assert data["runs"][0]["test accuracy"] == [0.0, 5.0, 10.0, 15.0, 19.0]
    assert data["runs"][0]["epochs"] == 20


def test_it_counts_the_runs_of_each_device_version_and_commit() -> None:
    elsewhere = run(PLAIN, 1, device="AMD EPYC", started="2026-02-03T00:00:00+00:00")
    elsewhere.provenance.update(
        commit="c" * 40,
        commits=["d" * 40, "c" * 40],
        clean_tree=False,
        python="3.13.1",
        cores=2,
        libraries={"torch": "2.13.0"},
    )
    later = run(PLAIN, 2, failed=True, started="2026-03-04T00:00:00+00:00")
    text = Reader(page([later, elsewhere, run(PLAIN, 0)])).text
    assert "NVIDIA H200 2 1 1 2 minutes 2026-01-01 2026-03-04" in text
    assert "AMD EPYC 2 1 1 1 minute 2026-02-03 2026-02-03" in text
    assert "3.13.1 2.13.0 1" in text
    assert "dddddddddd, cccccccccc changed 1 1" in text


def test_numbers_of_runs_stand_on_the_right() -> None:
    style = page(runs(PLAIN, [99.0])).partition("<style>")[2].partition("</style>")[0]
    right = {int(number) for number in re.findall(r"\.runs td:nth-child\((\d+)\) { text-align: right; }", style)}
    kinds = enumerate(COLUMNS.values(), 1)
    assert right == {number for number, column in kinds if column.kind == "number"}


def test_every_run_has_a_line() -> None:
    found = [
        *runs(PLAIN, [99.0, 99.25, 99.5]),
        run(f"{CBAM} protocol=heldout", 4, [9.0], tested=97.5),
        run(CBAM, 0, failed=True),
        run(f"{PLAIN} budget=smoke", 3, started="2026-02-02T10:00:00+00:00"),
        run(PLAIN.replace("mnist", "svhn"), 9, [9.0], chance_accuracy=9.8, started="2026-02-02T09:00:00+00:00"),
    ]
    lines = cells(page(found, study(), study(name="again")))
    assert [line["study"] for line in lines] == ["made_table1 again"] * 5 + ["", ""]
    first = next(line for line in lines if line["maximum %"] == "99.50")
    assert [first[name] for name in ("data", "network", "routing", "attention", "state", "verdict")] == [
        "mnist",
        "capsnet",
        "dynamic",
        "none",
        "finished",
        "compatible, imprecise open",
    ]
    assert first["parameters"] == "6,804,224"
    assert first["training"] == "all 250 epochs, bf16"
    heldout = next(line for line in lines if line["protocol"] == "heldout")
    assert heldout["held-out %"] == "97.50"
    assert heldout["maximum %"] == ""
    failed = next(line for line in lines if line["attention"] == "CBAM" and line["protocol"] == "paper")
    assert (failed["state"], failed["maximum %"]) == ("failed diverged", "")
    assert [(line["state"], line["started"]) for line in lines[5:]] == [
        ("finished didn't learn", "2026-02-02 09:00"),
        ("trial", "2026-02-02 10:00"),
    ]


def test_a_run_links_to_its_record() -> None:
    (link,) = [
        attributes["href"]
        for tag, attributes in Reader(page([run(PLAIN, 0)])).elements
        if "runs/" in str(attributes.get("href"))
    ]
    assert re.fullmatch(r"runs/capsnet-mnist-[0-9a-f]{16}\.json", str(link))


def test_nothing_is_taken_for_markup() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)> \"' onclick=alert(3) {{ 7 * 7 }} {% raw %}"
    failed = dataclasses.replace(run(PLAIN, 1, failed=True), error=evil)
    found = [run(PLAIN, 0, note=evil, device=evil, command=f"a b c {evil.replace(chr(39), '')}"), failed]
    found[0].provenance.update(commit=evil, python=evil)
    made = study(
        *(row(evil, PLAIN, note=evil, accuracy="99"), row("B", CBAM)),
        **dict.fromkeys(("name", "title", "source", "protocol"), evil),
        columns=[evil],
        deviations=[evil],
        claims=[claim(text=evil, pairs=[[evil, "B"]])],
    )
    drawn = [Picture(evil, evil, "data:,", (6, 4), evil, evil)]
    text = page(found, made, drawn=drawn, problems=[evil])
    read, plain = Reader(text), Reader(page([run(PLAIN, 0)]))
    assert read.open == []
    assert [tag for tag, _ in read.elements].count("script") == 2
    assert [attributes["src"] for tag, attributes in read.elements if tag == "img"] == ["data:,"]
    known = {name for _, attributes in plain.elements for name in attributes} | {"src", "alt", "width", "height"}
    assert {name for _, attributes in read.elements for name in attributes} <= known
    assert read.text.count("{{ 7 * 7 }} {% raw %}") > 15
    assert "49" not in re.findall(r"\b\d+\b", read.text)


def test_it_is_complete_in_one_file_and_can_load_nothing_else() -> None:
    text = page(runs(PLAIN, [99.0]), drawn=[Picture("a", "b", "data:image/png;base64,AA")])
    read = Reader(text)
    assert read.open == []
    addresses = [
        str(value) for _, attributes in read.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert [address for address in addresses if not address.startswith(("#", "data:", "runs/"))] == []
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [str(attributes["content"]) for _, attributes in read.elements if "http-equiv" in attributes]
    digests = {
        name: base64.b64encode(
            hashlib.sha256(text.partition(f"<{name}>")[2].partition(f"</{name}>")[0].encode()).digest()
        )
        for name in ("style", "script")
    }
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digests['style'].decode()}'; "
        f"script-src 'sha256-{digests['script'].decode()}'"
    )
    assert next(attributes for tag, attributes in read.elements if tag == "html") == {"lang": "en"}


def test_every_link_within_leads_somewhere() -> None:
    drawn = [Picture("fig", "a figure", "data:,")]
    made = [study(name=name, figures=["fig"]) for name in ("one", "two")]
    elements = Reader(page(runs(PLAIN, [99.0]), *made, drawn=drawn)).elements
    identities = [attributes["id"] for _, attributes in elements if "id" in attributes]
    links = {
        str(attributes["href"])[1:] for tag, attributes in elements if tag == "a" and str(attributes["href"])[0] == "#"
    }
    assert len(identities) == len(set(identities))
    assert {"made", "runs", "curves"} <= links
    assert {"one", "two", "figure-fig"} <= set(identities)
    assert links <= set(identities)


def test_figures_stand_once_with_their_source() -> None:
    drawn = [
        Picture("made_table1", "own", "data:,1", alt="What can be seen", caption="All 250 epochs."),
        Picture("extra", "named", "data:,3"),
    ]
    text = page(runs(PLAIN, [99.0]), study(figures=["extra"]), study(name="later", figures=["extra"]), drawn=drawn)
    section = text.partition('<section id="made"')[2].partition("</section>")[0]
    assert 'alt="What can be seen"' in section
    assert "<b>made_table1.</b> All 250 epochs." in section
    assert section.count("data:,3") == text.count("data:,3") == 1


def test_a_figure_stands_in_the_page_as_it_is_drawn_with_its_caption(tmp_path: Path) -> None:
    names = list(FIGURES)
    svg = b'<svg width="720pt" viewBox="0 0 504 324.5"><path stroke="#009E73"/></svg>\n'
    for name, content in ((names[0], svg), (names[1], svg[:-10]), (names[2], b"<b>")):
        (tmp_path / f"{name}.svg").write_bytes(content)
    (tmp_path / f"{names[0]}.txt").write_text("It rises.\nBand: its spread.\n")
    (picture,) = pictures.load(tmp_path).values()  # damaged ones are not drawn
    kind, _, content = picture.address.partition(",")
    assert (kind, base64.b64decode(content)) == ("data:image/svg+xml;base64", svg)
    assert (picture.name, picture.size, picture.alt) == (names[0], (504, 324), "It rises.")
    assert picture.caption == "Band: its spread."


def test_every_verdict_has_a_meaning() -> None:
    holds = {"supported", "no difference, shown", "reproduced", "equal"}
    differs = {"contradicted", "ours is higher", "ours is lower", "different"}
    for verdict in [*summary.ORDER, "not run", "untested"]:
        expected = HOLDS if verdict in holds else DIFFERS if verdict in differs else OPEN
        assert meaning(verdict) == meaning(Verdict(f"{verdict} so far", verdict)) == expected


# The file

SCRIPT = "scripts/report.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small study and three runs of it, as the present one."""
    write(tmp_path / "results", runs(PLAIN, [99.7, 99.8, 99.9]))
    return project(tmp_path, monkeypatch, one=PLAIN)


def test_it_is_written_once(folder: Path, program: Program) -> None:
    code, (printed,), _ = program(SCRIPT)
    assert code == 0
    assert re.fullmatch(r"wrote results/report\.html, 0\.\d\d MB", printed)
    written = folder / "results" / "report.html"
    before = written.read_bytes(), written.stat().st_mtime_ns
    assert program(SCRIPT) == (0, [], [])
    assert (written.read_bytes(), written.stat().st_mtime_ns) == before


def test_a_check_writes_nothing_and_finds_what_differs(folder: Path, program: Program) -> None:
    different = 1, [], ["error: results/report.html: not what the records give; make report"]
    assert program(SCRIPT, "--check") == (0, [], [])  # a page that isn't there is not compared
    assert not (folder / "results" / "report.html").exists()
    program(SCRIPT)
    assert program(SCRIPT, "--check") == (0, [], [])
    before = (folder / "results" / "report.html").read_bytes()
    write(folder / "results", [run(CBAM, 0)])
    assert program(SCRIPT, "--check") == different
    assert (folder / "results" / "report.html").read_bytes() == before


def test_a_page_on_chosen_studies(folder: Path, program: Program) -> None:
    code, (printed,), _ = program(SCRIPT, "one", "--output", "one.html")
    assert code == 0
    assert printed.startswith("wrote one.html, ")
    assert program(SCRIPT, "one", "--output", "one.html", "--check", "paths.results=results") == (0, [], [])


def test_the_answers_picture_is_of_all_studies_and_not_of_chosen_ones(folder: Path, program: Program) -> None:
    drawn = folder / "results" / "figures" / "answer_light.svg"
    drawn.parent.mkdir()
    drawn.write_text('<svg viewBox="0 0 830 420"></svg>')
    for names, count in (((), 1), (("one",), 0)):
        assert program(SCRIPT, *names)[0] == 0
        assert (folder / "results" / "report.html").read_text().count('<img class="answer"') == count


def test_files_that_are_no_records_are_named_on_the_page_and_on_the_screen(folder: Path, program: Program) -> None:
    (folder / "results" / "runs" / "a.json").write_text("[<b>]")
    code, _, (error,) = program(SCRIPT)
    assert code == 1
    assert error.startswith("error: results/runs/a.json: not a record")
    read = Reader((folder / "results" / "report.html").read_text())
    assert "results/runs/a.json: not a record" in read.text
    assert "99.80 ± 0.10 (3)" in read.text


def test_elsewhere_it_links_to_the_records_from_there(folder: Path, program: Program) -> None:
    (folder / "a b").mkdir()
    (folder / "results").rename(folder / "a b" / "results")
    assert program(SCRIPT, "--results", "a b/results", "--output", "pages/deep/it.html")[0] == 0
    assert 'href="../../a%20b/results/runs/capsnet-mnist-' in (folder / "pages" / "deep" / "it.html").read_text()


def test_no_records_are_a_page_too(folder: Path, program: Program) -> None:
    shutil.rmtree(folder / "results" / "runs")
    assert program(SCRIPT)[0] == 0
    read = Reader((folder / "results" / "report.html").read_text())
    assert "No claim has been tested yet." in read.text
    assert "No runs." in read.text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--results", "nowhere"], 2, "nowhere: no such folder; the records are in results/runs"),
        (["--output", "results/runs"], 1, "results/runs: Is a directory"),
        (["--output", "README/report.html"], 1, "README: File exists"),
    ],
)
def test_errors_are_one_line(folder: Path, program: Program, arguments: list[str], code: int, message: str) -> None:
    (folder / "README").write_text("a file")
    assert program(SCRIPT, *arguments) == (code, [], [f"error: {message}"])
