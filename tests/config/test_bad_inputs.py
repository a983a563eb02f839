"""What a user can get wrong: each ends in exit code 2 and one line with what is allowed and the nearest name."""

import dataclasses
import re
import shlex
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from support import TINY, Program, Trained, composed_config, folders, process, refused

from capsexp.__main__ import COMMANDS
from capsexp.config.checks import Component, _arguments, check_value
from capsexp.config.compose import for_hydra
from capsexp.config.schema import Config
from capsexp.errors import InputError
from capsexp.models import CapsNet, DACapsNet, HuangCNN
from capsexp.nn import MarginLoss, SpreadLoss
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting
from capsexp.run.checkpoints import BEST
from capsexp.run.execute import run
from capsexp.run.plan import plan

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

BAD_INPUTS = [
    # groups and choices
    ("lr=0.1", "lr: no such key; did you mean optim.lr?"),
    ("optim=addam", "optim=addam: no such choice (optim has "),
    ("+model=capsnet", "model appears more than once in the final defaults list"),
    ("~seed", "seed: missing; must be a whole number at least 0"),
    # keys
    ("model.chanels=3", "model.chanels: no such key; did you mean channels?"),
    ("+foo=1", "foo: no such key (the configuration has "),
    ("trainer.max_epochs=3", "trainer.max_epochs: no such key; here it is budget.epochs"),
    ("optim.lr.x=3", "optim.lr.x: optim.lr holds a value, not a group of keys"),
    # the grammar
    ("optim.lr", "optim.lr: not of the form key=value"),
    # values: one of each kind; all keys below
    ("data.path=photos", "data.path: no such key; data=folder has it"),
    ("+optim.warmup=5", "optim.warmup: is there already; without + it is set"),
    ("optim.options.betas=[0.9,0.95]", "optim.options.betas: no such key; +optim.options.betas=… adds it"),
    ("routing.density=mean", "routing.density: no such key; routing=em has it"),
    (f"optim.patience={10**20}", f"optim.patience={10**20}: must be at most 1,000,000,000,000"),
    (f"seed={10**20}", f"seed={10**20}: must be a whole number at least 0 and at most 4,294,967,295"),
    ("optim.lr=", "optim.lr=: must be a number above 0"),
    ("budget.epochs=0", "budget.epochs=0: must be a whole number at least 1 and at most 500,000 or null"),
    ("model=null", "model=null: must be one of capsnet, da_capsnet"),
    ("model=../model/capsnet", "model=../model/capsnet: must be one of capsnet, da_capsnet"),
    ("study=jiao_table2", "study=jiao_table2: capsexp reproduce jiao_table2 runs a study"),
    # names of files
    ("data.reader.name=foo", "data.reader.name=foo: a name belongs to its file; choose one with data=NAME"),
    ("budget.name=../../evil", "budget.name=../../evil: must be a name of at most 64 letters, digits, - and _"),
    ("data.name=cifar10", "data.name=cifar10: a name belongs to its file; choose one with data=cifar10"),
    ("logger=[tensorbord]", "logger=tensorbord: no such choice; did you mean tensorboard?"),
    ("paths.logs=/dev/null/x", "paths.logs=/dev/null/x: must be a folder, and /dev/null is a file"),
    ("optim.momentum=0.9", "optim.momentum=0.9: optim.name=adam takes betas, eps, weight_decay"),
    ("+optim.options.betas=[2,3]", "optim.options={'betas': [2, 3]}: Invalid beta parameter"),
    ("optim.name=rprop +optim.options.etas=[0.5,inf]", "optim.options.etas[1]=inf: must be a number"),
    ("+optim.options.betas=[0.9,0.99,0.999]", "optim.options.betas=[0.9, 0.99, 0.999]: must be 2 numbers, such as"),
    ("+optim.options.amsgrad=maybe", "optim.options.amsgrad=maybe: must be true or false"),
    ("optim.warmup=3", "optim.warmup=3: not before optim.schedule=plateau; constant, cosine, exponential and steps h"),
    ("optim.schedule=constant optim.warmup=250", "optim.warmup=250: must be below 250, the first"),
    ("optim=tsai_sgd optim.warmup=5 optim.milestones=[5,6]", "optim.warmup=5: must be below 5, the first milestone o"),
    ("data=affine_mnist data.mean=null preprocess.normalize=true", "data=affine_mnist: needs data.mean and data.std,"),
    ("optim.schedule=steps", "optim.milestones=[]: optim.schedule=steps needs some"),
    ("optim=tsai_sgd optim.milestones=[150,350]", "optim.milestones=[150, 350]: must be below optim.epochs=350"),
    ("+optim.options.fused=true", "optim.options.fused=True: optim.name=adam takes betas, eps"),
    ("paths.logs=~nosuchuser/y", "paths.logs=~nosuchuser/y: no such user"),
    ("preprocess.crop_padding=28", "preprocess.crop_padding=28: must be below the image's side, data.size=28"),
    ("preprocess.erase=29", "preprocess.erase=29: must be at most the image's side, data.size=28"),
    ("preprocess.balance=true data=affine_mnist", "preprocess.balance=true: not with data=affine_mnist"),
    ("loss.positive=0.1", "loss.positive=0.1: must be above loss.negative=0.1"),
    ("model.width=0.5", "model.width=0.5: budget.width=0.5 sets it"),
    # folders
    ("data.root=", "data.root=: must be a folder (by default CAPSEXP_DATA's)"),
    # characters that Hydra's grammar has no place for
    ("sëed=3", "sëed=3: not of the form key=value"),
    ("=3", "=3: not of the form key=value"),
    ("seed='", "seed=': must be a whole number"),
    ("optim.lr=~/x", "optim.lr=/home/me/x: must be a number above 0"),
    ("~seed=3", "seed: Could not delete from config"),
    ("seed=${x}", "seed: Interpolation key 'x' not found"),
    # more values
    (f"optim.lr={10**400}", "optim.lr=1000"),
    ("optim.milestones=[3]", "optim.milestones=[3]: optim.schedule=plateau has none; optim.schedule=steps"),
    ("trainer.threads=100000", "trainer.threads=100000: this machine has "),
    ("+data.versions.published.images=[3]", "data.versions.published.images=[3]: must be two numbers, of training"),
    ("model.kernel=29", "model=capsnet on mnist (28×28): a kernel of 29×29 doesn't fit on 28×28 positions"),
    ("loss._target_=builtins.print", "loss._target_=builtins.print: no file of conf/loss names this class"),
    ("loss._target_=5", "loss._target_=5: must be text"),
    ("+logger.x={}", "logger.x._target_=null: no file of conf/logger names this class"),
    ("attention.first=se", "choose one with attention=…"),  # and not attention.first=
    # combinations
    ("data.size=12", "model=capsnet on mnist (12×12): a kernel of 9×9 doesn't fit on 4×4 positions; data.size=17 is"),
    ("data.mean=[0.1,0.2]", "data.mean=[0.1, 0.2]: must have one number for each of 1 channels"),
    pytest.param("trainer=gpu", "trainer.accelerator=gpu: torch sees no CUDA device here", marks=NO_GPU),
    # data
    ("data.download=false", "mnist: put train-images-idx3-ubyte"),
    ("data.reader.dataset=EMNIST", "data.reader.dataset=EMNIST: must be one of MNIST, FashionMNIST, KMNIST"),
    # several words
    ("model=resnet18 routing=em", "routing=em: model=resnet18 has no capsules: routing=none, typed or in its file"),
    ("model=capsnet routing=none", "routing=none: model=capsnet has capsules; choose another of conf/routing"),
    ("model=resnet18 attention.conv=true", "model=resnet18 on mnist (28×28): attention.conv=true: "),
    ("model=huang_cnn reconstruction.enabled=true", "reconstruction.enabled=true: model=huang_cnn has no class"),
    ("model=inverted_capsnet data=cifar10 model.pose=15", "model=inverted_capsnet on cifar10 (32×32): matrix poses"),
    ("attention=se attention.cbam=true", "model=capsnet on mnist (28×28): attention.cbam=true: attention.first is in"),
    ("model=em_capsnet data=cifar10 routing.iterations=3 trainer.precision=bf16", "trainer.precision=bf16: with routi"),
    (
        "data=diverse_multimnist loss=cross_entropy",
        "loss=cross_entropy: takes one label an image, but data=diverse_multimnist has sets of labels; "
        "loss=binary_cross_entropy and loss=margin take them",
    ),
    ("data=mnist_sample protocol=heldout budget.train_images=1", "protocol=heldout: needs two training images"),
    ("data=mnist_sample budget.train_images=5001", "budget.train_images=5001: mnist_sample has 5,000 training images"),
    ("data=mnist_sample optim.batch_size=1000000", "optim.batch_size=1000000: mnist_sample has 5,000 training images"),
    ("data=mnist_sample data.classes=12", "data.classes=12: mnist_sample has 10 classes"),
    (
        "data=mnist_sample reconstruction.enabled=true reconstruction.hidden=[100000000]",
        "94,506,805,008 parameters take 756 GB in training at least; this device has ",
    ),
    ("optim.schedule=steps optim.milestones=[2,2]", "optim.milestones=[2, 2]: must grow"),
]


