"""Evaluates a trained network on test images.

capsexp evaluate checkpoint=PATH [data=NAME] [robustness=true] [output=FILE] [KEY=VALUE ...]

  checkpoint   a run's folder below paths.logs (its best.ckpt, else its last.ckpt), or one of the files in it
  data         another data set, with images of the same size, channels and classes; by default the run's own
  robustness   true: also the accuracy when all images are rotated, sheared or scaled
  output       a file for all the numbers, as JSON
  KEY=VALUE    data.root, data.download, trainer.accelerator, trainer.precision, trainer.eval_batch_size,
               budget.test_images (the first so many; null: all)
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from capsexp.cli import end_with, own_words
from capsexp.errors import InputError
from capsexp.files import write_file

if TYPE_CHECKING:
    import pandas as pd

    from capsexp.evaluate.evaluation import Evaluation
    from capsexp.inspect.restore import Restored

KEYS = {
    "checkpoint": "a run's folder or a checkpoint in it",
    "output": "a file to write",
    "robustness": "true or false",
}
MANY = 20  # classes: of more, the ten worst are printed and no matrix
PIPED_WIDTH = 200  # columns of a table where the output is no terminal


def main(words: list[str]) -> None:
    """Runs the command; raises InputError for wrong input."""
    given, overrides = own_words(words, KEYS)
    if "checkpoint" not in given:
        raise InputError(f"checkpoint: missing; must be {KEYS['checkpoint']}")
    under_maps = given.get("robustness", "false")
    if under_maps not in ("true", "false"):
        raise InputError(f"robustness={under_maps}: must be {KEYS['robustness']}")
    output = Path(given["output"]) if "output" in given else None
    if output is not None and output.is_dir():
        raise InputError(f"output={output}: is a folder; must be {KEYS['output']}")

    from capsexp.evaluate.evaluation import evaluate  # torch takes seconds to import: after the checks
    from capsexp.evaluate.robustness import GRID, robustness
    from capsexp.inspect.restore import restore
    from capsexp.run.environment import forbid_tf32

    forbid_tf32()
    restored = restore(Path(given["checkpoint"]), None, overrides)
    evaluation = evaluate(restored, _log)
    print_evaluation(restored, evaluation)
    maps = None
    if under_maps == "true":
        _log(f"under {sum(map(len, GRID.values()))} affine maps …")
        maps = robustness(restored, log=_log)
        print_robustness(maps)
    if output is not None:
        content = to_json(restored, evaluation, maps)
        write_file(output, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        print(f"wrote {output}")


def to_json(restored: "Restored", evaluation: "Evaluation", maps: "pd.DataFrame | None") -> dict[str, Any]:
    """All numbers of an evaluation; null where they are undefined."""
    classes = evaluation.classes.astype(object).where(evaluation.classes.notna(), None)
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
        "loss": evaluation.loss if math.isfinite(evaluation.loss) else None,
        "classes": classes.reset_index(names="class").to_dict("records"),
        "confusion": None if evaluation.confusion is None else evaluation.confusion.to_numpy().tolist(),
        "robustness": None if maps is None else maps.to_dict("records"),
    }


def print_evaluation(restored: "Restored", evaluation: "Evaluation") -> None:
    """Prints accuracy, loss and the tables of the classes; of many classes only the worst."""
    note = f" ({evaluation.note})" if evaluation.note else ""
    place = f"on {restored.module.device.type} in {restored.precision}"
    right = "accuracy" if evaluation.confusion is not None else "accuracy (exactly the right set of classes)"
    print(f"{restored.name}, {restored.path.name}, after epoch {restored.epoch}")
    print(f"{evaluation.images:,} test images of {restored.config.data.name}{note}, {place}")
    print(f"{right} {evaluation.accuracy:.2f} %, loss {evaluation.loss:.4f}\n")
    shown, title = evaluation.classes, "by class"
    if len(shown) > MANY:
        title = f"the ten worst of {len(shown)} classes (output=FILE has all)"
        shown = shown.sort_values("f1", kind="stable", na_position="last").head(10)
    rows = [
        [str(name), *("–" if math.isnan(value) else f"{value:.2f}" for value in percents), f"{images:,}"]
        for name, *percents, images in shown.itertuples()
    ]
    _print_table(title, ["class", "precision %", "recall %", "F1 %", "images"], rows)
    if evaluation.confusion is not None:
        _print_confusion(evaluation.confusion)


def print_robustness(maps: "pd.DataFrame") -> None:
    """Prints the accuracies under affine maps, two columns a kind of map."""
    titles, columns = [], []
    for kind, of_kind in maps.groupby("map", sort=False):
        titles += ["rotation °" if kind == "rotation" else str(kind), "%"]
        columns += [[f"{value:g}" for value in of_kind.value], [f"{accuracy:.2f}" for accuracy in of_kind.accuracy]]
    rows = list(zip(*columns, strict=True))
    _print_table("accuracy when all images are rotated, sheared or scaled", titles, rows, text_columns=0)


def _print_confusion(confusion: "pd.DataFrame") -> None:
    from capsexp.evaluate.evaluation import most_confused

    names = [str(name) for name in confusion]
    if len(names) <= MANY:
        numbers = [str(number) for number in range(len(names))]
        rows = [
            [number if name == number else f"{number} {name}", *(str(count or "·") for count in counts)]
            for number, name, counts in zip(numbers, names, confusion.to_numpy().tolist(), strict=True)
        ]
        _print_table("images by true class (rows) and prediction (columns)", ["", *numbers], rows, whole=True)
    pairs = [[true, predicted, str(images)] for true, predicted, images in most_confused(confusion, 10)]
    if pairs:
        _print_table("most often confused", ["true class", "prediction", "images"], pairs, text_columns=2)


def _print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1, whole: bool = False
) -> None:
    """Prints a table.

    Args:
        text_columns: the number of columns that are left-aligned; the others are numbers.
        whole: on a terminal too narrow for the table, prints the width that it needs, in place of wrapped cells.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    table = Table(box=SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    needed = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    console.print(title, markup=False)
    if whole and needed > console.width:
        console.print(f"(needs {needed} columns; this screen has {console.width})")
    else:
        console.print(table)
    console.print()


def _log(line: str) -> None:
    print(line, file=sys.stderr)


def run() -> NoReturn:
    """Runs the command line and exits; see `capsexp.cli.end_with`."""
    end_with(main, __doc__)


if __name__ == "__main__":
    run()
