"""What was trained and how long, from a run's identity: by this, runs are found, compared and described.

Two runs train the same if they have the same condition, training, files and precision: then their identities differ in
the seed, the protocol and the name of the budget alone.
"""

from typing import NamedTuple

from capsexp.config.checks import NAME
from capsexp.config.compose import described
from capsexp.run import keys
from capsexp.run.keys import Json


class Trained(NamedTuple):
    """What a run trains, but for its seed and protocol."""

    condition: str  # a digest of data set, network, routing, attention, loss, augmentation, optimiser
    training: str  # 2 of 250 epochs, 25 % of the channels, 2,000 training images
    files: str  # which the data files are, where they aren't the published ones; else nothing
    precision: str  # bf16 or float32; auto: either

    @property
    def is_narrowed(self) -> bool:
        """Whether the network has other than all of its channels."""
        return "% of the channels" in self.training

    @property
    def is_trial(self) -> bool:
        """Whether it is of a few steps, which test no number."""
        return " steps" in self.training

    def __str__(self) -> str:
        return ", ".join(filter(None, self[1:]))


class Description(NamedTuple):
    """What a run's identity says."""

    trained: Trained
    train_images: int | None  # of an epoch; None where only the files could tell
    test_images: int | None
    official: bool  # everybody tests on the same images; otherwise another experimenter's would be others
    amount: str  # 2 epochs, 2,000 training images: what two networks must share to be compared, however large they are


def describe(identity: Json) -> Description:
    """What a run of this identity trains, and on how many images; raises KeyError for what isn't an identity."""
    data, conf = identity["data"], described(identity["data"][NAME])
    own = data["note"] or data.get("checksum") or identity["budget"]["test_images"] is not None
    first, images = _first_images(identity)[0], conf.get("images")
    official = not own and conf.get("official") is True
    train_images = first or (images[0] if images else None)
    return Description(trained(identity), train_images, _test_images(identity), official, _training(identity, False))


def trained(identity: Json) -> Trained:
    """What a run of this identity trains; raises KeyError for what isn't an identity."""
    without = ("budget", "precision", "protocol", "seed")
    rest = {key: value for key, value in identity.items() if key not in without}
    rest["data"] = {key: value for key, value in rest["data"].items() if key not in ("note", "checksum")}
    rest["model"] = {key: value for key, value in rest["model"].items() if key != "width"}
    return Trained(keys.key_of(rest), _training(identity), _files(identity), identity["precision"])


def _training(identity: Json, whole: bool = True) -> str:
    """How long it is trained; `whole`: with the epochs of its network's paper, and the network's width."""
    budget, paper, width = identity["budget"], identity["optim"]["epochs"], identity["model"].get("width", 1.0)
    epochs, (train, test) = budget["epochs"] or paper, _first_images(identity)
    parts = [
        f"{epochs:,} epochs" if epochs == paper or not whole else f"{epochs:,} of {paper:,} epochs",
        f"{100 * width:.3g} % of the channels" if width != 1 and whole else "",
        f"{train:,} training images" if train else "",
        f"{budget['steps']:,} steps" if budget["steps"] else "",
        f"{test:,} test images" if test else "",
    ]
    return ", ".join(filter(None, parts))


def _first_images(identity: Json) -> tuple[int | None, int | None]:
    """How many training and test images are used, where these are the first of the published ones."""
    budget, files = identity["budget"], _version(identity["data"])
    asked = budget["train_images"], budget["test_images"]
    if not files.get("first"):
        return asked
    train, test = (min(one or there, there) for one, there in zip(asked, files["images"], strict=True))
    return train, test


def _files(identity: Json) -> str:
    """The note on the files; for files that conf/ doesn't list, with the beginning of their checksum."""
    data = identity["data"]
    parts = [data["note"] if not _version(data).get("first") else "", data.get("checksum", "")[:8]]
    return ", ".join(filter(None, parts))


def _test_images(identity: Json) -> int | None:
    data, count = identity["data"], identity["budget"]["test_images"]
    if count is not None or data.get("checksum"):
        return count
    if data[NAME] == "coil20":  # 72 views of each object, split as configured
        return round(72 * data["classes"] * data["reader"].get("test_fraction", 0.1))
    version = _version(data)
    images = version.get("images") or described(data[NAME]).get("images") if version else None
    return images[1] if images else None


def title(name: str) -> str:
    """A data set's name in tables."""
    return described(name).get("title") or name


def _version(data: Json) -> Json:
    """What conf/ says of a data set's files; nothing for files that it doesn't list."""
    versions = described(data[NAME]).get("versions", {}).values()
    return next((one for one in versions if one["note"] == data["note"] and not data.get("checksum")), {})
