"""How well a trained network does on test images.

python -m capsexp.evaluate checkpoint=PATH [data=NAME] [robustness=true] [output=FILE] [KEY=VALUE ...]

  checkpoint   a run's folder below paths.logs (its best.ckpt, else its last.ckpt), or one of the files in it
  data         another data set, with images of the same size, channels and classes; by default the run's own
  robustness   true: also the accuracy when all images are turned, sheared or scaled
  output       a file for all the numbers, as JSON
  KEY=VALUE    data.root, data.download, trainer.accelerator, trainer.precision, trainer.eval_batch_size,
               budget.test_images (the first so many; null: all)
"""

import json
import math
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsexp.cli import end_with, own_words
from capsexp.errors import InputError
from capsexp.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

    from capsexp.evaluate.evaluation import Evaluation
    from capsexp.inspect.restore import Restored

WORDS = {
    "checkpoint": "a run's folder or a checkpoint in it",
    "output": "a file to write",
    "robustness": "true or false",
}
MANY = 20  # classes: of more, the screen shows the ten worst and no matrix
PIPED_WIDTH = 200  # characters, where there is no screen


def main(words: list[str]) -> None:
    """Evaluates a checkpoint, prints what came out and writes it where asked; raises InputError."""
    given, typed = own_words(words, WORDS)
    if "checkpoint" not in given:
        raise InputError(f"checkpoint: missing; must be {WORDS['checkpoint']}")
    mapped = given.get("robustness", "false")
    if mapped not in ("true", "false"):
        raise InputError(f"robustness={mapped}: must be {WORDS['robustness']}")
    output = Path(given["output"]) if "output" in given else None
    if output is not None and output.is_dir():
        raise InputError(f"output={output}: is a folder; must be {WORDS['output']}")

    from capsexp.evaluate.evaluation import evaluate  # torch takes seconds to import: only for words that hold
    from capsexp.evaluate.robustness import GRID, robustness
    from capsexp.inspect.restore import restore

    restored = restore(Path(given["checkpoint"]), None, typed)
    evaluation = evaluate(restored, _say)
    show(restored, evaluation)
    maps = None
    if mapped == "true":
        _say(f"under {sum(map(len, GRID.values()))} affine maps …")
        maps = robustness(restored, say=_say)
        show_maps(maps)
    if output is not None:
        text = json.dumps(content(restored, evaluation, maps), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(output, lambda stream: stream.write(text.encode()))
        print(f"wrote {output}")


def content(restored: "Restored", evaluation: "Evaluation", maps: "pd.DataFrame | None") -> dict[str, Any]:
    """All numbers, as JSON has them; null for shares of nothing."""
    classes = evaluation.classes.rename_axis("class").reset_index().to_dict("records")
    return {
        "checkpoint": str(restored.path),
        "run": restored.name,
        "epoch": restored.epoch,
        "data": restored.config.data.name,
        "note": evaluation.note,
        "device": restored.module.device.type,
        "precision": restored.precision,
        "images": evaluation.images,
        "accuracy": evaluation.accuracy,
        "loss": _finite(evaluation.loss),
        "classes": [{key: _finite(value) for key, value in row.items()} for row in classes],
        "confusion": None if evaluation.confusion is None else evaluation.confusion.to_numpy().tolist(),
        "robustness": None if maps is None else maps.to_dict("records"),
    }


def show(restored: "Restored", evaluation: "Evaluation") -> None:
    """Prints an evaluation; of many classes only the worst."""
    note = f" ({evaluation.note})" if evaluation.note else ""
    device, classes = restored.module.device.type, evaluation.classes
    print(f"{restored.name}, {restored.path.name}, after epoch {restored.epoch}")
    print(
        f"{evaluation.images:,} test images of {restored.config.data.name}{note}, on {device} in {restored.precision}"
    )
    right = "accuracy" if evaluation.confusion is not None else "accuracy (exactly the right set of classes)"
    print(f"{right} {evaluation.accuracy:.2f} %, loss {evaluation.loss:.4f}\n")
    many = len(classes) > MANY
    shown = classes.sort_values("f1", kind="stable", na_position="last").head(10) if many else classes
    rows = [[str(row.Index), *map(_percent, row[1:4]), f"{row.images:,}"] for row in shown.itertuples()]
    title = f"the ten worst of {len(classes)} classes (output=FILE has all)" if many else "by class"
    _print_table(title, ["class", "precision %", "recall %", "F1 %", "images"], rows)
    if evaluation.confusion is not None:
        _show_confusion(evaluation.confusion)


def show_maps(maps: "pd.DataFrame") -> None:
    """Prints the accuracies under affine maps, kind beside kind."""
    kinds = {str(kind): part for kind, part in maps.groupby("map", sort=False)}
    columns = [[(f"{row.value:g}", f"{row.accuracy:.2f}") for row in part.itertuples()] for part in kinds.values()]
    rows = [[word for pair in line for word in pair] for line in zip_longest(*columns, fillvalue=("", ""))]
    names = {"rotation": "rotation °"}
    titles = [title for kind in kinds for title in (names.get(kind, kind), "%")]
    _print_table("accuracy when all images are turned, sheared or scaled", titles, rows, words=0)


def _show_confusion(confusion: "pd.DataFrame") -> None:
    from capsexp.evaluate.evaluation import most_confused

    names = [str(name) for name in confusion]
    if len(names) <= MANY:
        numbers = [str(number) for number in range(len(names))]
        rows = [
            [number if name == number else f"{number} {name}", *(str(count or "·") for count in counts)]
            for number, name, counts in zip(numbers, names, confusion.to_numpy().tolist(), strict=True)
        ]
        _print_table("images by true class (rows) and answer (columns)", ["", *numbers], rows, whole=True)
    pairs = [[true, answer, str(images)] for true, answer, images in most_confused(confusion, 10)]
    if pairs:
        _print_table("most often confused", ["true class", "answer", "images"], pairs, words=2)


def _print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1, whole: bool = False
) -> None:
    """Prints a table, of Markdown's form.

    Args:
        words: so many columns stand left, the others are numbers.
        whole: rather not at all than broken up, on a narrow screen.
    """
    from rich.box import MARKDOWN
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    table = Table(box=MARKDOWN, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    wide = console.options.update(max_width=10_000)
    needed = console.measure(table, options=wide).maximum
    console.print(title, markup=False)
    if whole and needed > console.width:
        console.print(f"(needs {needed} columns; this screen has {console.width})")
    else:
        console.print(table)


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.2f}"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    end_with(main, __doc__)
