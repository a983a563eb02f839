"""Wrong inputs as users give them: each command is a process of its own, and ends in one line and exit code 2."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, TINY, Trained, composed_config, folders
from test_bad_inputs import BAD_COMBINATIONS, BAD_COMMANDS, BAD_INPUTS

from capsexp.run.checkpoints import BEST
from capsexp.run.plan import plan

TINY_WORDS = " ".join(TINY)
REPRODUCE, AGGREGATE = "scripts/reproduce_tables.py", "scripts/aggregate.py"

#: Commands, {files} being the fixture's folder and {run} a finished run's, and what their line has.
COMMANDS = [
    # options of scripts
    (f"{REPRODUCE} jiao_table2 --budget=papr", "budget=papr: no such choice; did you mean paper?"),
    (f"{REPRODUCE} jiao_table2 --budget=", "budget=: no such choice (budget has demo, paper, short, smoke)"),
    (f"{REPRODUCE} jiao_table2 --seeds", "argument --seeds: expected one argument"),
    (f"{REPRODUCE} jiao_table2 --seeds=²", "argument --seeds: ²: must be an integer of at least 1"),
    (f"{REPRODUCE} jiao_table2 --time-limit=soon", "argument --time-limit: soon: must be a number above 0"),
    (f"{REPRODUCE} jiao_table2 --dry", "unrecognized arguments: --dry"),
    (f"{REPRODUCE} jiao_table2 --dry-run=1", "argument --dry-run: ignored explicit argument '1'"),
    (f"{REPRODUCE} ../jiao_table2", "../jiao_table2: no such study"),
    (f"{REPRODUCE} jiao_table2 modle=capsnet --dry-run", "modle: no such key; did you mean model?"),
    (f"{AGGREGATE} --results", "argument --results: expected one argument"),
    (f"{AGGREGATE} --check=no", "argument --check: ignored explicit argument 'no'"),
    ("scripts/report.py jiao", "jiao: no such study"),
    ("scripts/prepare_data.py mnist --root={files}/none --no-download", "put train-images-idx3-ubyte"),
    ("scripts/prepare_data.py mnist --root=", "data.root=: must be a folder"),
    # evaluate, inspect, figures
    ("capsexp.evaluate {run} --robustness=yes", "argument --robustness: ignored explicit argument"),
    ("capsexp.evaluate {run} budget.test_images=5000", "budget.test_images=5000: mnist_sample has 1,000"),
    ("capsexp.inspect {run} -1", "image -1: must be from 0 to 999, the test images of mnist_sample"),
    ("capsexp.inspect {run} ²", "²: can't be read (No such file or directory)"),
    ("capsexp.figures paths.logs=", "paths.logs=: must be a folder"),
    # sweeps
    ("capsexp -m +study=jiao_table3", "study=jiao_table3: no such choice; did you mean jiao_table2?"),
    ("capsexp -m +study=jiao_table2 modle=x", "modle: no such key"),
    ("capsexp --multirunn", "unrecognized arguments: --multirunn"),
    ("capsexp -x", "unrecognized arguments: -x"),
    ("capsexp --resolve seed=1", "--resolve: only with --cfg"),
    # damaged and foreign files
    ("capsexp.evaluate {files}/cut.ckpt", "cut.ckpt: not a checkpoint, or damaged; delete it if it was one"),
    ("capsexp.inspect {files}/junk 3", "junk: not a checkpoint, or damaged; delete it if it was one"),
    (f"capsexp {TINY_WORDS} paths.results={{files}}/bad paths.logs={{files}}/logs", "not a record"),
    *(
        (f"capsexp data=mnist data.download=false data.root={{files}}/{name}", reason)
        for name, reason in (
            ("mnist-junk", "its md5 ac2b"),
            ("mnist-packed", "train-images-idx3-ubyte.gz: can't be read, truncated or damaged"),
            ("mnist-folders", "train-images-idx3-ubyte"),
            ("junk", "put train-images-idx3-ubyte"),
        )
    ),
    # environment variables
    ("CAPSEXP_DATA= capsexp data=mnist", "data.root=: must be a folder (by default CAPSEXP_DATA's)"),
    ("CAPSEXP_DATA=/nowhere capsexp data=mnist data.download=false", "into /nowhere/MNIST/raw"),
    ("CAPSEXP_DATA=~/none capsexp data=mnist data.download=false", "/home/me/none/MNIST/raw"),
    ("CAPSEXP_DATA={files}/junk capsexp data=svhn data.download=false", "svhn: put train_32x32.mat"),
    ("CAPSEXP_DATA={files}/mnist-junk scripts/prepare_data.py mnist --no-download", "its md5 ac2b"),
    ("CAPSEXP_DATA= scripts/prepare_data.py svhn", "data.root=: must be a folder"),
    ("PYTHONIOENCODING=ascii capsexp seed=ä", "seed=\\xe4: must be a whole number"),
    ("PYTHONIOENCODING=ascii capsexp data.size=12", "(12\\xd712): a 9\\xd79 kernel"),
    ("COLUMNS=x LINES=-1 TERM=nonsense capsexp seed=x", "seed=x: must be a whole number"),
    ("CUDA_VISIBLE_DEVICES=99 capsexp trainer=gpu", "trainer.accelerator=gpu: torch sees no CUDA device here"),
    ("HOME= capsexp modle=x", "modle: no such key"),
    ("TMPDIR=/nowhere capsexp modle=x", "modle: no such key"),
]

#: Reads a line of JSON for each command, and answers with its exit code and what it printed. Each is a fork of this
#: process, which has imported what takes time, and runs the program as `python -m` and `python FILE` do.
SERVER = """
import json, os, runpy, sys, tempfile
import torch, pandas, capsexp.run.train, capsexp.run.execute, capsexp.tables.generate, capsexp.run.restore
torch.set_num_threads(1)
for line in sys.stdin:
    command, environment = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.environ.update(environment)
            encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
            sys.stdout.reconfigure(encoding=encoding)
            sys.stderr.reconfigure(encoding=encoding, errors="backslashreplace")
            sys.argv = command
            if command[0].endswith(".py"):
                runpy.run_path(command[0], run_name="__main__")
            else:
                runpy.run_module(command[0], run_name="__main__", alter_sys=True)
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), err.seek(0)
        print(json.dumps([code, out.read().decode(), err.read().decode()]), flush=True)