@pytest.fixture
def wrong(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], str]:
    """The line in which a command ends, of these words, variables of the environment first."""

    def call(words: list[str]) -> str:
        monkeypatch.setenv("HOME", "/home/me")
        given = {word.partition("=")[0] for word in words}
        while "=" in words[0]:
            monkeypatch.setenv(*words.pop(0).split("=", 1))
        if words[0] == "capsexp" and words[1] not in COMMANDS:
            words += written_to(tmp_path, given)
        code, *printed = program(*words)
        lines, errors = (
            [line for line in part if not re.match(r"(?!error).*( …$|: on \w+ in )", line)] for part in printed
        )
        assert (code, lines, len(errors)) == (2, [], 1)
        assert list(tmp_path.iterdir()) == []
        return errors[0]

    return call


def written_to(place: Path, given: Container[str]) -> list[str]:
    """Overrides that let a run read and write below a folder, without those given."""
    paths = [*folders(place), *([f"data.root={place}/data"] if "CAPSEXP_DATA" not in given else [])]
    return [path for path in paths if path.partition("=")[0] not in given]


@pytest.mark.parametrize(("overrides", "expected"), BAD_INPUTS, ids=lambda value: value if "=" in value else None)
def test_one_line_names_what_is_wrong_and_what_is_allowed(
    overrides: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    words = overrides.split()
    words += written_to(tmp_path, {word.partition("=")[0] for word in words})
    line = refused(lambda: run(composed_config(*map(for_hydra, words))))
    assert line.startswith(expected) or f"; {expected}" in line
    assert list(tmp_path.iterdir()) == []


def keys_of(schema: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Each key of a schema that holds a value, and its annotation."""
    for name, annotation in _arguments(schema)[0].items():
        if dataclasses.is_dataclass(annotation) and annotation is not Component:
            yield from keys_of(annotation, f"{where}{name}.")
        else:
            yield where + name, annotation


def test_every_key_refuses_what_its_annotation_does_not_allow() -> None:
    classes = [CapsNet, DACapsNet, HuangCNN, DynamicRouting, EMRouting, InvertedRouting, MarginLoss, SpreadLoss]
    keys = [found for schema in (Config, *classes) for found in keys_of(schema)]
    bounded = 0
    for key, annotation in keys:
        kinds = [kind for kind in (*get_args(annotation), annotation) if kind in (int, float, bool)]
        wrong: list[object] = [{"a": object()}, *["no such word"] * bool(kinds or get_origin(annotation) is Literal)]
        for mark in getattr(annotation, "__metadata__", ()):
            for name, step in {"ge": -1, "gt": 0, "le": 1, "lt": 0}.items():
                if (limit := getattr(mark, name, None)) is not None:
                    wrong.append(limit + step)
                    bounded += 1
        for value in wrong if get_origin(annotation) is not dict else ():
            with pytest.raises(InputError, match=rf"^{re.escape(key)}.*: (must be|no such key|missing)"):
                check_value(value, annotation, key)
    assert len(keys) > 70
    assert bounded > 40


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("data.root=~/my data", "/home/me/my data"),
        ("data.root=~", "/home/me"),
        ("data.root=/tmp/dätä", "/tmp/dätä"),
        ("data.root=/tmp/a,b", "/tmp/a,b"),
        ("data.root=/tmp/a=b(c", "/tmp/a=b(c"),
        ("data.root=/tmp/it's", "/tmp/it's"),
        ("data.root=2024", "2024"),
        ("data.root='/tmp/quoted, already'", "/tmp/quoted, already"),
    ],
)
def test_a_path_needs_no_quotes(word: str, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert composed_config(for_hydra(word)).data.root == read


TINY_WORDS = " ".join(TINY)
ELASTIC, SAMPLE = "TORCHELASTIC_RUN_ID=x RANK=0 LOCAL_RANK=0", "capsexp data=mnist_sample"
REPRODUCE = "scripts/reproduce_tables.py"

#: Commands in which {files} is the fixture's folder and {run} a finished run's, and what their error has.
BAD_COMMANDS = [
    ("capsexp seed=0,1", "seed=0,1: several values; python -m capsexp -m runs each"),
    ("capsexp epochs=3", "epochs: no such key; did you mean optim.epochs or budget.epochs?"),
    ("capsexp --seed=3", "unrecognized arguments: --seed=3; keys are written seed=3"),
    ("capsexp --batch_size=32", "unrecognized arguments: --batch_size=32; keys are written optim.batch_size=32"),
    ("capsexp --cfg=foo", "argument --cfg/-c: invalid choice: 'foo'"),
    ("capsexp --config-name=other", "Cannot find primary config 'other'"),
    ("capsexp --config-path=/nowhere", "Primary config directory not found. Check that the config directory"),
    ("capsexp -m attention=none,[cbam,dual]", "attention=none,[cbam,dual]: must be one of"),
    ("capsexp -m hydra/launchr=ray seed=0,1", "hydra/launchr: no such group; did you mean hydra/launcher?"),
    ("capsexp logger=[wandb] logger.wandb.projct=x", "logger.wandb.projct: no such key; did you mean project?"),
    ("capsexp -m seed=0,1 --cfg=job", "Only one of --run, --multirun, --cfg, --info and"),
    ("capsexp hydra.verbose=nan", "hydra.verbose=nan: Hydra takes no such value"),
    ("capsexp -m seed=0,1 hydra.sweeper.params={a:1}", "hydra.sweeper.params={a:1}: Hydra takes no such value"),
    (f"{SAMPLE} -m seed=0,1 hydra.launcher=null", "hydra.launcher: must be a group of keys; choose one with hydra/"),
    ("capsexp -m tables", "tables: a command stands first: capsexp tables …"),
    ("scripts/reproduce_tables.py --seed=3", "unrecognized arguments: --seed=3; did you mean --seeds?"),
    ("scripts/reproduce_tables.py jiao_table2 --time-limit=nan", "hydra.launcher.time_limit=nan: must be a number"),
    ("scripts/reproduce_tables.py", "no study named; all, or some of alberti_affine, "),
    ("scripts/reproduce_tables.py jiao_table2 --budget=lptop", "--budget=lptop: no such budget; did you mean laptop?"),
    ("scripts/reproduce_tables.py jiao_table3", "jiao_table3: no such study; did you mean jiao_table2?"),
    ("scripts/reproduce_tables.py jiao_table2 seed=3", "seed: --seeds N runs the seeds 0 to N-1"),
    ("scripts/reproduce_tables.py jiao_table2 rerun=true", "rerun: not used here; capsexp … rerun=true repeats one"),
    ("scripts/reproduce_tables.py jiao_table2 jobs=3", "jobs=3: an option of this command: --jobs=3"),
    ("scripts/reproduce_tables.py +study=jiao_table2", "+study=jiao_table2: here a study's name stands alone"),
    ("scripts/aggregate.py --results=/nowhere", "/nowhere: no such folder"),
    ("scripts/prepare_data.py --root", "argument --root: expected one argument"),
    ("capsexp inspect 3", "missing: IMAGE"),
    ("capsexp figures data=mnist", "data: not used here"),
    ("capsexp figures huang_fig31", "huang_fig31: no such figure; did you mean huang_fig1"),
    ("capsexp figures --seeds", "unrecognized arguments: --seeds"),
    ("capsexp figures paths.result=x", "paths.result: no such key; did you mean results"),
    ("capsexp figures huang_fig11 paths.results=/nowhere", "/nowhere: no such folder; the records are in results/runs"),
    ("capsexp tables jiao_table2 seed=0", "seed=0: a table has all seeds of its rows"),
    ("capsexp tables paths.results=", "argument --results: must be a path"),
    ("capsexp tables huang_table4 data=mnist --check", "--check: compares pages of whole studies; leave rows and"),
    ("capsexp tables --output=", "argument --output: must be a path"),
    ("capsexp tables --output=/dev/null", "--output=/dev/null: must be a folder"),
    ("capsexp predict", "the following arguments are required: RUN, FILE"),
    ("capsexp predict {run}", "the following arguments are required: FILE"),
    ("capsexp predict nothing a.png", "nothing: no run here, no STUDY:ROW and no network of the package: "),
    ("capsexp predict {run} missing.png", "missing.png: can't be read (No such file or directory)"),
    # options of scripts
    (f"{REPRODUCE} jiao_table2 --seeds=²", "argument --seeds: invalid int value: '²'"),
    (f"{REPRODUCE} jiao_table2 --seeds=0", "--seeds=0: must be at least 1"),
    (f"{REPRODUCE} ../jiao_table2", "../jiao_table2: no such study"),
    (f"{REPRODUCE} alberti_affine modle=capsnet --dry-run", "modle: no such key; did you mean model?"),
    ("scripts/prepare_data.py mnist --root={files}/none --no-download", "put train-images-idx3-ubyte"),
    ("scripts/prepare_data.py mnist data.root={files}/none --no-download", "/none/MNIST/raw"),
    # evaluate, inspect, figures
    ("capsexp evaluate {run} budget.test_images=5000", "budget.test_images=5000: mnist_sample has 1,000"),
    ("capsexp inspect {run} -1", "image -1: must be from 0 to 999, the test images of mnist_sample"),
    ("capsexp inspect {run} ²", "²: can't be read (No such file or directory)"),
    # sweeps
    ("capsexp --resolve seed=1", "--resolve: only with --cfg"),
    ("capsexp --experimental-rerun=x.pickle", "--experimental-rerun: the command in a record repeats its run"),
    # damaged and foreign files
    ("capsexp evaluate {files}/cut.ckpt", "cut.ckpt: not a checkpoint, or damaged; delete it if it was one"),
    ("capsexp inspect {files}/junk 3", "junk: not a checkpoint, or damaged; delete it if it was one"),
    (f"capsexp {TINY_WORDS} paths.results={{files}}/bad paths.logs={{files}}/logs", "not a record"),
    *(
        (f"capsexp data=mnist data.download=false data.root={{files}}/{name}", reason)
        for name, reason in (
            ("mnist-junk", "its md5 ac2b"),
            ("mnist-packed", "train-images-idx3-ubyte.gz: can't be read, truncated or damaged"),
            ("mnist-folders", "train-images-idx3-ubyte: can't be read"),
            ("junk", "put train-images-idx3-ubyte"),
        )
    ),
    # environment variables
    ("CAPSEXP_DATA= capsexp data=mnist", "data.root=: must be a folder (by default CAPSEXP_DATA's)"),
    ("CAPSEXP_DATA=~/none capsexp data=mnist data.download=false", "/home/me/none/MNIST/raw"),
    ("COLUMNS=x LINES=-1 TERM=nonsense capsexp seed=x", "seed=x: must be a whole number"),
    ("HOME= capsexp modle=x", "modle: no such key"),
    ("TMPDIR=/nowhere capsexp modle=x", "modle: no such key"),
    (f"SLURM_CPUS_PER_TASK=abc {SAMPLE}", "SLURM_CPUS_PER_TASK=abc: must be a whole number at least 1"),
    (f"TORCHELASTIC_RUN_ID=x {SAMPLE}", "LOCAL_WORLD_SIZE=: must be a whole number at least 1"),
    (f"{ELASTIC} WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 MASTER_PORT=1 {SAMPLE} -m seed=0,1", "torchrun: trains one run"),
    (f"{ELASTIC} WORLD_SIZE=0 LOCAL_WORLD_SIZE=1 MASTER_PORT=1 {SAMPLE}", "WORLD_SIZE=0: must be a whole number at"),
    (f"{ELASTIC} WORLD_SIZE=2 LOCAL_WORLD_SIZE=3 MASTER_PORT=1 {SAMPLE}", "must be a multiple of LOCAL_WORLD_SIZE=3"),
    (f"{ELASTIC} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_PORT=x {SAMPLE}", "MASTER_PORT=x: must be a whole number at"),
]


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


@pytest.mark.parametrize(("command", "expected"), BAD_COMMANDS)
def test_commands(
    command: str, expected: str, wrong: Callable[[list[str]], str], files: Path, trained: Trained
) -> None:
    filled = command.replace("{files}", str(files)).replace("{run}", str(trained.folder))
    assert expected in wrong(shlex.split(filled))


def test_an_error_where_the_terminal_has_ascii_only() -> None:
    ended = process("-m", "capsexp", "seed=ä", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "seed=\\xe4: must be a whole number" in ended.stderr
