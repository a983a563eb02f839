"""What the classes of a data set are called."""

from capsexp.config.schema import Data


def class_names(data: Data) -> list[str]:
    """One for each class, in the order of the labels; their numbers where they have none."""
    named = data.class_names[: data.classes]
    return named + [str(label) for label in range(len(named), data.classes)]
