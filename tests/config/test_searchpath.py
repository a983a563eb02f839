"""docs/extending.md, walked through; which files and classes from outside are used, and which never are."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from support import ROOT, Installed, Program, Trained, composed_config, folders, refused, train

import capsexp
from capsexp.config import searchpath
from capsexp.config.checks import OWN_FILES
from capsexp.config.compose import by_hydra, command_here, composed, to_containers
from capsexp.data.source import load
from capsexp.errors import InputError
from capsexp.figures.inputs import Inputs
from capsexp.run import keys, records
from capsexp.run.build import build
from capsexp.run.execute import run
from capsexp.run.plan import LAST
from capsexp.run.restore import restore
from capsexp.study.identity import describe

TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)```", TEXT, re.DOTALL))
(COMMANDS,) = re.findall(r"```\n(mine=.*?)```", TEXT, re.DOTALL)
MINE = "--config-dir=mine/conf"
RUN = ("model=small_capsnet", "data=dark_digits")
SHORT = ("budget.epochs=3", "budget.train_images=1000", "trainer=cpu")
SMALL = ("budget.epochs=1", "budget.train_images=128", "budget.test_images=100", "trainer=cpu", "logger=[]")


def write(folder: Path) -> None:
    """Writes the documentation's files."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with the package of the documentation in it, as the present one."""
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget_modules()


