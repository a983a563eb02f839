"""What was trained, from a run's identity: in words, on which files, and how many images."""

import pytest
from made import PLAIN, SHORT, run

from capsexp.study.identity import describe, title, trained
from capsexp.study.selection import combination

PART = "first 4,434 of 73,257 training and 1,952 of 26,032 test digits"


def words(typed: str, **changed: str) -> str:
    return str(trained(run(f"{PLAIN} {typed}", 0, **changed).identity))


def test_what_is_trained_in_words() -> None:
    reduced = f"{SHORT} budget.width=0.25 budget.train_images=1000 budget.test_images=50"
    assert words(reduced, precision="float32", note="a part") == (
        "2 of 250 epochs, 25 % of the channels, 1,000 training images, 50 test images, a part, float32"
    )
    assert (words(""), words("budget.epochs=300")) == ("250 epochs, bf16", "300 of 250 epochs, bf16")


def test_a_command_line_trains_what_its_records_say() -> None:
    typed = f"{PLAIN} {SHORT} budget.width=0.25 trainer.precision=bf16"
    assert combination(tuple(typed.split())).trained == trained(run(typed, 7).identity)
    assert combination(tuple(PLAIN.split())).trained.precision == "auto"


def test_unlisted_files_of_one_note_are_different() -> None:
    identity = run(PLAIN, 0, note="mine").identity
    one, other = (trained({**identity, "data": {**identity["data"], "checksum": digit * 32}}) for digit in "ab")
    assert (one.files, other.files) == ("mine, aaaaaaaa", "mine, bbbbbbbb")


@pytest.mark.parametrize(
    ("of_part", "of_all"),
    [
        ("", "budget.train_images=4434 budget.test_images=1952"),
        ("budget.train_images=443", "budget.train_images=443 budget.test_images=1952"),
        ("budget.train_images=5000", "budget.train_images=4434 budget.test_images=1952"),
    ],
)
def test_files_that_are_the_first_images_count_as_so_many_of_all(of_part: str, of_all: str) -> None:
    part, whole = (run(f"data=svhn {typed}", 0, note=note) for typed, note in ((of_part, PART), (of_all, None)))
    assert trained(part.identity) == trained(whole.identity)
    assert trained(run(f"data=svhn {of_part}", 0, note="another part").identity) != trained(whole.identity)
    unlisted = {**part.identity, "data": {**part.identity["data"], "checksum": "0" * 32}}
    assert trained(unlisted).files == f"{PART}, 00000000"  # anybody can have written the note


@pytest.mark.parametrize(
    ("typed", "note", "images"),
    [
        ("data=coil20", None, 72),
        ("data=coil20 data.classes=20", None, 144),
        ("data=coil20 data.classes=20 data.reader.test_fraction=0.3", None, 432),
        ("data=mnist budget.train_images=9 budget.test_images=7", None, 7),
        ("data=mnist", None, 10_000),
        ("data=mnist_sample", "sample of 5,000 training and 1,000 test images", 1_000),
        ("data=svhn", "a part", None),
        ("data=svhn", PART, 1_952),
        ("data=svhn budget.test_images=9", PART, 9),
        ("data=smallnorb", "lossy copy, left camera", 24_300),
    ],
)
def test_the_number_of_test_images(typed: str, note: str | None, images: int | None) -> None:
    identity = run(typed, 0, note=note).identity
    assert describe(identity).test_images == images
    if "budget.test_images" not in typed:
        assert describe({**identity, "data": {**identity["data"], "checksum": "0" * 32}}).test_images is None


@pytest.mark.parametrize(
    ("typed", "note", "official"),
    [
        ("data=mnist", None, True),
        ("data=mnist budget.train_images=9", None, True),
        ("data=mnist budget.test_images=9", None, False),
        ("data=svhn", "a part", False),
        ("data=coil20", None, False),
        ("data=mnist_sample", None, False),
        ("data=affine_mnist", None, False),
        ("data=diverse_multimnist model=inverted_capsnet_multimnist", None, False),
    ],
)
def test_an_official_test_set_is_one_that_everybody_has(typed: str, note: str | None, official: bool) -> None:
    assert describe(run(f"{typed} attention=none", 0, note=note).identity).official == official


def test_a_data_set_that_says_nothing_of_its_split_is_not_official() -> None:
    identity = run("data=mnist", 0).identity
    assert not describe({**identity, "data": {**identity["data"], "name": "mine"}}).official
    assert (title("svhn"), title("mine")) == ("SVHN", "mine")


# Conditions


def condition(typed: str) -> str:
    return combination(tuple(typed.split())).trained.condition


def test_a_condition_is_what_is_trained_not_how_much() -> None:
    base = condition("data=svhn")
    typed = "data=svhn seed=3 budget=demo budget.train_images=9 trainer.precision=float32 protocol=heldout"
    assert condition(f"{typed} trainer=cpu data.root=/somewhere rerun=true") == base
    assert condition("data=svhn budget.width=0.5") == base
    assert trained(run("data=svhn", 0, note="a part").identity).condition == base


@pytest.mark.parametrize(
    ("base", "change"),
    [
        ("data=mnist", "data=affine_mnist"),
        ("model=da_capsnet data=coil20", "optim=huang_coil20"),
        ("model=inverted_capsnet data=cifar100", "model=inverted_capsnet_cifar100"),
    ],
    ids=lambda typed: typed.replace(" ", "+"),
)
def test_what_no_two_rows_of_a_study_differ_in_makes_another_condition_too(base: str, change: str) -> None:
    kept = [word for word in base.split() if word.partition("=")[0] != change.partition("=")[0]]
    assert condition(" ".join([*kept, change])) != condition(base)
