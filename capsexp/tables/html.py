"""Makes one HTML file of all result pages, which needs no network: `capsexp report`.

The pages are results/README.md and results/tables/*.md, as they are there; `make tables` writes them first.
"""

import base64
import os
import re
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt

from capsexp.cli import Parser, check_new, folder
from capsexp.errors import InputError
from capsexp.files import write_output
from capsexp.tables.markdown import slug

TYPES = {".svg": "svg+xml", ".png": "png"}  # of pictures

#: The policy forbids scripts and all that is loaded, whatever stands in a page.
HEAD = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>capsexp: results</title>
<style>
:root { color-scheme: light; --ink: #1f2328; --rule: #d1d9e0; --link: #0969da; --paper: #fff }
body { max-width: 980px; margin: auto; padding: 16px; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word }
article + article { margin-top: 64px; border-top: 4px solid var(--rule) }
a, summary { color: var(--link) }
summary { cursor: pointer }
img { max-width: 100%; height: auto; vertical-align: top }
table { display: block; width: max-content; max-width: 100%; overflow-x: auto; border-collapse: collapse;
  margin: 16px 0; font-variant-numeric: tabular-nums }
th, td { padding: 5px 10px; border: 1px solid var(--rule); vertical-align: top }
pre { padding: 12px; overflow-x: auto; border: 1px solid var(--rule); font-size: 13px }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ink: #e6edf3; --rule: #3d444d; --link: #4493f8; --paper: #0d1117 }
}
@media screen and (max-width: 640px) {
  table { font-size: 14px } th, td { padding: 4px 6px }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt }
  article + article { break-before: page; border: 0; margin: 0 }
  details::details-content { content-visibility: visible }
  img, tr { break-inside: avoid }
  table { display: table; width: auto; font-size: 8pt }
  pre { white-space: pre-wrap }
}
</style>
"""

_TAG = re.compile(r'<[a-z](?:[^>"]|"[^"]*")*>')
_ADDRESS = re.compile(r'\b(href|src|srcset)="([^"]*)"')
_HEADING = re.compile(r"<(h[1-6])>(.*?)(?=</\1>)")


def main(arguments: list[str] | None = None) -> None:
    """Writes the file."""
    parser = Parser(__doc__, "capsexp report")
    parser.add_argument("--results", type=folder, default=Path("results"), metavar="DIR", help="with the pages")
    parser.add_argument("--output", type=folder, metavar="FILE", help="the file (default: RESULTS/report.html)")
    options = parser.parse_args(arguments)
    output = options.output or options.results / "report.html"
    pages = [*options.results.glob("README.md"), *sorted((options.results / "tables").glob("*.md"))]
    if not pages:
        raise InputError(f"{options.results}: has no pages; capsexp tables writes them")
    if output.resolve() in {page.resolve() for page in pages}:
        raise InputError(f"--output={output}: is read here; must be another file")
    check_new(output, own=HEAD.partition(" content=")[0])
    content = document(pages, output.parent)
    write_output(output, content)
    print(f"wrote {output}, {len(content.encode()) / 1e6:.2f} MB")


def document(pages: list[Path], folder: Path) -> str:
    """The HTML file of these Markdown files.

    Args:
        folder: the file's, to which addresses of other local files are relative.
    """
    names = {page.resolve(): page.stem for page in pages}
    return HEAD + "".join(_article(page, names, folder) for page in pages)


def _article(page: Path, names: dict[Path, str], folder: Path) -> str:
    """A page, with its headings as targets of links."""
    text = page.read_text(encoding="utf-8", errors="replace")
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    html = _HEADING.sub(lambda found: f'<{found[1]} id="{page.stem}-{slug(found[2])}">{found[2]}', html)
    html = _TAG.sub(lambda tag: _with_addresses(tag[0], page, names, folder), html)
    return f'<article id="{page.stem}">\n{html}</article>\n'


def _with_addresses(tag: str, page: Path, names: dict[Path, str], folder: Path) -> str:
    """A tag of a page with pictures as data and links to pages as anchors; paper gets the wide, light picture."""

    def address(found: re.Match[str]) -> str:
        attribute, text = found.groups()
        file, _, fragment = text.partition("#")
        target = page.parent / unquote(file) if file else page
        if re.match(r"[a-z]+:|//", text, re.IGNORECASE):
            return found[0]
        if attribute != "href" and target.suffix in TYPES and target.is_file():
            text = f"data:image/{TYPES[target.suffix]};base64,{base64.b64encode(target.read_bytes()).decode()}"
        elif name := names.get(target.resolve()):
            text = "#" + "-".join(filter(None, [name, fragment]))
        else:
            text = os.path.relpath(page.parent / file, folder) + f"#{fragment}" * bool(fragment)
        return f'{attribute}="{text}"'

    return _ADDRESS.sub(address, tag).replace('media="(', 'media="screen and (')
