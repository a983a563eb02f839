"""Studies: every file holds together, has the printed numbers, and runs that can be built."""

from pathlib import Path

import pytest
from support import committed_records, refused

from capsexp.config.searchpath import CONF
from capsexp.reproduce.planning import commands_of
from capsexp.run import records
from capsexp.run.build import count_parameters
from capsexp.study import studies
from capsexp.study.identity import trained
from capsexp.study.selection import combination
from capsexp.study.studies import Published

#: Numbers that the sources print, typed a second time, in their own layout: study -> row -> measures.
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
            (
                "SVHN",
                "91.36",
                "94.82",
                "as chosen, replaced, five convolutions, parents, children, votes, capsules, nearest",
            ),
            ("CIFAR-10", "82.95", "85.47", "as chosen, children"),
            ("COIL-20", "98.38", "100", "as chosen, 20 objects, 7:3"),
        )
        for reading in readings.split(", ")
        for network, number in (("CapsNet", none), ("DA-CapsNet", both))
        if reading not in ({"parents", "children", "votes", "capsules"} if network == "CapsNet" else {"nearest"})
    }
    | {"CNN COIL-20 7:3": {"accuracy": "100"}},
    "huang_table4": {
        f"{network} {data}": {"accuracy": number}
        for data, line in (
            ("MNIST", "100 100 100"),
            ("CIFAR-10", "? 82.95 85.47"),
            ("SVHN", "? 91.36 94.82"),
            ("Fashion-MNIST", "? 92.41 93.98"),
            ("smallNORB", "91.28 96.93 98.26"),
            ("COIL-20", "100 98.38 100"),
        )
        for network, number in zip(("CNN", "CapsNet", "DA-CapsNet"), line.split(), strict=True)
        if number != "?"
    }
    | {"CNN MNIST unpadded": {"accuracy": "100"}},
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
        "CapsNet1 reconstruction": {"parameters": "8.2"},
        "CapsNet3 reconstruction": {"parameters": "8.2"},
        "CNN": {"parameters": "34.4"},
    },
    "alberti_affine": {"CapsNet": {"accuracy": "79"}, "CNN": {"accuracy": "66"}},
    "sabour_table1": {
        "CNN": {"accuracy": "99.61", "parameters": "35.4"},
        "CapsNet1": {"accuracy": "99.66", "parameters": "6.8"},
        "CapsNet1 reconstruction": {"accuracy": "99.71", "parameters": "8.2"},
        "CapsNet3": {"accuracy": "99.65", "parameters": "6.8"},
        "CapsNet3 reconstruction": {"accuracy": "99.75", "parameters": "8.2"},
    },
    "mazzia_table2": {
        "Baseline": {"accuracy": "99.52", "parameters": "0.173"},
        "Base-CapsNet": {"accuracy": "99.46", "parameters": "0.183"},
        "Baseline reconstruction": {"accuracy": "99.6", "parameters": "0.173"},
        "Base-CapsNet reconstruction": {"accuracy": "99.61", "parameters": "0.183"},
        "Efficient-CapsNet unreconstructed": {"parameters": "0.161"},
    },
}

#: The sizes that the sources claim, in their order.
SIZES = {
    "jiao_level": "-50",
    "jiao_table2": "-50 -50",
    "huang_table1": "+0.50 +1.59 +0.58",
    "huang_table2": "+1.76 +0.52 +2.52 +3.01 +2.90 +3.46 +0.80 +1.19 +1.57",
    "huang_readings": "+3.46 +3.46 +3.46 +3.46 +3.46 +2.52 +1.16 +1.16",
    "huang_table4": "+0.15 +2.52 +3.46 +1.57 +1.33 +1.16",
    "tsai_table1": "4 4",
    "alberti_mnist": "4",
    "sabour_table1": "+0.05 +0.10 +0.04 +0.14",
    "alberti_affine": "+13",
}


@pytest.mark.parametrize("name", studies.names())
def test_a_study_is_complete(name: str) -> None:
    study = studies.load(name)
    assert study.source == name.split("_", maxsplit=1)[0]
    assert all((study.table, study.protocol, study.deviations, study.paper.title, study.laptop))
    assert {measure for row in study.rows for measure in row.published} == set(study.measures)
    compared = {name for claim in study.claims for name in claim.compared}
    assert all(row.run for row in study.rows if row.name in compared)


