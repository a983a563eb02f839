"""A sheet as a LaTeX table, for a document that uses booktabs and graphicx."""

from collections.abc import Sequence

from capsexp.results.sheets import Sheet

#: What TeX would take for a command, and what its standard fonts don't have.
SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # not the optional argument of the line break before it
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "λ": r"$\lambda$",
    "√": r"$\surd$",
    "‖": r"$\|$",
    "²": r"$^2$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "\n": " ",
}


def escaped(text: str) -> str:
    """Any text as TeX prints it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def document(title: str, name: str, sheets: Sequence[Sheet]) -> str:
    """One table environment a sheet; what is wider than the lines of the document is made as wide."""
    return "\n".join(
        _environment(f"{title}. {sheet.title}.", f"{name}-{index}", sheet) for index, sheet in enumerate(sheets)
    )


def _environment(caption: str, label: str, sheet: Sheet) -> str:
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(' '.join(map(_sentence, [caption, *sheet.captions, *sheet.marks])))}}}",
        rf"  \label{{tab:{label}}}",
        r"  \par\medskip",
        r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"  \begin{{tabular}}{{{sheet.alignment}}}",
        r"    \toprule",
        _row(sheet.columns),
        r"    \midrule",
        *map(_row, sheet.rows),
        r"    \bottomrule",
        r"  \end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _row(cells: Sequence[str]) -> str:
    return "    " + " & ".join(map(escaped, cells)) + r" \\"