@pytest.fixture
def used(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with its files and classes in use."""
    monkeypatch.setenv("CAPSEXP_CONFIG_DIR", str(package / "mine" / "conf"))
    monkeypatch.syspath_prepend(package)
    return package


def forget_modules() -> None:
    """As in a new process."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def test_a_command_to_type_names_the_folder_from_where_it_is_typed(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (used / "work").mkdir()
    monkeypatch.chdir(used / "work")
    option = "--config-dir=../mine/conf"
    assert Inputs([], used, ["paths.logs=l"]).command("figures") == f"capsexp {option} figures paths.logs=l"
    assert command_here("reproduce", program="bin/capsexp") == f"bin/capsexp {option} reproduce"


@pytest.mark.parametrize("routing", sorted({path.stem for path in (searchpath.CONF / "routing").iterdir()} - {"none"}))
def test_a_network_of_ones_own_takes_every_routing(routing: str, used: Path) -> None:
    network = build(composed_config("model=small_capsnet", "data=dark_digits", f"routing={routing}")).network
    scores = network(torch.rand(3, 1, 28, 28)).scores
    scores.square().sum().backward()
    assert scores.shape == (3, 10)
    assert all(parameter.grad is not None for parameter in network.parameters() if parameter.requires_grad)


def test_a_routing_a_loss_and_a_reader_of_ones_own(used: Path) -> None:
    (used / "data" / "stripes").mkdir(parents=True)
    for split in ("train", "test"):
        labels = np.arange(256) % 2
        images = np.zeros((256, 20, 20), np.uint8)
        images[labels == 1, ::4] = 255
        np.savez(used / "data" / "stripes" / f"{split}.npz", images=images, labels=labels)
    chosen = ["model=small_capsnet", "data=stripes", "routing=mean", "loss=squared"]
    words = [*chosen, "budget=smoke", "logger=[]", *folders(used)]
    with pytest.raises(InputError, match="is not accepted") as raised:
        run(composed_config(*words))
    (version,) = re.findall(r"append '(.*)'$", str(raised.value))
    record = run(composed_config(*words, version))
    assert [record.identity[part]["name"] for part in ("data", "routing", "loss")] == ["stripes", "mean", "squared"]
    assert describe(keys.identity(composed_config(*chosen, version), "bf16", None)).official
    code = used / "mine" / "stripes.py"
    unchecked = 'Images(arrays["images"] / 255, arrays["labels"])'
    code.write_text(
        re.sub(r"labelled\(.*\)\)", f"{unchecked})", code.read_text()).replace("Reader,", "Images, Reader,")
    )
    forget_modules()
    line = refused(load, composed_config(*words, version).data)
    assert line == "stripes: holds float64 [256, 20, 20], not grey or colour uint8 images"


@pytest.mark.parametrize(
    ("changed", "old", "new", "line"),
    [
        ("conf/model/small_capsnet.yaml", "types:", "typs:", "model.typs: no such key; did you mean types?"),
        ("conf/model/small_capsnet.yaml", "  name: small_capsnet\n", "", "model.name: missing"),
        ("conf/model/small_capsnet.yaml", "# @package _global_", "", "model/small_capsnet.yaml: overrides optim; must"),
        ("conf/model/small_capsnet.yaml", "SmallCaps", "SmalCaps", "model._target_=mine.networks.SmalCapsNet: can't b"),
        (
            "conf/data/dark_digits.yaml",
            "name: dark_digits\n",
            "images: []\nname: dark_digits\n",
            "data.images=[]: must",
        ),
        ("networks.py", "(nn.Module)", "", "model._target_=mine.networks.SmallCapsNet: must be a class derived from t"),
        ("networks.py", "(nn.Module)", "(nm.Module)", "NameError: name 'nm' is not defined ("),
        ("networks.py", "types: Count", "types", "its argument types must have an annotation, such as types: int"),
        ("networks.py", "attention, *", "*", "TypeError: SmallCapsNet.__init__() got an unexpected keyword argument"),
        ("networks.py", "return Prediction", "return len", "(28×28): TypeError: len() takes exactly one argument (2"),
        ("networks.py", "return Prediction", "return nn.Linear(5, 1)(classes.poses) or Prediction", "and 5x1) ("),
        ("networks.py", "classes.poses)", "classes.poses).scores", "must return a capsexp.nn.Prediction"),
        ("digits.py", "(Sample)", "", "data.reader._target_=mine.digits.Inverted: must be a class derived from capsex"),
        ("digits.py", "255 - images", "images.x", "dark_digits: mine.digits.Inverted: AttributeError: 'numpy"),
    ],
)
def test_a_mistake_in_ones_own_files_is_one_line(changed: str, old: str, new: str, line: str, used: Path) -> None:
    text = (used / "mine" / changed).read_text()
    assert old in text
    (used / "mine" / changed).write_text(text.replace(old, new))
    searchpath._classes.cache_clear()
    assert line in refused(lambda: run(composed_config(*RUN, "budget=smoke", *folders(used))))


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("data=dark_digit", "data=dark_digit: no such choice; did you mean dark_digits?"),
        ("model=small_capsnet model.types=0", "model.types=0: must be a whole number at least 1"),
        ("tables mine_table2", "mine_table2: no such study; did you mean mine_table1?"),
        ("evaluate data=dark_digits", "missing: RUN"),
        ("hydra.searchpath=[x]", "hydra.searchpath: --config-dir=DIR adds a folder here"),
        ("tabels", "tabels: no such command; did you mean tables?"),
        ("--config-dir=none", "--config-dir=none: no such folder"),
        ("--config-dir=", "--config-dir=: no such folder"),
        ("-cd none", "--config-dir=none: no such folder"),
    ],
)
def test_a_mistake_is_one_line(typed: str, line: str, package: Path, program: Program) -> None:
    code, _, (error,) = program("capsexp", MINE, *typed.split())
    assert code == 2
    assert error.startswith(f"error: {line}")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("model/capsnet.yaml", "", "conf/model/capsnet.yaml: capsexp has a model=capsnet of its own"),
        ("data/mine.yaml", "defaults: [mnist_sample]", "conf/data/mine.yaml: name: must be mine"),
        ("model/small_capsnet.yaml", "a: [", "conf/model/small_capsnet.yaml: line 1: "),
        ("model/other.yaml", "\xff", "conf/model/other.yaml: can't be read: 'utf-8' codec"),
        ("model/other.yaml", "a: \a", "conf/model/other.yaml: can't be read: unacceptable character #x0007"),
        ("model/other.yaml", "a: " + "[" * 100 + "]" * 100, "conf/model/other.yaml: has groups or lists more than 50"),
        ("model/small_capsnet.yaml", "name: x\n", "model._target_: missing; must be its class, dotted"),
        ("model/small_capsnet.yaml", "defaults: [small_capsnet]\nx: 1\n", "defaults: files that name each other"),
        ("model/small_capsnet.yaml", f"defaults: [capsnet]\nx: {5000 * '9'}\n", "a number of too many digits"),
        ("hydra/launcher/other.yaml", "a: " + "[" * 400 + "]" * 400, "other.yaml: has groups or lists more than 50"),
        ("hydra/job_logging/other.yaml", "a: 1", "other.yaml: of Hydra's own groups, only hydra/launcher can have"),
        ("model/other.yaml", "a: &a [*a]", "conf/model/other.yaml: has an alias (*name); ${key} stands for the value"),
    ],
)
def test_a_wrong_file_is_one_line(name: str, content: str, line: str, package: Path, program: Program) -> None:
    (package / "mine" / "conf" / name).parent.mkdir(exist_ok=True, parents=True)
    (package / "mine" / "conf" / name).write_bytes(content.encode("latin-1"))
    code, _, (error,) = program("capsexp", MINE, *RUN)
    assert code == 2
    assert line in error