"""

Ended = tuple[int, str, str]


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[list[str], dict[str, str]], Ended]]:
    """Runs a command in a fork."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def call(command: list[str], environment: dict[str, str]) -> Ended:
        print(json.dumps([command, environment]), file=stdin, flush=True)
        code, out, err = json.loads(stdout.readline())
        return code, out, err

    yield call
    stdin.close()
    assert process.wait(60) == 0


def alone(command: list[str], environment: dict[str, str]) -> Ended:
    """Runs a command as users do."""
    module = [] if command[0].endswith(".py") else ["-m"]
    ended = subprocess.run(
        [sys.executable, *module, *command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, trained: Trained) -> Path:
    """Files that are damaged or something else."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "junk").write_text("no such thing\n" * 9)
    (folder / "cut.ckpt").write_bytes((trained.folder / BEST).read_bytes()[:-1000])
    record = plan(composed_config(*TINY, f"paths.results={folder}/bad")).path
    record.parent.mkdir(parents=True)
    record.write_text("[1, 2]")
    for kind in ("mnist-junk", "mnist-packed", "mnist-folders"):
        raw = folder / kind / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for file in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
            if kind == "mnist-folders":
                (raw / f"{file}-ubyte").mkdir()
            else:
                (raw / f"{file}-ubyte{'.gz' if kind == 'mnist-packed' else ''}").write_text("no such thing\n" * 9)
    return folder


def table() -> list[tuple[str, str]]:
    """All commands, and what their line has."""
    plain: list[Any] = [getattr(one, "values", one) for one in (*BAD_INPUTS, *BAD_COMBINATIONS)]
    overrides = [(f"capsexp {words}", expected) for words, expected in plain]
    return [*overrides, *BAD_COMMANDS, *COMMANDS]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_ends_in_one_line_and_code_2(
    server: Callable[[list[str], dict[str, str]], Ended], files: Path, trained: Trained, tmp_path: Path
) -> None:
    paths = [f"data.root={tmp_path}/data", *folders(tmp_path)]
    wrong, commands = [], table()
    for number, (command, expected) in enumerate(commands):
        filled = command.replace("{files}", str(files)).replace("{run}", str(trained.folder))
        words = filled.split() if number < len(BAD_INPUTS) + len(BAD_COMBINATIONS) else shlex.split(filled)
        environment = {"HOME": "/home/me"}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if words[0] == "capsexp":
            given = [word.partition("=")[0] for word in words] + ["data.root"] * ("CAPSEXP_DATA" in environment)
            words += [path for path in paths if path.partition("=")[0] not in given]
        code, out, err = (alone if number % 4 == 0 else server)(words, environment)
        printed = [line for line in out.splitlines() if not re.search(r" …$|: on \w+ in ", line)]  # what is being done
        if code != 2 or printed or err.count("\n") != 1 or expected not in err:
            wrong.append(f"{command}: code {code}, {out!r}, {err!r}; expected {expected!r}")
            print(wrong[-1], flush=True)
    print(f"{len(commands)} wrong inputs, {len(commands[::4])} of them as commands; {len(wrong)} not as expected")
    assert not wrong, "\n".join(wrong)
