"""Runs studies and makes their tables: `capsexp reproduce jiao_table2 --seeds 5 --budget laptop`.

Each run of the studies is done once, in a process of its own. Finished runs are skipped and interrupted ones resumed:
the same command again, whatever ended it, does the rest. Then the tables, as `capsexp tables` makes them.
"""

import argparse
import time
from pathlib import Path

from capsexp.cli import Parser, add_launcher_options, launcher_words
from capsexp.config import searchpath
from capsexp.config.checks import did_you_mean, typed_key
from capsexp.config.schema import Paths
from capsexp.errors import DONE, FAILED, InputError, duration
from capsexp.reproduce import sweep
from capsexp.study import studies
from capsexp.study.selection import LAPTOP, PAPER, TYPED, select

RESUME = "the same command continues after the last whole epochs"


def main(arguments: list[str]) -> int:
    """Plans, runs, prints the tables; the exit code."""
    options = _parsed(arguments)
    sweep.check_environment()
    chosen = studies.load_all(options.names)
    for name in studies.names():  # the tables need all studies: a faulty one is told before the runs
        studies.load(name)
    from capsexp.reproduce import monitor, planning  # torch takes seconds to import: names are checked first

    with sweep.application(options.for_launcher) as (app, _, config):
        commands = planning.commands_of(chosen, options.overrides, options.setting, range(options.seeds))
        planned = planning.plan_runs(commands, not options.dry_run)
        jobs, barred = planned.jobs, planned.barred
        monitor.print_plan(planned, sweep.options_of(config), listed=options.dry_run)
        if options.dry_run:
            return FAILED if barred else DONE
        begun, before = time.monotonic(), planning.count(jobs, "finished")
        problems: list[str] = []
        try:
            sweep.train(planned, app, config)
            if jobs:
                ended = f"{monitor.ended(jobs)} in {duration(time.monotonic() - begun)}"
                if shipped := sum(job.is_shipped for job in jobs):
                    now = planning.count(jobs, "finished") - before
                    ended += f": {now} trained now, {shipped} came with the repository"
                problems = _print_tables(options, jobs[0].planned.config.paths, ended)
        finally:
            failed = monitor.print_errors(planned, problems)
    return FAILED if barred or problems or failed or planning.count(jobs, "waiting") else DONE


def _print_tables(options: argparse.Namespace, paths: Paths, ended: str) -> list[str]:
    """Makes the tables of the studies that ran and prints what they say; what is wrong with records.

    In a folder of one's own they are written to its tables/. In the project's folder, those of all studies and the
    README's are, as by `make tables`; a table of some rows, or of another training than the study's, beside the logs.
    """
    from capsexp.tables import files, screen

    results = Path(paths.results)
    results.mkdir(parents=True, exist_ok=True)
    own = results.resolve() != (searchpath.ROOT / "results").resolve()
    chosen = [select(one, options.overrides, options.setting) for one in studies.load_all(options.names)]
    rows = any(":" in name for name in options.names)
    part = rows or any(one.only or one.blocks[0].name == TYPED for one in chosen)
    output = (results if own or not part else Path(paths.logs)) / "tables"
    words = options.names, options.overrides, options.setting
    generated = files.regenerate(*words, results=results, output=output if own or part else None)
    if not own:
        files.regenerate(results=results, output=results / "tables", readme=searchpath.ROOT / "README.md")
    if len(generated.measured) > 1:
        screen.print_studies(generated.measured, ended, output)
    for one in generated.measured if len(generated.measured) == 1 else []:
        written = output / f"{one.study.name}.md" if one.runs else None
        screen.print_screen(one, TYPED if one.typed else options.setting, ended, written, paths.logs)
    return generated.problems


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__, "capsexp reproduce")
    parser.add_argument("words", nargs="*", metavar="STUDY | KEY=VALUE", help="all: all studies; STUDY:ROW: a row")
    parser.add_argument("--budget", default="paper", help="paper, laptop, short, demo or smoke (default: paper)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N-1 (default: 3)")
    add_launcher_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="list the runs and their state; run nothing")
    options = parser.parse_words(arguments)
    if options.seeds < 1:
        raise InputError(f"--seeds={options.seeds}: must be at least 1")
    for word in options.overrides:
        if typed_key(word) == "seed":
            raise InputError("seed: --seeds N runs the seeds 0 to N-1")
        if typed_key(word) == "rerun":
            raise InputError("rerun: not used here; capsexp … rerun=true repeats one run")
    if not options.names:
        raise InputError(f"no study named; all, or some of {', '.join(studies.names())}")
    options.names = studies.names() if options.names == ["all"] else options.names
    budgets = {PAPER, LAPTOP, *searchpath.choices("budget")}
    if options.budget not in budgets:
        found = f"{did_you_mean(options.budget, [*budgets])} (there are {', '.join(sorted(budgets))})"
        raise InputError(f"--budget={options.budget}: no such budget{found}")
    declared = options.budget in (PAPER, LAPTOP)  # any other budget is typed, on top of the paper's training
    options.setting = options.budget if declared else PAPER
    hydra = [word for word in options.overrides if typed_key(word).startswith("hydra")]
    paths = [word for word in options.overrides if typed_key(word).startswith("paths.")]
    options.for_launcher = [*hydra, *launcher_words(options), *paths]
    typed = [word for word in options.overrides if word not in hydra]
    options.overrides = [*([] if declared else [f"budget={options.budget}"]), *typed]
    return options
