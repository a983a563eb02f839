"""Classifies images in files by a trained network: `capsexp predict logs/RUN new/*.png --output=classes.csv`.

Prints a line a file: the class with the highest score, the next best, and their scores. RUN is a run's folder below
paths.logs (its best.ckpt, else its last.ckpt), or one of the files in it. Images of any size, grey or in colour, are
brought to the network's size and channels as data=folder brings those that it is trained on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capsexp.cli import Parser, end_with, folder
from capsexp.errors import printable
from capsexp.files import write_file

if TYPE_CHECKING:
    import pandas as pd

    from capsexp.run.restore import Restored


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input."""
    parser = Parser(__doc__, "capsexp predict")
    parser.add_argument("run", type=folder, metavar="RUN", help="a run's folder or a checkpoint in it")
    parser.add_argument("files", type=folder, nargs="+", metavar="FILE", help="images")
    parser.add_argument("--output", type=folder, metavar="FILE", help="write the table, with all digits, as CSV")
    options = parser.parse_args(arguments)

    from capsexp.run.restore import restore  # torch takes seconds to import

    table = predictions(restore(options.run, None), options.files)
    shown = table.assign(file=[printable(str(file)) for file in table.file])
    print(shown.to_string(index=False, float_format="{:.4f}".format))
    if options.output:
        write_file(options.output, table.to_csv(index=False))
        print(f"wrote {options.output}")


def predictions(restored: "Restored", files: Sequence[Path]) -> "pd.DataFrame":
    """A row a file: file, class, score, next (the next best class), next_score.

    Raises InputError that names the files which are no images.
    """
    import pandas as pd
    import torch

    from capsexp.data.folder import pictures
    from capsexp.data.reader import fit
    from capsexp.data.source import class_names

    data, device = restored.config.data, restored.module.device
    pixels = fit(pictures(files, data.size, data.channels), data.size, data.channels, data.name)
    batches = torch.split(torch.from_numpy(pixels), restored.config.trainer.eval_batch_size)
    scores = torch.cat([restored(batch.to(device).float() / 255).scores.float().cpu() for batch in batches])
    (first, second), names = zip(*scores.topk(2).indices.tolist(), strict=True), class_names(data)
    best, following = scores.topk(2).values.unbind(1)
    return pd.DataFrame(
        {
            "file": files,
            "class": [names[label] for label in first],
            "score": best.numpy(),
            "next": [names[label] for label in second],
            "next_score": following.numpy(),
        }
    )


if __name__ == "__main__":
    end_with(main)
