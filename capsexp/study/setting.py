"""A run's setting: how much of the paper's training, on which state of the data files, in which precision.

Numbers of two settings never stand in one cell.
"""

from dataclasses import dataclass, field

from capsexp.config.checks import NAME
from capsexp.config.compose import described
from capsexp.run.records import Json


@dataclass(frozen=True)
class Setting:
    """None everywhere and width 1 is the paper's training, on the published data."""

    epochs: tuple[int, int] | None  # trained, of the paper's
    train_images: int | None  # only the first so many
    test_images: int | None  # only the first so many
    width: float  # fraction of the network's channels
    note: str | None  # which the data files are, where they aren't the published ones
    precision: str
    paper_epochs: int  # of the paper's training
    fraction: float = field(compare=False, default=1.0)  # of the paper's training: epochs × images × channels
    same_start: bool = field(compare=False, default=True)  # its first five epochs are those of the paper's training

    @classmethod
    def of(cls, identity: Json) -> "Setting":
        """The setting of a run; raises KeyError for what isn't a run's identity."""
        budget, paper = identity["budget"], identity["optim"]["epochs"]
        epochs, width = budget["epochs"] or paper, identity["model"].get("width", 1.0)
        return cls(
            epochs=None if epochs == paper else (epochs, paper),
            train_images=budget["train_images"],
            test_images=budget["test_images"],
            width=width,
            note=_note(identity["data"]),
            precision=identity["precision"],
            fraction=epochs / paper * width * _fraction_of_images(identity),
            same_start=epochs >= 5 and not depends_on_length(identity),
            paper_epochs=paper,
        )

    @property
    def whole(self) -> bool:
        """Whether its numbers can stand beside the paper's without a mark."""
        return not self.reduced()

    def reduced(self, measure: str = "accuracy") -> str:
        """In words, what makes a measure another than after the paper's training: 2 of 250 epochs; empty if nothing."""
        start = measure == "first_five" and self.same_start
        parts = [
            "{:,} of {:,} epochs".format(*self.epochs) if self.epochs and not start else "",
            f"{100 * self.width:.3g} % of the channels" if self.width != 1 else "",
            f"{self.train_images:,} training images" if self.train_images else "",
            f"{self.test_images:,} test images" if self.test_images else "",
            self.note or "",
        ]
        return ", ".join(part for part in parts if part)

    def share(self, measure: str) -> float:
        """The share of the paper's training that a measure is taken after: epochs × images × channels."""
        start = measure == "first_five" and self.same_start and self.epochs
        return self.fraction * self.epochs[1] / self.epochs[0] if start and self.epochs else self.fraction

    def training(self, unsaid: bool = False) -> str:
        """2 of 250 epochs, a part; all 250 epochs; `unsaid`: all 100 epochs, the source gives none."""
        if self.reduced():
            return self.reduced()
        return f"all {self.paper_epochs:,} epochs" + (", the source gives none" if unsaid else "")

    def __str__(self) -> str:
        """As in captions: 2 of 250 epochs, bf16."""
        return ", ".join(filter(None, [self.training(), self.precision]))

    @property
    def overrides(self) -> list[str]:
        """The words of a command line that give this setting, but for the state of the data files."""
        values = {
            "budget.epochs": self.epochs and self.epochs[0],
            "budget.train_images": self.train_images,
            "budget.test_images": self.test_images,
            "budget.width": None if self.width == 1 else self.width,
            "trainer.precision": self.precision,
        }
        return [f"{key}={value}" for key, value in values.items() if value is not None]


def trained_images(identity: Json) -> int | None:
    """The number of images in an epoch of a run; None where only the files could tell."""
    images = _images(identity["data"])
    return identity["budget"]["train_images"] or (images[0] if images else None)


def tested_images(identity: Json) -> int | None:
    """The number of images that a run was tested on; None where only the files could tell."""
    count, images = identity["budget"]["test_images"], _images(identity["data"])
    return count if count is not None or identity["data"].get("checksum") or not images else images[1]


def has_official_test_set(identity: Json) -> bool:
    """Whether everybody tests on the same images; otherwise another experimenter's would be others."""
    own = _note(identity["data"]) or identity["budget"]["test_images"] is not None
    return not own and described(identity["data"][NAME]).get("official") is True


def title(name: str) -> str:
    """A data set's name in tables."""
    return described(name).get("title") or name


def _note(data: Json) -> str | None:
    """The note on the data files; for files that conf/ doesn't list, with the beginning of their checksum."""
    parts = [data["note"], data.get("checksum") and f"files {data['checksum'][:8]}"]
    return ", ".join(part for part in parts if part) or None


def _fraction_of_images(identity: Json) -> float:
    """The fraction of the training images in an epoch, as far as known: only the order of settings depends on it."""
    images, published = trained_images(identity), _published_images(identity["data"])
    return images / published[0] if images and published else 1.0


def depends_on_length(identity: Json) -> bool:
    """Whether the first epochs of a longer training are others than those of a shorter one."""
    loss, optim = identity["loss"], identity["optim"]
    scaled = optim["schedule"] in ("steps", "cosine") or optim.get("warmup")
    return bool(scaled) or (loss[NAME] == "spread" and loss.get("steps", 0) is None)


def _images(data: Json) -> list[int] | None:
    """Training and test images of a data set's files; None for files that conf/ doesn't list."""
    versions = described(data[NAME]).get("versions", {}).values()
    counts = {version.get("note"): version.get("images") for version in versions}
    return counts[data["note"]] or _published_images(data) if data["note"] in counts else None


def _published_images(data: Json) -> list[int] | None:
    """Training and test images of a published data set; None for others."""
    if data[NAME] == "coil20":  # 72 views of each object, split as configured
        views = 72 * data["classes"]
        tested = round(views * data["reader"].get("test_fraction", 0.1))
        return [views - tested, tested]
    images: list[int] | None = described(data[NAME]).get("images")
    return images
