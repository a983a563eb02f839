"""A page's tables in LaTeX, for a document that uses booktabs and tabularx: as wide as the text, in small type."""

from dataclasses import replace

import pandas as pd

from capsexp.tables.pages import RULE, Page, Table
from capsexp.tables.texts import one_line

#: The tables that go into a document.
PRINTED = ("Accuracy", "First epoch to the maximum")

#: Columns of the page that a printed line has no room for.
LEFT_OUT = ("last epoch", "one more run")

#: Characters that TeX takes for commands, and those that its standard fonts lack; pandas escapes only the former.
SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#{}"}
    | {character: f"{{{character}}}" for character in "[]*"}  # behind a line break they would be its options
    | {"_": r"\_\allowbreak{}", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {
        "±": r"$\pm$",
        "−": "$-$",
        "×": r"$\times$",
        "÷": r"$\div$",
        "·": r"$\cdot$",
        "√": r"$\surd$",
        "²": "$^2$",
        "†": r"$\dagger$",
    }
    | {"→": r"$\to$", "≤": r"$\le$", "≥": r"$\ge$", "‖": r"$\|$", "λ": r"$\lambda$"}
    | {"–": "--", "—": "---", "…": r"\ldots{}", "“": "``", "”": "''"}
)


def document(page: Page) -> str:
    """A table environment for each table."""
    tables = [_narrowed(table) for table in page.tables if table.title in PRINTED]
    return "\n".join(_environment(page, table, f"{page.name}-{index}") for index, table in enumerate(tables))


def _narrowed(table: Table) -> Table:
    """The table without LEFT_OUT and all labels but the row's name; trainings are letters, or one note for all.

    `alignment` is l for texts, which can have several lines, and r for the rest.
    """
    labels = len(table.alignment) - len(table.alignment.lstrip("l"))
    unneeded = RULE.lower(), *(f"{name}:" for name in LEFT_OUT)
    notes = [note for note in table.notes if not note.lower().startswith(unneeded)]
    left_out = {*range(1, labels), *(place for place, name in enumerate(table.columns) if name in LEFT_OUT)}
    rows, alignment = table.rows, table.alignment
    if "training" in table.columns:
        place = table.columns.index("training")
        trainings = list(dict.fromkeys(row[place] for row in rows if row[place]))
        if len(trainings) == 1:
            left_out.add(place)
            notes.append(f"Training: {trainings[0]}.")
        else:
            letters = {text: chr(ord("a") + number) for number, text in enumerate(trainings)}
            notes.append(f"Training: {'; '.join(f'{letter}: {text}' for text, letter in letters.items())}.")
            rows = [[*row[:place], letters.get(row[place], ""), *row[place + 1 :]] for row in rows]
            alignment = f"{alignment[:place]}r{alignment[place + 1 :]}"
    kept = [place for place in range(len(table.columns)) if place not in left_out]
    return replace(
        table,
        columns=[table.columns[place] for place in kept],
        alignment="".join(alignment[place] for place in kept),
        rows=[[row[place] for place in kept] for row in rows],
        notes=notes,
    )


def _environment(page: Page, table: Table, label: str) -> str:
    sentences = [f"{page.title}. {table.title}", *table.notes, *table.remarks]
    caption = " ".join(text if text.endswith((".", "?", "!")) else f"{text}." for text in sentences)
    frame = pd.DataFrame([[*map(_escaped, row)] for row in table.rows], columns=[*map(_escaped, table.columns)])
    columns = table.alignment.replace("l", r">{\raggedright\arraybackslash}X")
    tabular = frame.to_latex(index=False, escape=False, column_format=columns).rstrip()
    lines = [
        r"\begin{table}",
        r"  \centering\scriptsize\setlength{\tabcolsep}{3pt}\renewcommand{\arraystretch}{0.8}",
        rf"  \caption{{{_escaped(caption)}}}",
        rf"  \label{{tab:{label}}}",
        r"  \par\smallskip",
        tabular.replace(r"\begin{tabular}", r"\begin{tabularx}{\linewidth}").replace("{tabular}", "{tabularx}"),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return one_line(text).translate(SPECIAL)
