"""Studies: every table is there, with the printed numbers, and its grid runs what its rows show."""

import subprocess
import sys
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support import ROOT, TINY, committed_records

from capsexp.config.compose import CONF, composed
from capsexp.config.schema import Config, check
from capsexp.errors import InputError
from capsexp.run import records
from capsexp.run.build import dry_run
from capsexp.study import studies
from capsexp.study.sweeper import parse

#: Every number that the sources print, typed in their own layout: study -> row -> measures.
NUMBERS: dict[str, dict[str, dict[str, str]]] = {
    "jiao_table2": {
        "CapsNet1": {"accuracy": "99.70999908", "first_epoch": "133"},
        "CapsNet1_CBAM": {"accuracy": "99.66999817", "first_epoch": "100"},
        "CapsNet2": {"accuracy": "99.65000153", "first_epoch": "111"},
        "CapsNet2_CBAM": {"accuracy": "99.61000061", "first_epoch": "42"},
        "CapsNet3": {"accuracy": "99.69000244", "first_epoch": "131"},
        "CapsNet3_CBAM": {"accuracy": "99.62002324", "first_epoch": "82"},
        "CapsNet4": {"accuracy": "99.59999847", "first_epoch": "141"},
        "CapsNet4_CBAM": {"accuracy": "99.55999756", "first_epoch": "86"},
        "CapsNet5": {"accuracy": "99.65000153", "first_epoch": "125"},
        "CapsNet5_CBAM": {},
    },
    "huang_table1": {
        f"CapsNet {constant} {data}": {"accuracy": number}
        for constant, line in (("1.0", "82.45 90.82 90.78"), ("0.5", "82.95 92.41 91.36"))
        for data, number in zip(("CIFAR-10", "Fashion-MNIST", "SVHN"), line.split(), strict=True)
    },
    "huang_table2": {
        f"{network} {data}": {"accuracy": number}
        for data, line in (
            ("CIFAR-10", "82.95 84.71 83.47 85.47"),
            ("SVHN", "91.36 94.37 94.26 94.82"),
            ("Fashion-MNIST", "92.41 93.21 93.60 93.98"),
        )
        for network, number in zip(("CapsNet", "CapsNet+Conv", "CapsNet+Caps", "DA-CapsNet"), line.split(), strict=True)
    },
    "huang_readings": {
        f"{network} {data} {reading}": {"accuracy": number}
        for data, none, both, readings in (
            ("SVHN", "91.36", "94.82", "as chosen, replaced, five convolutions, parents, children, votes"),
            ("CIFAR-10", "82.95", "85.47", "as chosen, children"),
            ("COIL-20", "98.38", "100", "as chosen, 20 objects"),
        )
        for reading in readings.split(", ")
        for network, number in (("CapsNet", none), ("DA-CapsNet", both))
        if network == "DA-CapsNet" or reading not in {"parents", "children", "votes"}
    },
    "huang_table4": {
        f"{network} {data}": {"accuracy": number} if number != "?" else {}
        for data, line in (
            ("MNIST", "100 100 100"),
            ("CIFAR-10", "? 82.95 85.47"),
            ("SVHN", "? 91.36 94.82"),
            ("Fashion-MNIST", "? 92.41 93.98"),
            ("smallNORB", "91.28 96.93 98.26"),
            ("COIL-20", "100 98.38 100"),
        )
        for network, number in zip(("CNN", "CapsNet", "DA-CapsNet"), line.split(), strict=True)
    },
    "huang_fig8": {"CapsNet": {}, "DA-CapsNet": {}},
    "huang_fig14": {"CapsNet": {}, "DA-CapsNet": {}},
    "huang_fig10": {
        network: {"first_epoch": epochs, "accuracy": "100"}
        for network, epochs in (("CapsNet", "25"), ("CapsNet+Conv", "16"), ("CapsNet+Caps", "13"), ("DA-CapsNet", "10"))
    },
    "tsai_table1": {
        f"{method} {data}": {"accuracy": accuracy, "parameters": parameters}
        for method, *cells in (
            ("Dynamic simple", "84.08 7.99", "56.96 31.59"),
            ("EM simple", "82.19 0.45", "37.73 0.50"),
            ("Inverted simple", "85.17 0.56", "57.32 1.46"),
            ("Dynamic ResNet", "92.65 12.45", "71.70 36.04"),
            ("EM ResNet", "92.15 1.71", "58.08 1.76"),
            ("Inverted ResNet", "95.14 1.83", "78.02 2.80"),
            ("Baseline CNN", "87.10 18.92", "62.30 19.01"),
            ("ResNet-18", "95.11 11.17", "77.92 11.22"),
        )
        for data, (accuracy, parameters) in zip(("CIFAR-10", "CIFAR-100"), map(str.split, cells), strict=True)
    },
    "tsai_fig4": {f"{routing} {i}": {} for routing in ("Dynamic", "EM", "Inverted") for i in range(1, 6)},
    "tsai_fig4_ablation": {f"{variant} {i}": {} for variant in ("Inverted", "A", "B", "C") for i in range(1, 6)},
    "tsai_fig4_cost": {f"Inverted {i}": {"parameters": "0.56"} for i in range(1, 6)},
    "tsai_fig5": {
        "CapsNet* vector": {"accuracy": "83.39", "parameters": "42.48"},
        "CapsNet matrix": {"accuracy": "80.59", "parameters": "9.96"},
        "CapsNet vector": {"accuracy": "85.74", "parameters": "42.48"},
        "Baseline CNN": {"accuracy": "79.81", "parameters": "19.55"},
        "Fully connected CNN": {"accuracy": "84.84", "parameters": "42.49"},
        "CapsNet matrix 42M": {"accuracy": "91.17", "parameters": "42"},
    },
    "alberti_mnist": {
        "CapsNet1": {},
        "CapsNet1 reconstruction": {"parameters": "8.2"},
        "CapsNet3": {},
        "CapsNet3 reconstruction": {"parameters": "8.2"},
        "CNN": {"parameters": "34.4"},
    },
    "alberti_affine": {"CapsNet": {"accuracy": "79"}, "CNN": {"accuracy": "66"}},
    "ou_backprop": {"Routing alone": {}, "Last iteration": {}, "Routing and back-propagation": {}},
    "ou_traversal": {"CapsNet MNIST": {}, "CapsNet Fashion-MNIST": {}},
}

