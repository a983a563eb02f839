"""Under what circumstances a run was trained, beside what it trains: how much of the paper's training, on which state
of the data files, in which precision. Numbers of two settings never stand in one cell."""

import re
from dataclasses import dataclass, field

from capsexp.config.checks import NAME
from capsexp.run.records import Json

#: Training and test images of the published data sets; of coil20, ten objects. Of a synthesis: an epoch's.
IMAGES = {
    "mnist": (60_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "smallnorb": (24_300, 24_300),
    "coil20": (648, 72),
    "diverse_multimnist": (60_000, 10_000),
    "affine_mnist": (60_000, 10_000),
    "mnist_sample": (5_000, 1_000),
}


@dataclass(frozen=True)
class Setting:
    """None everywhere and width 1 is the paper's training, on the published data."""

    epochs: tuple[int, int] | None  # done, of the paper's
    train_images: int | None  # the first so many
    test_images: int | None
    width: float  # of the network's channels
    note: str | None  # what the data files are, where they aren't the published ones
    precision: str
    share: float = field(compare=False, default=1.0)  # of the paper's training: of its epochs × images × channels

    @classmethod
    def of(cls, identity: Json) -> "Setting":
        """The setting of a run; raises KeyError for what isn't a run's identity."""
        budget, paper = identity["budget"], identity["optim"]["epochs"]
        epochs, width, note = budget["epochs"] or paper, identity["model"].get("width", 1.0), identity["data"]["note"]
        images = _images_share(identity["data"][NAME], budget["train_images"], note)
        return cls(
            None if epochs == paper else (epochs, paper),
            budget["train_images"],
            budget["test_images"],
            width,
            note,
            identity["precision"],
            epochs / paper * width * images,
        )

    @property
    def whole(self) -> bool:
        """Whether its numbers can stand beside the paper's without a mark."""
        reduced = (self.epochs, self.train_images, self.test_images, self.note)
        return self.width == 1 and all(part is None for part in reduced)

    def __str__(self) -> str:
        """As captions say it: 2 of 250 epochs, bf16."""
        parts = [
            "{:,} of {:,} epochs".format(*self.epochs) if self.epochs else "",
            f"{100 * self.width:.3g} % of the channels" if self.width != 1 else "",
            f"{self.train_images:,} training images" if self.train_images else "",
            f"{self.test_images:,} test images" if self.test_images else "",
            self.note or "",
        ]
        words = [part for part in parts if part] or ["the paper's whole training"]
        return ", ".join([*words, self.precision])

    @property
    def overrides(self) -> list[str]:
        """What a command line says of it. The state of the data files is what it is."""
        said = {
            "budget.epochs": self.epochs and self.epochs[0],
            "budget.train_images": self.train_images,
            "budget.test_images": self.test_images,
            "budget.width": None if self.width == 1 else self.width,
            "trainer.precision": self.precision,
        }
        return [f"{key}={value}" for key, value in said.items() if value is not None]


def tested_images(identity: Json) -> int | None:
    """How many images a run was tested on; None where only the files could tell."""
    name, note = identity["data"][NAME], identity["data"]["note"]
    if (count := identity["budget"]["test_images"]) is not None:
        return int(count)
    return IMAGES[name][1] if name in IMAGES and (note is None or name == "mnist_sample") else None


def _images_share(name: str, train_images: int | None, note: str | None) -> float:
    """The share of the training images in an epoch, as far as is known: only the order of settings depends on it."""
    if name in IMAGES and train_images is not None:
        return train_images / IMAGES[name][0]
    part = re.match(r"first ([\d,]+) of ([\d,]+)", note or "")
    return int(part[1].replace(",", "")) / int(part[2].replace(",", "")) if part else 1.0