@pytest.mark.parametrize("group", ["model", "hydra/launcher"])
def test_a_pipe_among_ones_own_files_is_one_line(group: str, package: Path, program: Program) -> None:
    pipe = package / "mine" / "conf" / group / "pipe.yaml"
    pipe.parent.mkdir(exist_ok=True, parents=True)
    os.mkfifo(pipe)
    code, _, (error,) = program("capsexp", MINE, *RUN)
    assert (code, error) == (2, f"error: {pipe}: not a file; move it away")


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("hydra.callbacks", "callbacks: {x: {_target_: os.mkdir, path: made}}"),
        ("hydra.hydra_logging", "hydra_logging: {formatters: {x: {(): os.mkdir, path: made}}}"),
        ("hydra.job_logging", "job_logging: {version: 1, formatters: {x: {(): os.mkdir, path: made}}}"),
        ("hydra.job.env_set", "job: {env_set: {CC: made}}"),
    ],
)
def test_a_file_makes_hydra_call_nothing(key: str, part: str, package: Path, program: Program) -> None:
    path = package / "mine" / "conf" / "model" / "small_capsnet.yaml"
    path.write_text(f"{path.read_text()}hydra:\n  {part}\n")
    several = ["-m", "hydra/launcher=basic", "model=capsnet,small_capsnet", "data=mnist_sample"]
    for words in (RUN, several):
        code, _, (*_, error) = program("capsexp", MINE, *words, "budget=smoke", "logger=[]")
        assert (code, error) == (2, f"error: {key}: is set by a file from outside, which can't; it can be typed")
    assert not (package / "made").exists()


@pytest.mark.parametrize(
    ("name", "written", "right"),
    [("faces", '"faces" # quoted', True), ("my-set", "my-set", True), ("my", "my-set", False)],
)
def test_a_data_sets_name_is_that_of_its_file(name: str, written: str, right: bool, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"{name}.yaml").write_text(f"name: {written}\n")
    if right:
        assert searchpath._checked(tmp_path) == tmp_path
    else:
        with pytest.raises(InputError, match="name: must be my, as the file's"):
            searchpath._checked(tmp_path)


def test_a_models_own_file_sets_keys_of_other_groups_and_of_none_as_hydra_does(used: Path) -> None:
    file = used / "mine" / "conf" / "model" / "small_capsnet.yaml"
    file.write_text(
        file.read_text() + "optim: {lr: 0.5}\nreconstruction: {enabled: true}\nprotocol: heldout\nseed: 4\n"
    )
    for words, rate in (("optim=tsai_adam", 0.5), ("optim=tsai_adam optim.lr=0.2", 0.2)):
        typed = ["model=small_capsnet", "seed=5", *words.split()]
        config = composed(typed)
        assert config == to_containers(by_hydra(typed))
        assert (config["optim"]["lr"], config["protocol"], config["seed"]) == (rate, "heldout", 5)
        assert config["reconstruction"].items() >= {"enabled": True, "hidden": [512, 1024]}.items()