#: The sizes that the sources claim, in their order.
SIZES = {
    "jiao_table2": "-50",
    "huang_table1": "+0.50 +1.59 +0.58",
    "huang_table2": "+1.76 +0.52 +2.52 +3.01 +2.90 +3.46 +0.80 +1.19 +1.57",
    "huang_readings": "+3.46 +3.46 +3.46 +3.46 +3.46 +2.52 +1.16",
    "huang_table4": "+0.15 +2.52 +3.46 +1.57 +1.33 +1.16",
    "tsai_table1": "-75",
    "alberti_affine": "+13",
}

ITERATIONS = "routing.iterations="


@cache
def plain(words: frozenset[str]) -> dict[str, Any]:
    """The composed configuration of a job."""
    return composed(sorted(words))


@cache
def config_of(words: frozenset[str]) -> Config:
    """The checked configuration of a job. Jobs that differ in their iterations are composed once: it takes its time."""
    iterations = {word for word in words if word.startswith(ITERATIONS)}
    config = deepcopy(plain(words - iterations))
    for word in iterations:
        assert "iterations" in config["routing"]
        config["routing"]["iterations"] = int(word.removeprefix(ITERATIONS))
    return check(config)


def condition(words: Iterable[str], precision: str = "", note: str | None = None) -> str:
    return studies.condition_of(records.identity(config_of(frozenset(words)), precision, note))


def conditions(row: studies.Row) -> list[str]:
    return [condition(words) for words in row.jobs()]


def test_every_study_has_its_grid_and_its_published_numbers() -> None:
    assert set(studies.names()) == NUMBERS.keys()
    assert {path.stem for path in studies.PUBLISHED.glob("*.yaml")} == NUMBERS.keys()


