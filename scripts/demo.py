"""The main job, small: CapsNet without and with CBAM on the packaged MNIST sample, then a table of both.

`python scripts/demo.py [KEY=VALUE …]`; what is given here goes to both runs.
"""

import subprocess
import sys

import pandas as pd

from capsexp import composing
from capsexp.config import check
from capsexp.errors import DONE, CapsexpError

COMMAND = ("data=mnist_sample", "budget=demo")
ATTENTION = {"no": "none", "yes": "cbam"}


def main(overrides: list[str]) -> int:
    """Runs both, a process each, and prints the table; returns the exit code."""
    rows = {}
    for shown, attention in ATTENTION.items():
        arguments = [*COMMAND, f"attention={attention}", *overrides]
        code = subprocess.call([sys.executable, "-m", "capsexp", *arguments])
        if code != DONE:
            return code
        rows[shown] = _row(arguments)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("CBAM").reset_index()
    paths = check(composing.composed([*COMMAND, *overrides])).paths
    print(f"\nCapsNet on 5,000 MNIST images, reduced budget (demo)\n\n{table.to_string(index=False)}\n")
    print(f"Records: {paths.results}/runs    TensorBoard: make tensorboard, or tensorboard --logdir {paths.logs}")
    return DONE


def _row(arguments: list[str]) -> dict[str, object]:
    """The result of a finished run, out of its record."""
    from capsexp.plan import finished, plan

    record = finished(plan(check(composing.composed(arguments))))
    assert record is not None
    return {
        "maximum %": record.max_accuracy,
        "in epoch": f"{record.first_epoch_to_max} of {len(record.epochs)}",
        "last %": record.last_accuracy,
        "s/epoch": f"{record.seconds_per_epoch:.1f}",
        "parameters": f"{record.parameters:,}",
    }


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CapsexpError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
