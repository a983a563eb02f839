"""Settings: what is reduced, in words and as overrides, and the numbers of images."""

import pytest
from made import PLAIN, run

from capsexp.study import setting
from capsexp.study.setting import Setting

SHORT = "budget.epochs=2"
PART = "first 4,434 of 73,257 training and 1,952 of 26,032 test digits"


def test_a_setting_names_what_is_reduced_and_the_words_for_it() -> None:
    record = run(f"{PLAIN} {SHORT} budget.width=0.25 budget.train_images=1000", 0, precision="float32", note="a part")
    reduced = Setting.of(record.identity)
    assert str(reduced) == "2 of 250 epochs, 25 % of the channels, 1,000 training images, a part, float32"
    again = run(f"{PLAIN} {' '.join(reduced.overrides)}", 0, precision="float32", note="a part")
    assert Setting.of(again.identity) == reduced
    assert not reduced.whole
    whole = Setting.of(run(PLAIN, 0).identity)
    assert (str(whole), whole.whole) == ("all 250 epochs, bf16", True)
    assert whole.overrides == ["trainer.precision=bf16"]  # auto can be another on another device


def test_unlisted_files_of_one_note_are_two_settings() -> None:
    identity = run(PLAIN, 0, note="mine").identity
    one, other = (Setting.of({**identity, "data": {**identity["data"], "checksum": digit * 32}}) for digit in "ab")
    assert one != other
    assert str(one) == "mine, files aaaaaaaa, bf16"


@pytest.mark.parametrize(
    ("words", "note", "images"),
    [
        ("data=coil20", None, (648, 72)),
        ("data=coil20 data.classes=20", None, (1_296, 144)),
        ("data=coil20 data.classes=20 data.reader.test_fraction=0.3", None, (1_008, 432)),
        ("data=mnist budget.train_images=9 budget.test_images=7", None, (9, 7)),
        ("data=mnist", None, (60_000, 10_000)),
        ("data=mnist_sample", "sample of 5,000 training and 1,000 test images", (5_000, 1_000)),
        ("data=svhn", "a part", (None, None)),
        ("data=svhn", PART, (4_434, 1_952)),
        ("data=svhn budget.test_images=9", PART, (4_434, 9)),
    ],
)
def test_the_numbers_of_images(words: str, note: str | None, images: tuple[int | None, int | None]) -> None:
    identity = run(words, 0, note=note).identity
    assert (setting.trained_images(identity), setting.tested_images(identity)) == images


def test_the_number_of_images_of_unlisted_files_is_not_known() -> None:
    identity = run("data=svhn", 0, note=PART).identity
    unlisted = {**identity, "data": {**identity["data"], "checksum": "0" * 32}}
    assert setting.tested_images(unlisted) is None  # anybody can have written the note


@pytest.mark.parametrize(
    ("words", "note", "official"),
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
def test_an_official_test_set_is_one_that_everybody_has(words: str, note: str | None, official: bool) -> None:
    assert setting.has_official_test_set(run(f"{words} attention=none", 0, note=note).identity) == official


@pytest.mark.parametrize(
    ("words", "reduced"),
    [
        ("budget.epochs=5", ""),
        ("budget.epochs=4", "4 of 250 epochs"),
        ("budget.epochs=5 budget.train_images=9", "9 training images"),
        ("budget.epochs=5 budget.width=0.5", "50 % of the channels"),
        ("budget.epochs=5 optim=jiao optim.epochs=100", ""),
        ("budget.epochs=5 optim=tsai_sgd", "5 of 350 epochs"),  # whose steps come in the third and the fourth epoch
        ("optim=tsai_sgd", ""),
        ("budget.epochs=5 model=em_capsnet optim=jiao", "5 of 250 epochs"),  # whose loss grows over all epochs
    ],
)
def test_five_epochs_are_the_papers_first_unless_something_depends_on_their_number(words: str, reduced: str) -> None:
    assert Setting.of(run(f"{PLAIN} {words}", 0).identity).reduced("first_five") == reduced


def test_the_share_of_the_papers_training_is_that_of_the_measure() -> None:
    short = Setting.of(run(f"{PLAIN} budget.epochs=25 budget.train_images=30000", 0).identity)
    assert (short.share("accuracy"), short.share("first_five")) == (pytest.approx(0.05), pytest.approx(0.5))


def test_a_data_set_that_says_nothing_of_its_split_is_not_official() -> None:
    identity = run("data=mnist", 0).identity
    assert not setting.has_official_test_set({**identity, "data": {**identity["data"], "name": "mine"}})
    assert (setting.title("svhn"), setting.title("mine")) == ("SVHN", "mine")


def test_more_epochs_than_the_papers_are_another_training() -> None:
    assert str(Setting.of(run(f"{PLAIN} budget.epochs=300", 0).identity)) == "300 of 250 epochs, bf16"


@pytest.mark.parametrize(
    ("words", "note", "fraction"),
    [
        ("data=coil20 budget.train_images=504 data.classes=20 data.reader.test_fraction=0.3", None, 0.5),
        ("data=svhn budget.width=0.5", PART, 0.5 * 4_434 / 73_257),
        ("data=svhn budget.train_images=443", PART, 443 / 73_257),
        ("data=mnist optim.epochs=10 budget.epochs=1", None, 0.1),
    ],
)
def test_the_fraction_of_the_papers_training(words: str, note: str | None, fraction: float) -> None:
    assert Setting.of(run(f"{words} attention=none", 0, note=note).identity).fraction == pytest.approx(fraction)