@pytest.mark.parametrize("name", NUMBERS)
def test_the_grid_runs_what_the_rows_show(name: str) -> None:
    """Nothing is run that no row shows, nothing twice, and no row lacks its runs; every run can be built."""
    study = studies.load(name)
    swept = [condition(words) for words in study.jobs()]
    assert set(swept) == {found for row in study.rows for found in conditions(row)}
    assert len(set(swept)) == len(swept)
    networks = {tuple(word for word in words if not word.startswith(ITERATIONS)): words for words in study.jobs()}
    for words in networks.values():
        assert dry_run(config_of(frozenset(words))) > 0


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_are_those_that_are_printed(name: str) -> None:
    study = studies.load(name)
    found = {
        row.name: {measure: text for measure, text in row.published.items() if studies.published_number(text)}
        for row in study.rows
    }
    assert found == NUMBERS[name]
    assert list(found) == list(NUMBERS[name])  # in the source's order
    sizes = [claim.claimed for claim in study.claims if studies.published_number(claim.claimed)]
    assert " ".join(sizes) == SIZES.get(name, "")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_study_says_where_it_is_from_and_claims_what_can_be_run(name: str) -> None:
    study = studies.load(name)
    assert study.source.startswith(name.split("_", maxsplit=1)[0])
    assert study.protocol
    assert study.deviations
    assert {measure for row in study.rows for measure in row.published} == set(study.measures)
    named = {name for claim in study.claims for pair in claim.pairs for name in pair}
    named |= {name for claim in study.claims for name in claim.rows}
    assert all(row.run for row in study.rows if row.name in named)
    assert [row.name for row in study.rows if row.run is None] == ["CapsNet matrix 42M"] * (name == "tsai_fig5")


@pytest.mark.parametrize("name", [name for name, rows in NUMBERS.items() if "parameters" in str(rows)])
def test_the_networks_have_the_printed_millions_of_parameters(name: str) -> None:
    unlike = []
    for row in studies.load(name).rows:
        printed = studies.published_number(row.published["parameters"])
        if printed and row.run:
            counted = dry_run(config_of(frozenset(row.jobs()[0]))) / 1e6
            unlike += [row.name] * (abs(counted - printed.value) > printed.resolution)
    assert unlike == ["CNN"] * (name == "alberti_mnist")  # 34.4 is a slip of 35.4


def test_a_row_may_be_the_best_of_several_runs() -> None:
    rows = {row.name: row for row in studies.load("tsai_table1").rows}
    assert [words[-1] for words in rows["EM ResNet CIFAR-100"].jobs()] == [f"{ITERATIONS}{i}" for i in range(1, 6)]
    assert len(rows["ResNet-18 CIFAR-10"].jobs()) == 1
    assert len(rows["EM ResNet CIFAR-100"].jobs(["routing.iterations=2", "budget=short"])) == 1
    assert rows["EM ResNet CIFAR-100"].jobs(["seed=1"])[0][0] == "seed=1"


def test_committed_records_are_found_by_what_they_trained() -> None:
    rows = studies.load("huang_table4").rows
    expected = {conditions(row)[0]: row.name for row in rows if row.name.endswith("COIL-20")}
    identities = [records.read(path).identity for path in committed_records() if "-coil20-" in path.name]
    if not identities:
        pytest.skip("not a checkout")
    found = {(expected.get(studies.condition_of(identity)), identity["seed"]) for identity in identities}
    assert found >= {(name, seed) for name in expected.values() for seed in range(3)}


# Bad files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one study's two files, study/ and published/."""
    for folder in ("study", "published"):
        (tmp_path / folder).mkdir()
    (tmp_path / "study" / "huang_table1.yaml").write_text((CONF / "study" / "huang_table1.yaml").read_text())
    (tmp_path / "published" / "huang_table1.yaml").write_text((studies.PUBLISHED / "huang_table1.yaml").read_text())
    monkeypatch.setattr(studies, "CONF", tmp_path)
    monkeypatch.setattr(studies, "PUBLISHED", tmp_path / "published")
    return tmp_path


def error(name: str = "huang_table1") -> str:
    """What is wrong with a study, in one line."""
    with pytest.raises(InputError) as caught:
        _ = studies.load(name).grids
    assert "\n" not in str(caught.value)
    return str(caught.value)