def test_every_run_can_be_built_and_has_one_command_in_a_study() -> None:
    networks = {}
    for study in map(studies.load, studies.names()):
        commands = {words for row in study.rows for words in row.combinations(study.paper)}
        assert len({combination(words).trained.condition for words in commands}) == len(commands)
        for words in commands:
            without_iterations = frozenset(word for word in words if not word.startswith("routing.iterations="))
            networks[without_iterations] = words
    for words in networks.values():
        assert count_parameters(combination(words).config) > 0


@pytest.mark.parametrize("name", studies.names())
def test_the_numbers_are_those_that_are_printed(name: str) -> None:
    study = studies.load(name)
    printed = {row.name: {measure: one.text for measure, one in row.printed.items()} for row in study.rows}
    found = {row: numbers for row, numbers in printed.items() if numbers}
    assert [*found.items()] == [*NUMBERS.get(name, {}).items()]  # in the source's order
    sizes = [claim.size.text for claim in study.claims if claim.size]
    assert " ".join(sizes) == SIZES.get(name, "")


def test_a_row_may_be_the_best_of_several_runs() -> None:
    study = studies.load("tsai_table1")
    rows = {row.name: row for row in study.rows}
    best = rows["EM ResNet CIFAR-100"].combinations(study.paper)
    assert [words[-1] for words in best] == [f"routing.iterations={i}" for i in range(1, 6)]
    assert len(rows["ResNet-18 CIFAR-10"].combinations(study.paper)) == 1


def test_committed_records_are_found_by_what_they_trained() -> None:
    study = studies.load("huang_table4")
    rows = [row for row in study.rows if row.name in ("CNN COIL-20", "CapsNet COIL-20", "DA-CapsNet COIL-20")]
    expected = {combination(row.combinations(study.paper)[0]).trained.condition: row.name for row in rows}
    identities = [records.read(path).identity for path in committed_records() if "-coil20-" in path.name]
    if not identities:
        pytest.skip("not a checkout")
    found = {(expected.get(trained(identity).condition), identity["seed"]) for identity in identities}
    assert found >= {(name, seed) for name in expected.values() for seed in range(3)}


# Printed numbers


@pytest.mark.parametrize(
    ("text", "value", "resolution"),
    [
        ("79", 79.0, 0.5),
        ("82.19", 82.19, 0.005),
        ("99.70", 99.7, 0.005),
        ("99.7", 99.7, 0.05),
        ("99.70999908", 99.70999908, 0.000000005),
        ("100", 100.0, 0.5),
        ("-2.5", -2.5, 0.05),
        ("+2.52", 2.52, 0.005),
        (".25", 0.25, 0.005),
        ("0.0", 0.0, 0.05),
    ],
)
def test_a_printed_number_is_known_to_half_a_unit_of_its_last_digit(text: str, value: float, resolution: float) -> None:
    assert studies.published_number(text) == Published(text, value, resolution)


NO_NUMBERS = ["", "-", ".", "5.", "nan", "inf", "-inf", "82.19%", "82.19 %", "1e2", "1E-2", "1,000", "82,19", "1_000"]
NO_NUMBERS += [" 79", "79 ", "79\n", "0x10", "--1", "1.2.3", "79±1", "−2.5", "٧٩", "9" * 400]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert studies.published_number(text) is None


