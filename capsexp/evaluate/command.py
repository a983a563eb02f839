"""Evaluates a trained network on test images: `capsexp evaluate logs/RUN data.path=photos --output=numbers.json`.

By default the test images are the run's own, and the result is compared with the training's; data=NAME is another data
set, with images of the same size, channels and classes. KEY=VALUE also sets data.root, data.path, data.download,
budget.test_images (the first so many; null: all), trainer.accelerator, trainer.precision, trainer.eval_batch_size.
"""

import json
import sys

from capsexp.cli import RUN, Parser, check_new, folder
from capsexp.files import write_output


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input."""
    parser = Parser(f"{__doc__}{RUN}", "capsexp evaluate")
    parser.add_argument("words", nargs="*", metavar="RUN | KEY=VALUE", help="a run's folder or a checkpoint in it")
    parser.add_argument("--output", type=folder, metavar="FILE", help="write all the numbers, as JSON")
    options = parser.parse_words(arguments, "RUN")
    check_new(options.output)
    from capsexp.evaluate.evaluation import evaluate  # torch takes seconds to import: after the checks
    from capsexp.evaluate.output import print_evaluation, to_json
    from capsexp.results import networks
    from capsexp.run.plan import forbid_tf32
    from capsexp.run.restore import restore

    forbid_tf32()
    restored = restore(networks.find(options.names[0]), None, options.overrides)
    evaluation = evaluate(restored, lambda line: print(line, file=sys.stderr))
    print_evaluation(restored, evaluation)
    if options.output:
        content = to_json(restored, evaluation)
        write_output(options.output, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        print(f"wrote {options.output}")