FIRST = 'published: {accuracy: "82.45"}'
PAIR = "pairs: [[CapsNet 1.0 CIFAR-10, CapsNet 0.5 CIFAR-10]]"
MISTAKES = [
    ("measures: [accuracy]", "measures: [accuracy, speed]", "measures[1]=speed: must be one of accuracy, "),
    (FIRST, "published: {accuarcy: '82.45'}", "accuarcy is not among the study's measures"),
    (FIRST, "published: {first_epoch: '3'}", "first_epoch is not among the study's measures"),
    (FIRST, "published: {accuracy: '82,45'}", "published.accuracy=82,45: must be a number or one of not in our copy, "),
    (FIRST, "published: {accuracy: 82.45}", "rows[0].published.accuracy=82.45: must be text"),
    (FIRST, "", "rows[0].published: missing"),
    (PAIR, "pairs: [[CapsNet 1.0 CIFAR-10, CapsNet 2.0]]", "no row CapsNet 2.0"),
    (PAIR, "pairs: [[CapsNet 1.0 CIFAR-10]]", "pairs must be of two rows"),
    (PAIR, "rows: [CapsNet 1.0 CIFAR-10]", "a slope needs rows, anything else pairs"),
    (PAIR, "", "a slope needs rows, anything else pairs"),
    ("estimate: difference", "estimate: ratio", "claims[0].estimate=ratio: must be one of difference, "),
    ('claimed: "+0.50"', "claimed: much", "claimed=much: must be a number, increase, decrease or same"),
    ("[CapsNet 1.0 CIFAR-10, CIFAR-10,", "[CapsNet 1.0 CIFAR-10,", "rows.CapsNet 1.0 CIFAR-10: must have 3 labels"),
    ("labels: [CapsNet 1.0 SVHN", "labels: [CapsNet 0.5 SVHN", "rows: their first labels must differ"),
    ("run: model=da_capsnet attention=none", "run: da_capsnet attention=none", "must be words of the form key=value"),
    ("title: ", "titel: ", "titel: no such key; did you mean title?"),
    ("columns: [", "columns: ", "columns=network, data, squash constant]: must be a list, each text"),
    ("across: data", "across: date", "across=date: must be one of the columns but the first"),
    ("columns: [", "columns: [[", "line 21: "),
    ("", "- a list\n", "line 2: "),
]


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES)
def test_a_bad_published_file_is_one_line(files: Path, old: str, new: str, expected: str) -> None:
    path = files / "published" / "huang_table1.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert error().startswith(f"{path}: ")
    assert expected in error()


def test_a_file_that_is_not_there_is_one_line(files: Path) -> None:
    assert error("huang_table") == "huang_table: no such study; did you mean huang_table1? (there are huang_table1)"
    path = files / "published" / "huang_table1.yaml"
    path.write_text("- 1")
    assert error() == f"{path}: must be a mapping"
    path.write_bytes(b"\xff\xfe")
    assert error().startswith(f"{path}: ")
    path.unlink()
    assert error() == f"{path}: missing; the published numbers are in the project's checkout"


@pytest.mark.parametrize("grid", ["hydra:\n  mode: MULTIRUN\n", "hydra:\n", "hydra: 3\n"])
def test_a_study_without_a_grid_is_one_line(files: Path, grid: str) -> None:
    path = files / "study" / "huang_table1.yaml"
    path.write_text(grid)
    assert error() == f"{path}: hydra.sweeper.grids: missing"


# Conditions


def test_a_condition_is_what_is_trained_not_how_much() -> None:
    base = condition(["data=svhn"])
    assert condition(["data=svhn"], precision="bf16", note="a part") == base
    words = "data=svhn seed=3 budget=demo budget.train_images=9 trainer.precision=float32 protocol=heldout"
    assert condition([*words.split(), "trainer=cpu", "data.root=/elsewhere", "rerun=true"]) == base
    assert condition(["data=svhn", "model.width=0.5"]) == base
    assert studies.condition(("data=svhn",)) == base


#: A word for each axis of the studies, behind words that it changes.
AXES = [
    ("data=mnist", "routing.iterations=2"),
    ("data=mnist", "attention=cbam"),
    ("data=mnist", "data=fashion_mnist"),
    ("data=mnist", "data=affine_mnist"),
    ("data=mnist", "reconstruction.enabled=true"),
    ("data=mnist", "routing.gradient=last"),
    ("data=mnist routing.gradient=last", "routing.gradient=none"),
    ("data=mnist", "model=sabour_cnn"),
    ("model=da_capsnet data=mnist", "attention.conv=false"),
    ("model=da_capsnet data=mnist", "attention.caps=false"),
    ("model=da_capsnet data=mnist", "model.squash_constant=1.0"),
    ("model=da_capsnet data=coil20", "optim=huang_coil20"),
    ("model=inverted_capsnet data=cifar10", "model.backbone=resnet"),
    ("model=inverted_capsnet data=cifar10", "routing.norm=false"),
    ("model=inverted_capsnet data=cifar10", "routing.order=sequential"),
    ("model=inverted_capsnet data=cifar10", "routing.activations=true"),
    ("model=inverted_capsnet data=cifar100", "model=inverted_capsnet_cifar100"),
    ("model=inverted_capsnet_multimnist data=diverse_multimnist", "model=inverted_capsnet_multimnist_matrix"),
    ("model=tsai_cnn_multimnist data=diverse_multimnist", "model.head=connected"),
]