# Wrong files


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the only study there is."""
    (tmp_path / "study").mkdir()
    path = tmp_path / "study" / "huang_table1.yaml"
    path.write_text((CONF / "study" / "huang_table1.yaml").read_text())
    monkeypatch.setattr(studies, "choices", lambda group: {path.stem: path})
    return path


def error(name: str = "huang_table1") -> str:
    """What is wrong with a study, in one line."""
    return refused(studies.load, name)


FIRST = 'published: {accuracy: "82.45"}'
PAIR = "pairs: [[CapsNet 1.0 CIFAR-10, CapsNet 0.5 CIFAR-10]]"
AT = " " * 4  # where a claim's keys stand
SIZE = f'{AT}claimed: "+0.50"'
SLOPE_OF_ONE = f"estimate: slope\n{AT}claimed: increase\n{AT}rows: [CapsNet 1.0 CIFAR-10]"
FACTOR_WITHIN = f"measure: seconds\n{AT}estimate: factor\n{AT}claimed: same\n{AT}margin: 2"
MISTAKES = [
    ("measures: [accuracy]", "measures: [accuracy, speed]", "measures[1]=speed: must be one of accuracy, "),
    (FIRST, "published: {accuarcy: '82.45'}", "accuarcy is not among the study's measures"),
    (FIRST, "published: {first_epoch: '3'}", "first_epoch is not among the study's measures"),
    (FIRST, "published: {accuracy: '82,45'}", "published.accuracy=82,45: must be a number above 0 and at most 100 or "),
    (FIRST, "published: {accuracy: '0'}", "published.accuracy=0: must be a number above 0 and at most 100 or one of "),
    (FIRST, "published: {accuracy: '8245'}", "published.accuracy=8245: must be a number above 0 and at most 100"),
    (FIRST, f"{FIRST}\n{AT}{FIRST}", "line 41: found duplicate key published"),
    ("squash_constant=1.0", "squash_constant=1.0 seed=3", "must be without a seed; the runs of a row have several"),
    ("squash_constant=1.0", "squash_constant=interval(0,1)", "rows.CapsNet 1.0 CIFAR-10.run=model=da_capsnet"),
    (FIRST, "published: {accuracy: 82.45}", "rows[0].published.accuracy=82.45: must be text"),
    (f"{AT}run: model=da_capsnet attention=none data=cifar10 model.squash_constant=1.0\n", "", "rows[0].run: missing"),
    (PAIR, "pairs: [[CapsNet 1.0 CIFAR-10, CapsNet 2.0]]", "no row CapsNet 2.0"),
    (PAIR, "pairs: [[CapsNet 1.0 CIFAR-10]]", "pairs must be of two rows"),
    (PAIR, "pairs: [[CapsNet 1.0 CIFAR-10, CapsNet 1.0 CIFAR-10]]", "pairs must be of two rows"),
    (f"{SIZE}\n{AT}{PAIR}", f"{AT}{SLOPE_OF_ONE}", "a slope needs two rows at least"),
    (SIZE, f"{AT}{FACTOR_WITHIN}", "margin: not with estimate=factor; with relative it is in "),
    (SIZE, f"{SIZE}\n{AT}estimate: spread", "claimed=+0.50: must be increase or decrease with estimate=spread"),
    (
        PAIR,
        "rows: [CapsNet 1.0 CIFAR-10]",
        "a slope, and a difference from a reference, need rows, anything else pairs",
    ),
    (PAIR, "", "a slope, and a difference from a reference, need rows, anything else pairs"),
    (SIZE, f"{SIZE}\n{AT}estimate: ratio", "claims[0].estimate=ratio: must be one of difference, "),
    ('claimed: "+0.50"', "claimed: much", "claimed=much: must be a number or one of increase, decrease, same, no "),
    ('claimed: "+0.50"', "claimed: '0.00'", "claimed=0.00: must be an effect, by estimate=difference"),
    (SIZE, f"{AT}estimate: relative\n{AT}claimed: '-100'", "claimed=-100: must be an effect, by "),
    (SIZE, f"{AT}estimate: factor\n{AT}claimed: '-4'", "claimed=-4: must be an effect, by estimate="),
    (SIZE, f"{AT}claimed: same", "margin: only with claimed same, no increase, no decrease"),
    (SIZE, f"{AT}claimed: no decrease\n{AT}margin: 0", "claims[0].margin=0: must be "),
    (SIZE, f"{SIZE}\n{AT}margin: 0.1", "margin: only with claimed same, "),
    (SIZE, f"{SIZE}\n{AT}measure: first_epoch", "first epochs are compared by estimate=relative"),
    (SIZE, f"{SIZE}\n{AT}untested: No runs.", "untested, so without measure, claimed, pairs and rows"),
    (" words: budget=short", " words: short", "laptop.words=short trainer.precision=bf16: must be words of the form "),
    ("svhn: budget=paper", "svhn: paper", "laptop.data.svhn=paper budget.train_images=4434 budget.test_images"),
    ("[CapsNet 1.0 CIFAR-10, CIFAR-10,", "[CapsNet 1.0 CIFAR-10,", "rows.CapsNet 1.0 CIFAR-10: must have 3 labels"),
    ("labels: [CapsNet 1.0 SVHN", "labels: [CapsNet 0.5 SVHN", "rows: their first labels must differ"),
    ("run: model=da_capsnet attention=none", "run: da_capsnet attention=none", "must be words of the form key=value"),
    ("title: ", "titel: ", "titel: no such key; did you mean title?"),
    ("across: data", "across: date", "across=date: must be one of the columns but the first"),
    ("columns: [", "columns: [[", "line 35: "),
    ("", "- a list\n", "line 2: "),
    ("labels: [CapsNet 1.0 CIFAR-10, CIFAR-10, ", "labels: [] #", "rows.: must have 3 labels"),
    ("table: ", "printed_runs: 0\ntable: ", "printed_runs=0: must be a whole number at least 1"),
]


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES)
def test_a_wrong_file_is_one_line(path: Path, old: str, new: str, expected: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert error().startswith(f"{path}: ")
    assert expected in error()


def test_no_file_and_no_mapping_are_one_line(path: Path) -> None:
    for name in ("huang_table", "huang"):
        assert error(name) == f"{name}: no such study; did you mean huang_table1? (there are huang_table1)"
    path.write_text("- 1")
    assert error().startswith(f"{path}: [1]: must be a group of keys (across, claims, ")
    studies._content.cache_clear()
    path.write_bytes(b"\xff\xfe")
    assert error().startswith(f"{path}: 'utf-8' codec can't decode byte 0xff")


# A study that extends another


@pytest.fixture
def extending(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study beside huang_table1 that adds a row and a claim to it."""
    mine = path.with_name("mine.yaml")
    labels = "[Mine CIFAR-10, CIFAR-10, none]"
    claim = "{text: Mine is better, claimed: increase, pairs: [[CapsNet 0.5 CIFAR-10, Mine CIFAR-10]]}"
    mine.write_text(
        "extends: huang_table1\nname: ../out\n"
        f"rows:\n- {{labels: {labels}, run: model=da_capsnet data=cifar10 routing=em}}\n"
        f"claims: [{claim}]\n"
    )
    monkeypatch.setattr(studies, "choices", lambda group: {"huang_table1": path, "mine": mine})
    return mine


