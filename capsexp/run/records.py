"""Records: one JSON file a run, written once, with what was run, where, and its results.

A record is found by its run's key, see capsexp.run.keys.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

import numpy
from annotated_types import Ge, Le
from numpy.typing import NDArray

from capsexp.config.checks import check_dataclass
from capsexp.errors import CapsexpError, InputError, first_line
from capsexp.files import opened, write_file
from capsexp.run.keys import Json, canonical, key_of, name_of

_MAX_BYTES = 1 << 26  # of a record's file: 64 MiB, those of 500,000 epochs

_Count = Annotated[int, Ge(0), Le(10**12)]
_Percent = Annotated[float, Ge(0), Le(100)]

RUN_AGAIN = "; rerun=true on its run makes it again"

Status = Literal["finished", "failed"]


@dataclass(frozen=True)
class Record:
    """One run. Accuracies are in percent, epochs count from 1, times are in seconds.

    Under protocol paper, `max_accuracy` is the maximum of the test accuracy over the epochs and `last_accuracy` the
    last epoch's. Under heldout both are null: `first_epoch_to_max` is the epoch that the held-out tenth of the
    training set chose, and `heldout_accuracy` that epoch's accuracy on the test set.
    """

    key: str
    status: Status
    error: str | None  # why a run failed
    identity: Json  # what the key is a hash of
    config: Json  # the whole resolved configuration, without paths
    epochs: list[Json]
    heldout_accuracy: _Percent | None
    parameters: _Count
    peak_memory_mb: Json  # of `device`, null on a CPU, and of `host`
    data: Json  # `note`, `checksum`, and the number of `test_images`, which older records lack
    provenance: Json  # see capsexp.run.provenance
    chance_accuracy: _Percent | None = None  # of guessing the most frequent of the evaluated labels each time
    correct: dict[str, str] | None = None  # a bit a test image, packed, by the accuracy's field

    @property
    def accuracies(self) -> list[float]:
        """After each epoch, of the test images or, under heldout, of the held-out ones."""
        split = "test" if self.identity["protocol"] == "paper" else "heldout"
        return [epoch[f"{split}_accuracy"] for epoch in self.epochs]

    @property
    def first_epoch_to_max(self) -> int | None:
        """The first epoch, from 1, with the greatest of `accuracies`."""
        return best_epoch(self.accuracies)

    @property
    def max_accuracy(self) -> float | None:
        """The greatest test accuracy, in percent; None under protocol heldout."""
        return max(self.accuracies, default=None) if self.identity["protocol"] == "paper" else None

    @property
    def last_accuracy(self) -> float | None:
        """The last epoch's test accuracy, in percent; None under protocol heldout."""
        return self.accuracies[-1] if self.epochs and self.identity["protocol"] == "paper" else None

    @property
    def seconds_per_epoch(self) -> float | None:
        """The median over the epochs, of training and evaluation."""
        return median(map(epoch_seconds, self.epochs)) if self.epochs else None

    @property
    def leak(self) -> str:
        """What makes its accuracy on somebody's own images no test; nothing if they are in order."""
        repeated, heldout, twice = (self.data.get(name, 0) for name in ("repeated", "repeated_heldout", "ambiguous"))
        lines = [
            (repeated, f"{repeated:,} of {self.data.get('test_images') or 0:,} test images are training images"),
            (heldout, f"{heldout:,} held-out images are training images"),
            (twice, f"{twice:,} images are of two classes"),
        ]
        return ", ".join(line for count, line in lines if count)

    @property
    def learned(self) -> bool | None:
        """See `has_learned`; None in a failed run, in a trial of a few steps, and in older records."""
        judged = self.status == "finished" and self.config["budget"]["steps"] is None
        return has_learned(max(self.accuracies), self.chance_accuracy) if judged and self.chance_accuracy else None


#: The fields of a file, in their order. Derived ones are written for other tools and ignored on reading.
_FIELDS = (
    *("key", "status", "error", "identity", "config", "epochs", "max_accuracy", "first_epoch_to_max", "last_accuracy"),
    *("heldout_accuracy", "parameters", "seconds_per_epoch", "peak_memory_mb", "data", "provenance"),
    *("chance_accuracy", "learned", "correct"),
)
_NEWER = _FIELDS[-3:]  # left out where they are null, as in older records
_DERIVED = {name for name, value in vars(Record).items() if isinstance(value, property)}


def write(record: Record, path: Path) -> None:
    """Writes a record whole; raises OSError with the path when the disk refuses, and as `text`."""
    write_file(path, text(record))


def text(record: Record) -> str:
    """A record as its file holds it, with a digest of its contents; raises ValueError for what can't be read again."""
    values = {name: getattr(record, name) for name in _FIELDS}
    content = {name: value for name, value in values.items() if value is not None or name not in _NEWER}
    content["digest"] = _digest(content)
    whole = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    parsed(whole.encode())
    return whole


def read(path: Path) -> Record:
    """The record that `write` wrote; raises InputError, with the path and the remedy, for any other file, and for the
    record of another run.
    """
    try:
        with opened(path, "rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        record = parsed(content)
    except FileNotFoundError:
        raise InputError(f"{path}: no such record") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if path.stem != (name := name_of(record.identity)):
        raise InputError(f"{path}: is the record of {name}; rename or remove it")
    return record


def parsed(whole: bytes) -> Record:
    """The record in a file's bytes; raises ValueError, with the remedy, for any others."""
    intact = False
    try:
        if len(whole) > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES:,} bytes")
        content = json.loads(whole.decode())
        intact = content.pop("digest") == _digest(content)
        stored = {name: value for name, value in content.items() if name not in _DERIVED}
        record: Record = check_dataclass(Record, stored)
        problem = _contradiction(record) if intact else "its contents don't match its digest"
    except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError, RecursionError, CapsexpError) as error:
        if intact and "no such key" in str(error):
            raise ValueError(f"of a newer capsexp ({str(error).partition(': ')[0]} isn't known here)") from None
        raise ValueError(f"not a record ({first_line(error)}){RUN_AGAIN}") from None
    if problem:
        raise ValueError(f"damaged or edited: {problem}{RUN_AGAIN}")
    return record


