"""Runs studies and prints their tables: `python scripts/reproduce_tables.py jiao_table2 --seeds 5 --budget short`.

Every run of the studies, each once, a fresh process each. What is finished is skipped, what was interrupted goes on:
the same command again, after whatever ended it, does the rest. Then the tables, as scripts/tables.py makes them.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

from capsexp.errors import DONE, FAILED, INTERRUPTED, CapsexpError, InputError
from capsexp.study import studies


def main(arguments: list[str]) -> int:
    """Plans, runs, prints the tables; the exit code."""
    options = _parsed(arguments)
    chosen = [studies.load(name) for name in options.studies or studies.names()]
    from capsexp.study import monitor, planning  # torch takes seconds to import: names come first

    jobs, barred = planning.plan_all(chosen, options.typed, range(options.seeds))
    for job in jobs:
        planning.look(job)
    monitor.print_plan(jobs, barred, listed=options.dry_run)
    if options.dry_run:
        return FAILED if barred else DONE
    from capsexp.study import launcher  # Lightning takes seconds to import

    at_a_time, devices = planning.places(jobs, options.jobs)
    deadline = time.monotonic() + 60 * options.time_limit
    how = launcher.Options(at_a_time, devices, options.retry, options.stop_at_failure, deadline)
    problems: list[str] = []
    try:
        launcher.launch(jobs, how)
        if jobs:
            problems = _print_tables(options, Path(jobs[0].planned.config.paths.results))
    finally:
        monitor.print_end(jobs, [*problems, *barred])
    return FAILED if barred or problems or planning.count(jobs, "failed") else DONE


def _print_tables(options: argparse.Namespace, results: Path) -> list[str]:
    """Makes and prints the tables of the studies that ran; what is wrong with records.

    A folder of one's own gets them in its tables/. The project's gets all studies' tables and the README's, as `make
    tables` makes them; a table of something else than the paper's experiment is only shown there.
    """
    from capsexp.results import tables, terminal

    results.mkdir(parents=True, exist_ok=True)
    own = results.resolve() != (tables.ROOT / "results").resolve()
    generated = tables.regenerate(
        options.studies, options.typed, results=results, output=results / "tables" if own else None
    )
    if not own:
        tables.regenerate(results=results, output=results / "tables", readme=tables.ROOT / "README.md")
    if len(generated.pages) == 1:
        terminal.print_page(*generated.pages)
    print(f"tables: {results / 'tables'}")
    return generated.problems


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="STUDY | KEY=VALUE", help="all studies, if none is named")
    parser.add_argument("--budget", default="paper", help="paper, short, demo or smoke (default: paper)")
    parser.add_argument("--seeds", type=_positive, default=3, metavar="N", help="seeds 0 to N-1 (default: 3)")
    parser.add_argument("--jobs", type=_positive, metavar="N", help="runs at a time (default: two a GPU, or one)")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="MINUTES", help="then stop")
    parser.add_argument("--retry", type=int, default=0, metavar="N", help="times that a failed run is tried again")
    parser.add_argument("--stop-at-failure", action="store_true", help="start nothing more after the first failure")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    options = parser.parse_intermixed_args(arguments)
    options.studies = [word for word in options.what if "=" not in word]
    options.typed = [f"budget={options.budget}", *(word for word in options.what if "=" in word)]
    if any(word.lstrip("+").startswith("seed=") for word in options.typed):
        raise InputError("seed: --seeds says how many")
    return options


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be an integer of at least 1")
    return int(text)


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main(sys.argv[1:]))
    except CapsexpError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on after the last whole epochs", file=sys.stderr)
        sys.exit(INTERRUPTED)
