"""The main job, small: CapsNet without and with CBAM on the packaged MNIST sample, then a table of both.

`python scripts/demo.py [KEY=VALUE …]`; what is given here goes to both runs.
"""

import subprocess
import sys

import pandas as pd

from capsexp import composing
from capsexp.config import Config, check
from capsexp.errors import DONE, INTERRUPTED, CapsexpError

COMMAND = ("data=mnist_sample", "budget=demo")
ATTENTION = {"no": "none", "yes": "cbam"}


def main(overrides: list[str]) -> int:
    """Runs both, a process each, and prints the table; returns the exit code."""
    rows = {}
    for shown, attention in ATTENTION.items():
        arguments = [*COMMAND, f"attention={attention}", *overrides]
        config = check(composing.composed(arguments))
        code = subprocess.call([sys.executable, "-m", "capsexp", *arguments])
        if code != DONE:
            return code
        rows[shown] = _row(config)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("CBAM").reset_index()
    print(f"\nCapsNet on the MNIST sample, reduced: {_reduced(config)}\n\n{table.to_string(index=False)}\n")
    print(f"records      {config.paths.results}/runs")
    print(f"TensorBoard  {config.paths.logs} (make tensorboard)")
    return DONE


def _row(config: Config) -> dict[str, object]:
    """The result of a finished run, out of its record."""
    from capsexp.plan import finished, plan  # torch takes seconds to import: the runs come first

    record = finished(plan(config))
    assert record is not None
    return {
        "maximum %": record.max_accuracy,
        "in epoch": f"{record.first_epoch_to_max} of {len(record.epochs)}",
        "last %": record.last_accuracy,
        "s/epoch": f"{record.seconds_per_epoch:.1f}",
        "parameters": f"{record.parameters:,}",
    }


def _reduced(config: Config) -> str:
    budget = config.budget
    images = f", {budget.train_images:,} images" if budget.train_images else ""
    return f"{budget.epochs} epochs instead of {config.optim.epochs}, {budget.width:.0%} of the channels{images}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CapsexpError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