def test_the_same_name_in_two_packages_is_two_runs(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = composed_config(*RUN)
    (used / "others" / "model").mkdir(parents=True)
    (used / "others" / "networks.py").write_text((used / "mine" / "networks.py").read_text())
    for name in ("model/small_capsnet.yaml", "data/dark_digits.yaml"):
        text = (used / "mine" / "conf" / name).read_text()
        (used / "others" / name).parent.mkdir(exist_ok=True)
        (used / "others" / name).write_text(text.replace("mine.networks", "others.networks"))
    monkeypatch.setenv("CAPSEXP_CONFIG_DIR", str(used / "others"))
    other = composed_config(*RUN)
    assert keys.identity(mine, "float32", None) != keys.identity(other, "float32", None)
    assert "_target_" not in keys.identity(composed_config(), "float32", None)["model"]


def test_another_class_of_this_package_under_a_name_of_conf_is_another_run() -> None:
    """A folder's file, or a word, can give loss=margin the class of cross-entropy."""
    target = "capsexp.nn.losses.CrossEntropyLoss"
    arguments = [f"~loss.{name}" for name in ("positive", "negative", "down_weight")]
    own, other = (composed_config(*words) for words in ([], [f"loss._target_={target}", *arguments]))
    assert keys.identity(own, "float32", None)["loss"] == {"name": "margin"}
    assert keys.identity(other, "float32", None)["loss"] == {"name": "margin", "_target_": target}


def test_the_names_of_conf_stand_for_their_classes() -> None:
    """So that they are left out of identities, and keys stay those of older versions."""
    for group in ("model", "routing", "loss"):
        for name in searchpath.choices(group):
            component = getattr(composed_config(f"{group}={name}"), group)
            assert (component.name, component.target) in searchpath.named_classes()
    for name in searchpath.choices("data"):
        data = composed([f"data={name}"])["data"]
        nodes = [node for node in (data["reader"], data.get("synthesis")) if node]
        assert {(node["name"], node["_target_"]) for node in nodes} <= searchpath.named_classes()


def test_a_study_whose_row_cannot_be_composed(used: Path, program: Program) -> None:
    path = used / "mine" / "conf" / "study" / "mine_table1.yaml"
    path.write_text(path.read_text().replace("routing=mean,", "routing.iteration=1,"))
    (used / "results").mkdir()
    code, _, (error,) = program("capsexp", "tables", "mine_table1")
    assert code == 2
    assert error.startswith("error: mine_table1, mean, paper: routing.iteration: no such key; did you mean iterations?")


# Classes


def forget(monkeypatch: pytest.MonkeyPatch, folder: Path | str = "") -> None:
    """As in a new process in which this folder is typed."""
    monkeypatch.setenv("CAPSEXP_CONFIG_DIR", str(folder))
    forget_modules()


def test_a_checkpoint_alone_makes_no_class(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(used, *RUN, "budget=smoke", "logger=[]").folder / LAST
    forget(monkeypatch)
    assert refused(restore, whole).endswith(f"data.name=dark_digits: no such data set here; {OWN_FILES}")
    (used / "half").mkdir()
    shutil.copytree(used / "mine" / "conf" / "data", used / "half" / "data")
    forget(monkeypatch, used / "half")
    line = "model._target_=mine.networks.SmallCapsNet: no file of conf/model names this class"
    assert refused(restore, whole).endswith(f"{line}; {OWN_FILES}")
    assert not [name for name in sys.modules if name.startswith("mine.networks")]
    forget(monkeypatch)
    code = used / "mine" / "networks.py"  # which reads values, as a check of its input does
    code.write_text(
        code.read_text().replace("(self, images):\n", "(self, images):\n        assert images.min() >= 0\n")
    )
    loaded = capsexp.load(whole, config_dir=used / "mine" / "conf")
    assert type(loaded.network).__name__ == "SmallCapsNet"
    assert refused(lambda: capsexp.load("sample", config_dir="/nowhere")) == "--config-dir=/nowhere: no such folder"


@pytest.mark.parametrize("target", ["harmful.Net", "mine.harmful.Net", "mine.digits.Inverted"])
def test_a_class_that_no_file_of_the_group_names_is_not_imported(target: str, used: Path, trained: Trained) -> None:
    for name in ("harmful.py", "mine/harmful.py"):
        (used / name).write_text(f"open({str(used / 'harmed')!r}, 'w')\nclass Net: pass\n")
    content = torch.load(trained.folder / LAST, weights_only=True)
    content["capsexp"]["config"]["model"]["_target_"] = target
    torch.save(content, used / "other.ckpt")
    forget_modules()
    line = refused(restore, used / "other.ckpt")
    assert f"model._target_={target}: no file of conf/model names this class" in line
    assert not {"harmful", "mine.harmful", "mine.networks"} & set(sys.modules)
    assert not (used / "harmed").exists()


def test_the_working_folder_hides_no_other_module(package: Path, program: Program) -> None:
    assert program("scripts/prepare_data.py", "mnist_sample")[0] == 0
    assert str(package) not in sys.path
    assert program("scripts/prepare_data.py", MINE, "dark_digits")[0] == 0
    assert sys.path[-1] == str(package)


# A wheel


def killed_after_two_epochs(command: Sequence[str], folder: Path, installed: Installed) -> None:
    """Kills a run after its second epoch; the checkpoint of the first is written then."""
    process = subprocess.Popen(
        [installed.environment / "bin" / command[0], *command[1:]],
        cwd=folder,
        env=installed.variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    while "epoch 2/" not in (line := process.stdout.readline()):
        assert line, "the run ended before its second epoch"
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_documentation_with_an_installed_wheel(installed: Installed, tmp_path: Path) -> None:
    assert (installed.site / "capsexp" / "py.typed").exists()  # else its annotations are not used
    package = tmp_path / "empty"
    package.mkdir()
    write(package)
    assert str(installed.site) in installed.shell(package, "python -c 'import capsexp; print(capsexp.__file__)'")
    mine, run, *commands = re.sub("budget=demo", f"budget=demo {' '.join(SHORT)}", COMMANDS).splitlines()
    killed_after_two_epochs(shlex.split(run.replace("$mine", MINE)), package, installed)
    assert "continues after epoch" in installed.shell(package, mine, run)
    (name,) = [path.name for path in (package / "logs").iterdir() if (path / "last.ckpt").exists()]
    for command in commands:
        installed.shell(package, mine, command.replace("RUN", name))
    found = [records.read(path) for path in (package / "results" / "runs").iterdir()]
    assert len(found) == 2 + 4  # of two seeds; of two rows
    assert {record.identity["model"]["_target_"] for record in found} == {"mine.networks.SmallCapsNet"}
    assert found[0].provenance["command"].startswith("python -m capsexp --config-dir=mine/conf")
    page = (package / "results" / "tables" / "mine_table1.md").read_text()
    assert "# Does averaging beat routing?" in page
    assert "|Averaging is better |" in page
    assert re.search(r"^\|mean<sup>.*</sup> \|97\.1 \|", page, re.MULTILINE)
    assert "Rows: mine_table1.yaml. All" in page  # without a link into conf/
    assert "82.45" in installed.shell(package, "capsexp tables huang_table1")  # as published
    help_page = installed.shell(package, "capsexp --help")
    for command in ("reproduce", "tables", "figures", "compare", "evaluate", "inspect", "data"):
        assert command in help_page
        assert installed.shell(package, f"capsexp {command} --help")


def test_a_faulty_study_is_told_before_the_runs_of_others(used: Path, program: Program) -> None:
    study = used / "mine" / "conf" / "study" / "mine_table1.yaml"
    study.with_name("faulty.yaml").write_text(study.read_text().replace("columns:", "column:"))
    code, lines, errors = program("capsexp", MINE, "reproduce", "mine_table1", "--dry-run")
    assert (code, lines) == (2, [])
    assert "faulty.yaml: column: no such key; did you mean columns?" in errors[0]
