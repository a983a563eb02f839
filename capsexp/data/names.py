"""What the classes of a data set are called."""

from capsexp.config import Data

_NAMES = {
    "fashion_mnist": "T-shirt trouser pullover dress coat sandal shirt sneaker bag boot",
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
    "smallnorb": "animal human airplane truck car",
}


def class_names(data: Data) -> list[str]:
    """One for each class, in the order of the labels: their numbers, where they are digits or have no names here."""
    names = _NAMES.get(data.name, "").split()
    return names if len(names) == data.classes else [str(label) for label in range(data.classes)]
