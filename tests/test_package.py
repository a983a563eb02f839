"""The package as pip installs it: a wheel, and what works with it in an empty folder."""

import importlib
import json
import re
import tarfile
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
import yaml
from setuptools import build_meta
from support import ROOT, TINY, Installed, process

import capsexp

NOTEBOOK = ROOT / "docs" / "first_steps.ipynb"
LEARNED = """
assert coefficients.sum(-1).allclose(torch.ones(3, 108))
assert curves["without"][-1] > 20  # it learns: chance is 11 %
assert curves["Efficient-CapsNet"][-1] > 50
"""


def test_the_metadata_say_the_licences_and_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    folder = tmp_path / build_meta.prepare_metadata_for_build_wheel(str(tmp_path))
    found = Distribution.at(folder)
    assert found.metadata["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    texts = [path.read_text() for path in (folder / "licenses").rglob("*") if path.is_file()]
    assert sorted(text.splitlines()[0] for text in texts) == ["Creative Commons Legal Code", "MIT License"]
    description = str(found.metadata.get_payload())
    assert "capsexp tables" in description
    assert re.findall(r"\]\((?!https://)|src=|href=", description) == []  # nothing relative, dead on a registry's page
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found.version == capsexp.__version__ == cited["version"] == changes[0]


@pytest.mark.slow
def test_published_tables_are_measured_in_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    printed = installed.shell(tmp_path, "capsexp tables jiao_table2 2>&1")
    page = (ROOT / "results" / "tables" / "jiao_table2.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("|CapsNet1_CBAM<sup>"))
    measured = re.sub("<sup>.*</sup>", "", row).replace("|", " ").split()
    assert measured in [line.split() for line in printed.splitlines()]
    assert printed.splitlines()[-1].startswith("results/runs: no records; the numbers are of the ")
    assert not any(tmp_path.iterdir())
    installed.shell(tmp_path, f"capsexp {' '.join([*TINY[:-3], 'trainer=cpu'])}")
    assert "no records" not in installed.shell(tmp_path, "capsexp tables jiao_table2 2>&1")
    (record,) = (tmp_path / "results" / "runs").glob("*.json")
    provenance = json.loads(record.read_text())["provenance"]
    assert (provenance["commit"], provenance["libraries"]["capsexp"]) == (None, capsexp.__version__)


@pytest.mark.parametrize("missing", ["annotated_types", "hydra"])
@pytest.mark.parametrize("words", ["-m capsexp data=svhn", "scripts/aggregate.py"])
def test_a_clone_without_an_environment_says_so_in_one_line(missing: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import importlib.util, sys\nsys.modules['{missing}'] = None\nwhole = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name == '{missing}' else whole(name)\n"
    )
    ended = process(*words.split(), PYTHONPATH=str(tmp_path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"{capsexp.NOT_INSTALLED}\n")


def test_a_network_is_loaded_without_the_modules_that_windows_lacks() -> None:
    blocked = "import sys; sys.modules |= dict.fromkeys(['fcntl', 'resource', 'termios'])"
    ended = process("-c", f"{blocked}; import capsexp; print(len(capsexp.load('sample').classes))")
    assert (ended.stdout, ended.stderr) == ("10\n", "")


@pytest.mark.slow
def test_the_notebook_runs_in_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    assert NOTEBOOK.stat().st_size < 300_000
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    source = "\n".join("".join(cell["source"]) for cell in cells).replace("%pip install", "raise AssertionError  #")
    shorter = source.replace("epochs, count = 3, 5000", "epochs, count = 1, 2500")
    assert shorter != source
    (tmp_path / "cells.py").write_text(shorter + LEARNED)
    printed = installed.shell(tmp_path, "MPLBACKEND=agg python cells.py")
    said = ["".join(output.get("text", ())) for cell in cells for output in cell["outputs"]]
    assert printed.startswith(next(text for text in said if "poses" in text))


@pytest.mark.slow
def test_the_source_archive_has_what_the_wheel_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / build_meta.build_sdist(str(tmp_path))) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"LICENSE", "LICENSES/CC-BY-SA-3.0.txt", "setup.py", "conf/config.yaml"} <= set(names)
    assert not [name for name in names if name.startswith("tests")]  # which need the whole checkout


@pytest.mark.parametrize(
    ("package", "place", "user"),
    [
        ("tensorboard", "tensorboard.compat.proto.event_pb2:Event", "run/tensorboard.py"),
        ("tensorboard", "tensorboard.compat.proto.summary_pb2:Summary", "run/tensorboard.py"),
        ("tensorboard", "tensorboard.summary.writer.record_writer:RecordWriter", "run/tensorboard.py"),
        ("torchvision", "torchvision._meta_registrations:torch", "torchvision_fix.py"),
        (
            "pytorch-lightning",
            "pytorch_lightning.loops.training_epoch_loop:_TrainingEpochLoop.global_step",
            "run/module.py",
        ),
    ],
)
def test_what_a_dependency_may_change_is_still_there(package: str, place: str, user: str) -> None:
    module, _, path = place.partition(":")
    try:
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{package} {version(package)} has no {place} any more, which capsexp/{user} uses ({error})")
