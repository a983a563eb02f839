"""What the cells and verdicts say: the tables as Markdown, CSV, LaTeX and on the screen; the README's block."""