def is_finished(path: Path) -> bool:
    """Whether it is the record of a finished run; not if it is missing or damaged."""
    with suppress(InputError):
        return read(path).status == "finished"
    return False


def has_learned(accuracy: float, chance: float) -> bool:
    """a > 2c / (1 + c), for percent: the odds a / (1 − a) are more than twice the odds c / (1 − c) of a constant guess.

    Args:
        accuracy: a, the maximum over the epochs, on the images that are evaluated after each.
        chance: c, of guessing the most frequent label of these images each time.
    """
    return accuracy > 2 * chance / (1 + chance / 100)


def percent(right: int, images: int) -> float:
    """An accuracy in percent, rounded so that 9,971 of 10,000 are 99.71 and not 99.71000000000001 %."""
    return round(100 * right / images, 5)


def of_images(accuracy: float, images: int | None) -> str:
    """63.33 % of 30 test images (44 to 80): an accuracy with its exact 95 % interval (Clopper and Pearson 1934)."""
    if images is None:  # in older records
        return f"{accuracy:.2f} %"
    from scipy.special import betaincinv  # takes a tenth of a second to import

    right = round(accuracy * images / 100)
    low = 100 * betaincinv(right, images - right + 1, 0.025) if right else 0.0
    high = 100 * betaincinv(right + 1, images - right, 0.975) if right < images else 100.0
    digits = 0 if high - low > 10 else 1 if high - low > 1 else 2
    return f"{accuracy:.2f} % of {images:,} test images ({low:.{digits}f} to {high:.{digits}f})"


def packed(correct: Sequence[bool]) -> str:
    """A bit per test image, in the order of the images, the first the highest of the first byte: base64."""
    return base64.b64encode(numpy.packbits(correct).tobytes()).decode()


def unpacked(text: str, images: int) -> NDArray[numpy.bool_]:
    """The reverse of `packed`, [N]; raises ValueError for what isn't the bits of N images."""
    content = base64.b64decode(text, validate=True)
    if len(content) != -(-images // 8):
        raise ValueError(f"{len(content)} bytes for a bit each of {images} images")
    return numpy.unpackbits(numpy.frombuffer(content, numpy.uint8), count=images).astype(bool)


def result_line(record: Record) -> str:
    """A record's result as users see it."""
    epoch, unlearned = record.first_epoch_to_max, ""
    if record.learned is False:
        own = f"{max(record.accuracies):.2f} % of the held-out images, " if record.heldout_accuracy is not None else ""
        unlearned = f"; didn't learn: {own}a constant guess has {record.chance_accuracy:.2f} %"
        if record.chance_accuracy == 100:
            unlearned = "; all of the evaluated images are of one class, so that this says nothing"
    unlearned += f"; {record.leak}" if record.leak else ""
    if record.heldout_accuracy is not None:
        tested = of_images(record.heldout_accuracy, record.data.get("test_images"))
        return f"test accuracy {tested} in epoch {epoch}, chosen on held-out images{unlearned}"
    last = f", last {record.last_accuracy:.2f} %" * (record.last_accuracy != record.max_accuracy)
    return f"best test accuracy {record.max_accuracy:.2f} % in epoch {epoch} of {len(record.epochs)}{last}{unlearned}"


def best_epoch(accuracies: Sequence[float]) -> int | None:
    """The first epoch, counted from 1, with the greatest accuracy; None where there is none."""
    return accuracies.index(max(accuracies)) + 1 if accuracies else None


def epoch_seconds(epoch: Json) -> float:
    """The seconds of an epoch: its training's and its evaluation's."""
    return sum(value for name, value in epoch.items() if name.endswith("_seconds"))


def _contradiction(record: Record) -> str | None:
    """What in a record contradicts the rest of it; raises for a part that is missing or of another type."""
    identity, config, epochs = record.identity, record.config, record.epochs
    if record.key != key_of(identity):
        return f"its identity doesn't match its key {record.key}"
    whole, done = config["budget"]["epochs"] or config["optim"]["epochs"], record.status == "finished"
    numbered = [epoch["epoch"] for epoch in epochs] == list(range(1, len(epochs) + 1))
    ended = done and not identity.get("callbacks")  # one of which may have ended the training
    if not numbered or len(epochs) > whole or (ended and len(epochs) < whole):
        return f"its epochs aren't the {whole} of its configuration"
    tested = done and identity["protocol"] == "heldout"
    if (record.heldout_accuracy is not None) != tested or (record.error is None) != done:
        return f"its results aren't those of a {record.status} run of protocol {identity['protocol']}"
    _ = [record.peak_memory_mb["device"], *(getattr(record, name) for name in _DERIVED)]  # which users are shown
    for name, bits in (record.correct or {}).items():
        images = record.data["test_images"]
        if percent(int(unpacked(bits, images).sum()), images) != getattr(record, name):
            return f"its correct test images aren't those of its {name}"
    return None


def _digest(content: Json) -> str:
    return "sha256:" + hashlib.sha256(canonical(content)).hexdigest()