@pytest.mark.usefixtures("extending")
def test_a_study_that_extends_another_has_its_rows_and_claims_and_what_it_says() -> None:
    base, mine = studies.load("huang_table1"), studies.load("mine")
    assert (mine.title, mine.source, mine.laptop, mine.figures) == (base.title, "huang", base.laptop, {})
    assert mine.name == "mine"  # a page's, whatever the file says
    assert [row.name for row in mine.rows] == [*(row.name for row in base.rows), "Mine CIFAR-10"]
    assert mine.claims[:-1] == base.claims
    assert (mine.claims[-1].text, mine.claims[-1].counted) == ("Mine is better", False)
    assert (mine.own_rows, base.own_rows) == (["Mine CIFAR-10"], [row.name for row in base.rows])
    assert len(commands_of([mine], [], "laptop", [0, 1])) == 2  # the others' are the project's, or of `base`


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("extends: huang_table1", "extends: huang", "extends=huang: no such study; did you mean huang_table1?"),
        ("extends: huang_table1", "extends: mine", "extends=mine: must be a study that extends none"),
        ("rows:\n-", "rows: a\n#", "rows=a: must be a list"),
        ("Mine CIFAR-10, CIFAR-10, none", "CapsNet 0.5 CIFAR-10, CIFAR-10, none", "rows: their first labels must"),
    ],
)
def test_a_wrong_study_that_extends_another_is_one_line(extending: Path, old: str, new: str, message: str) -> None:
    extending.write_text(extending.read_text().replace(old, new, 1))
    assert error("mine").startswith(f"{extending}: {message}")


# Words


def test_words_expand_to_all_combinations() -> None:
    words = ("a=null", "b=True", "c=[1,2]", "d=[1],[2,3]", "e=0.5,1", "f.g=x", "a=none")
    assert [*studies.expand(words)] == [
        ("a=none", "b=True", "c=[1,2]", f"d={d}", f"e={e}", "f.g=x") for d in ("[1]", "[2,3]") for e in ("0.5", "1")
    ]
    assert studies.expand(()) == ((),)


@pytest.mark.parametrize("word", ["iterations", "a=[1"])
def test_a_word_that_cannot_be_parsed_is_one_line(word: str) -> None:
    assert "not of the form key=value" in refused(studies.expand, (word,))
