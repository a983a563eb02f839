"""A page's tables in LaTeX, for a document that uses booktabs and tabularx: as wide as the text, in small type."""

from dataclasses import replace

from capsexp.tables.pages import Note, Page, Table
from capsexp.tables.texts import one_line

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
    """A table environment for each table that goes into a document."""
    tables = [_narrowed(table) for table in page.tables if table.in_tex]
    return "\n".join(_environment(page, table, f"{page.name}-{number}") for number, table in enumerate(tables))


def _narrowed(table: Table) -> Table:
    """The table without details and all labels but the row's name; trainings are letters, or one note for all."""
    kinds, rows, notes = table.kinds, table.rows, [note for note in table.notes if note.in_tex]
    if (column := kinds.find("t")) >= 0:
        trainings = list(dict.fromkeys(row[column] for row in rows if row[column]))
        letters = {text: chr(ord("a") + number) for number, text in enumerate(trainings)}
        one = len(trainings) == 1
        kinds = f"{kinds[:column]}{'d' if one else 'r'}{kinds[column + 1 :]}"
        rows = [[*row[:column], letters.get(row[column], ""), *row[column + 1 :]] for row in rows]
        listed = trainings[0] if one else "; ".join(f"{letter}: {text}" for text, letter in letters.items())
        notes.append(Note(f"Training: {listed}."))
    kept = [index for index, kind in enumerate(kinds) if kind not in "nd" or index == 0]
    return replace(
        table,
        columns=[table.columns[index] for index in kept],
        kinds="".join(kinds[index] for index in kept),
        rows=[[row[index] for index in kept] for row in rows],
        notes=notes,
    )


def _environment(page: Page, table: Table, label: str) -> str:
    import pandas as pd  # see generate.csv

    sentences = [f"{page.title}. {table.title}", *(note.text for note in table.notes), *table.remarks]
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
