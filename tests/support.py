"""What several test files share: configurations small enough to train in a second, and interruptions."""

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from capsexp.config import compose
from capsexp.config.schema import Config, Paths, check
from capsexp.errors import InputError
from capsexp.run import records
from capsexp.run.build import build
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import plan

ROOT = Path(__file__).parents[1]

Ended = tuple[int, list[str], list[str]]  # exit code, lines of output, lines of errors
Program = Callable[..., Ended]  # a module's name or a script's path, and its arguments

#: A CapsNet of one capsule type on a few images of the packaged sample: a run of a second.
TINY = (
    "data=mnist_sample",
    "budget=demo",
    "budget.epochs=3",
    "budget.width=0.04",
    "budget.train_images=256",
    "budget.test_images=200",
    "trainer=cpu",
    "trainer.deterministic=true",
    "trainer.precision=float32",
)

#: Overrides by which the digits of a set are those of one that is synthesised.
PAIRS = "+data.synthesis={name: diverse_multimnist, _target_: capsexp.data.synthesis.DiverseMultiMNIST}"
AFFINE = "+data.synthesis={name: affine_mnist, _target_: capsexp.data.synthesis.AffineMNIST}"


class Trained(NamedTuple):
    """A finished run."""

    config: Config
    record: records.Record
    folder: Path  # best.ckpt, last.ckpt


def train(place: Path, *overrides: str) -> Trained:
    """Trains TINY with these overrides; its record goes to `place`/results/runs, its folder to `place`/logs."""
    config = composed_config(*TINY, *folders(place), *overrides)
    record = run(config, [*TINY, *overrides])
    return Trained(config, record, plan(config).folder)


def folders(place: Path) -> tuple[str, str]:
    """The overrides with which a run writes below a folder."""
    return f"paths.results={place}/results", f"paths.logs={place}/logs"


def copy_of(trained: Trained, place: Path, *, recorded: bool = True) -> Config:
    """The configuration of a copy of a run; not recorded: as if it had been killed before its record was written.

    What then trains again does it without loggers.
    """
    shutil.copytree(Path(trained.config.paths.logs).parent, place, dirs_exist_ok=True)
    config = at(trained.config, place)
    if recorded:
        return config
    plan(config).path.unlink()
    return dataclasses.replace(config, logger={})


def at(config: Config, place: Path) -> Config:
    """The configuration with other folders to write to."""
    return dataclasses.replace(config, paths=Paths(results=f"{place}/results", logs=f"{place}/logs"))


def composed_config(*overrides: str) -> Config:
    """The checked configuration of a command line."""
    return check(compose.composed(list(overrides)))


def differentiated(*overrides: str) -> tuple[nn.Module, list[Tensor]]:
    """A network in float64 after a batch of three images of 28×28; its scores, poses and parameters' gradients."""
    torch.manual_seed(0)
    network = build(composed_config(*overrides)).network.double()
    scores, poses = network(torch.rand(3, 1, 28, 28, dtype=torch.float64))
    (scores.square().sum() + poses.sin().sum()).backward()
    return network, [scores, poses, *(p.grad for p in network.parameters() if p.grad is not None)]


def refused(action: Callable[..., object], *arguments: Any) -> str:
    """The one line with which an action is refused."""
    with pytest.raises(InputError) as raised:
        action(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


class Installed(NamedTuple):
    """An environment with this package as a wheel, and the libraries of the present one."""

    environment: Path
    site: Path  # its site-packages

    @property
    def variables(self) -> dict[str, str]:
        """Of a shell in which it is active."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CAPSEXP_DATA")}
        return kept | {"PATH": f"{self.environment}/bin:{kept['PATH']}", "OMP_NUM_THREADS": "1"}

    def shell(self, folder: Path, *lines: str) -> str:
        """What a shell prints."""
        words = ["bash", "-ec", "\n".join(lines)]
        ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=self.variables)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


def install(folder: Path) -> Installed:
    """Builds the wheel, of a copy, and installs it in an environment in the folder."""
    environment, sources, wheels = folder / "environment", folder / "sources", folder / "wheels"
    names = ("capsexp", "conf", "results/runs", "LICENSES", "docs/package.md", "LICENSE", "setup.py")
    for name in (*names, "pyproject.toml", "results/benchmarks/claims.json"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, sources / name)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(str(Path(torch.__file__).parents[1]))
    options = ["--no-deps", "--no-build-isolation", "-q", "-w", wheels]
    strict = os.environ | {"PYTHONWARNINGS": "error:::setuptools.command.build_py"}  # newer pips print them
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, sources], check=True, env=strict)
    subprocess.run([environment / "bin" / "pip", "install", "-q", "--no-deps", *wheels.iterdir()], check=True)
    return Installed(environment, site)


def process(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Python in a process of its own, with more variables of the environment, ended, with what it printed."""
    given = {"env": os.environ | variables, "cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, *words], check=False, **given)


def script(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a script or a benchmark, imported anew."""
    monkeypatch.syspath_prepend((ROOT / path).parent)
    monkeypatch.delitem(sys.modules, Path(path).stem, raising=False)
    return importlib.import_module(Path(path).stem)


def imports(ended: "subprocess.CompletedProcess[str]") -> set[str]:
    """The top-level modules that a process imported, of what -X importtime prints."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def begun(*words: str | Path, **options: Any) -> "subprocess.Popen[str]":
    """Python in a process of its own, with piped output unless the options say otherwise."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT} | options
    return subprocess.Popen([sys.executable, *words], **given)


def committed(pattern: str) -> list[Path]:
    """The files that belong to the project, without those of whoever runs the tests; none outside a checkout."""
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / line for line in listed.stdout.splitlines()]


def committed_records() -> list[Path]:
    """The records among them."""
    return committed("results/runs/*.json")


def numbers(record: records.Record) -> list[dict[str, Any]]:
    """A record's epochs without their times."""
    return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in record.epochs]


def put(where: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets the value at a key of a mapping; the parts of the key are separated by /."""

    def change(node: Any) -> None:
        *path, last = where.split("/")
        for key in path:
            node = node[int(key) if isinstance(node, list) else key]
        node[last] = value

    return change


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises the error, whatever it is given."""

    def act(*_: object, **__: object) -> None:
        raise error

    return act


def stop_after(epochs: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes trainings raise the error in the middle of the epoch after so many."""

    def stopping(self: CapsuleModule, batch: Any, index: int) -> torch.Tensor:
        if self.current_epoch == epochs and index == 1:
            raise error
        return training_step(self, batch, index)

    training_step = CapsuleModule.training_step
    monkeypatch.setattr(CapsuleModule, "training_step", stopping)


def interrupt_after(epochs: int, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains until Ctrl-C in the middle of the epoch after so many."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        stop_after(epochs, KeyboardInterrupt(), patched)
        run(config)
