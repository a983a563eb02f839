"""The pages of results as one HTML file: links, pictures, what texts of records can't do."""

import base64
import re
from pathlib import Path

import pytest
from made import PLAIN, results, row, runs, study
from support import refused

from capsexp.tables import markdown
from capsexp.tables.html import document, main
from capsexp.tables.pages import page

HOSTILE = '<img src=x onerror=alert(1)> [link](javascript:alert(1)) ``` </details><script>alert(1)</script> " | &lt;'


def made(folder: Path, readme: str, **tables: str) -> Path:
    """A results folder with pages and a picture."""
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True)
    (folder / "README.md").write_text(readme)
    (folder / "figures" / "a_light.svg").write_text("<svg/>")
    for name, text in tables.items():
        (folder / "tables" / f"{name}.md").write_text(text)
    return folder


def written(folder: Path) -> str:
    """The file that the command writes."""
    main([f"--results={folder}"])
    return (folder / "report.html").read_text()


def test_links_between_pages_are_anchors_and_others_lead_where_they_led(tmp_path: Path) -> None:
    links = "[a](tables/one.md) [b](tables/one.md#the-runs) [c](#top) [d](https://example.org/x.md) [e](runs)"
    made(tmp_path, f"# Top\n\n{links}", one="## The *runs*\n\n[back](../README.md) [f](../runs/r.json#L1)")
    html = written(tmp_path)
    assert re.findall('href="(.*?)"', html) == [
        *("#one", "#one-the-runs", "#README-top", "https://example.org/x.md", "runs", "#README", "runs/r.json#L1")
    ]
    for name in ("one", "one-the-runs", "README-top", "README"):
        assert f' id="{name}"' in html
    other = document([tmp_path / "tables" / "one.md"], tmp_path.parent)
    assert f'href="{tmp_path.name}/README.md"' in other


def test_pictures_are_in_the_file_by_theme_and_nothing_is_loaded(tmp_path: Path) -> None:
    dark = '<source media="(prefers-color-scheme: dark)" srcset="../figures/b_dark.svg">'
    light = '<img src="../figures/a_light.svg" alt="a > b">'
    made(tmp_path, "![a](figures/a_light.svg)", one=f"<picture>\n{dark}\n{light}\n</picture>\n")
    (tmp_path / "figures" / "b_dark.svg").write_text("<svg id='b'/>")
    html = written(tmp_path)
    a, b = (base64.b64encode(text).decode() for text in (b"<svg/>", b"<svg id='b'/>"))
    assert html.count(f'src="data:image/svg+xml;base64,{a}"') == 2
    assert f'media="screen and (prefers-color-scheme: dark)" srcset="data:image/svg+xml;base64,{b}"' in html
    assert not re.search(r'(src|srcset)="(?!data:)', html)
    assert "default-src 'none'; img-src data:" in html


def test_a_text_of_a_study_or_a_record_is_no_markup(tmp_path: Path) -> None:
    rows = row(HOSTILE, PLAIN, accuracy="90.0"), row("B", PLAIN.replace("=none", "=cbam"))
    texts = study(*rows, title=HOSTILE, protocol=HOSTILE, deviations=[HOSTILE])
    shown = markdown.document(page(results(texts, runs(PLAIN, [90.0, 91.0]))))
    html = written(made(tmp_path, "# Results", one=shown))
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") >= 4
    assert not re.search(r"<(script|img)|href=.javascript|<[a-z][^>]* on\w+=", html.partition("<article")[2])
    assert html.count("</details>") == html.count("<details>") == 2


def test_fences_and_details_are_shown(tmp_path: Path) -> None:
    made(tmp_path, "<details><summary>More</summary>\n\n```\na < b\n```\n\n| a |\n| --: |\n| 1 |\n\n</details>")
    html = written(tmp_path)
    assert "<pre><code>a &lt; b" in html
    assert "<td" in html


@pytest.mark.parametrize(
    ("word", "line"),
    [("", "has no pages"), ("--output={}/README.md", "is read here"), ("--output={}", "exists already")],
)
def test_wrong_input_is_one_line(tmp_path: Path, word: str, line: str) -> None:
    folder = made(tmp_path / "results", "# Results") if word else tmp_path
    assert line in refused(main, [f"--results={folder}", *filter(None, [word.format(folder)])])