@pytest.mark.parametrize(("base", "change"), AXES, ids=lambda words: words.replace(" ", "+"))
def test_every_axis_makes_another_condition(base: str, change: str) -> None:
    key = change.partition("=")[0]
    kept = [word for word in base.split() if word.partition("=")[0] != key]
    assert condition([*kept, change]) != condition(base.split())


# Sweeps


def test_several_grids_each_on_their_own_and_duplicates_once() -> None:
    grids = [{"model": "a,b", "data": "x,y"}, {"model": "c"}, {"model": "b", "data": "y"}]
    expected = ["a x", "a y", "b x", "b y", "c"]
    assert [" ".join(word.split("=")[1] for word in job) for job in studies.jobs(grids)] == expected
    assert studies.jobs([]) == [[]]


def test_what_is_typed_goes_to_all_grids_or_replaces_what_they_sweep() -> None:
    grids = [{"model": "a,b", "n": "1,2"}, {"model": "c"}]
    assert studies.jobs(grids, ["seed=0,1"]) == [
        ["seed=0", "model=a", "n=1"],
        ["seed=0", "model=a", "n=2"],
        ["seed=0", "model=b", "n=1"],
        ["seed=0", "model=b", "n=2"],
        ["seed=1", "model=a", "n=1"],
        ["seed=1", "model=a", "n=2"],
        ["seed=1", "model=b", "n=1"],
        ["seed=1", "model=b", "n=2"],
        ["seed=0", "model=c"],
        ["seed=1", "model=c"],
    ]
    assert studies.jobs(grids, ["n=3"]) == [["model=a", "n=3"], ["model=b", "n=3"], ["model=c"]]
    assert studies.jobs(grids, ["model=z"]) == [["model=z", "n=1"], ["model=z", "n=2"], ["model=z"]]


@pytest.mark.parametrize("typed", ["iterations", "a=[1"])
def test_what_cannot_be_read_is_one_line(typed: str) -> None:
    with pytest.raises(InputError, match="not of the form key=value"):
        studies.jobs([{"model": "a"}], [typed])


GRID: dict[str, Any] = {"a": None, "b": True, "c": [1, 2], "d": "[1],[2,3]", "e": 0.5, "f.g": "x"}
JOBS = [["a=null", "b=True", "c=[1,2]", f"d={d}", "e=0.5", "f.g=x"] for d in ("[1]", "[2,3]")]


def test_a_grid_may_hold_null_booleans_numbers_and_lists() -> None:
    assert studies.jobs([GRID]) == JOBS


def test_hydra_makes_the_same_of_them() -> None:
    sweeper = OmegaConf.load(CONF / "hydra" / "sweeper" / "grids.yaml")
    (batch,) = instantiate(sweeper, grids=[GRID]).split_arguments([], None)
    assert [list(job) for job in batch] == JOBS


@pytest.mark.parametrize("name", NUMBERS)
def test_hydra_sweeps_what_the_study_says(name: str) -> None:
    typed = ["seed=0,1", "budget=short"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        hydra = compose("config", [f"+study={name}"], return_hydra_config=True).hydra
    (batch,) = instantiate(hydra.sweeper).split_arguments(parse(typed), None)
    assert [list(job) for job in batch] == studies.load(name).jobs(typed)
    assert hydra.mode.name == "MULTIRUN"


def test_a_study_runs_without_m_and_each_run_is_recorded_as_typed_alone(tmp_path: Path) -> None:
    replaced = ("data=mnist_sample", "budget=smoke", "routing.iterations=1")
    kept = [word for word in TINY if word.split("=")[0] not in ("data", "budget", "budget.epochs")]
    paths = (f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs")
    ended = subprocess.run(
        [sys.executable, "-m", "capsexp", "+study=jiao_table2", *kept, *replaced, *paths],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    found = [records.read(path) for path in (tmp_path / "results" / "runs").iterdir()]
    assert sorted(record.identity["attention"]["cbam"] for record in found) == [False, True]
    assert {record.identity["routing"]["iterations"] for record in found} == {1}
    for record in found:
        assert "study" not in record.provenance["command"]
        assert "data=mnist_sample" in record.provenance["command"]
    rows = {row.name: row for row in studies.load("jiao_table2").rows}
    shown = [condition(words) for name in ("CapsNet1", "CapsNet1_CBAM") for words in rows[name].jobs(replaced)]
    assert {studies.condition_of(record.identity) for record in found} == set(shown)
