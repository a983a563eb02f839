"""A page's tables in LaTeX, for a document that uses booktabs and graphicx."""

import pandas as pd

from capsexp.results.pages import Page, Table, one_line

#: The tables that go into a document.
PRINTED = ("Accuracy", "First epoch to the maximum")

#: Characters that TeX takes for commands, and those that its standard fonts lack; pandas escapes only the former.
SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"{{{character}}}" for character in "[]*"}  # behind a line break they would be its options
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "÷": r"$\div$", "·": r"$\cdot$", "√": r"$\surd$", "²": "$^2$"}
    | {"→": r"$\to$", "≤": r"$\le$", "≥": r"$\ge$", "‖": r"$\|$", "λ": r"$\lambda$"}
    | {"–": "--", "—": "---", "…": r"\ldots{}", "“": "``", "”": "''"}
)


def document(page: Page) -> str:
    """A table environment for each table; one wider than the text is shrunk to its width."""
    tables = [table for table in page.tables if table.title in PRINTED]
    return "\n".join(_environment(page, table, f"{page.name}-{index}") for index, table in enumerate(tables))


def _environment(page: Page, table: Table, label: str) -> str:
    sentences = [f"{page.title}. {table.title}", *table.notes, *table.remarks]
    caption = " ".join(text if text.endswith((".", "?", "!")) else f"{text}." for text in sentences)
    frame = pd.DataFrame([[*map(_escaped, row)] for row in table.rows], columns=[*map(_escaped, table.columns)])
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_escaped(caption)}}}",
        rf"  \label{{tab:{label}}}",
        r"  \par\medskip",
        r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        frame.to_latex(index=False, escape=False, column_format=table.alignment).rstrip() + "}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return one_line(text).translate(SPECIAL)
