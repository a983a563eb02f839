"""Anybody's images, `data=folder data.path=PATH`: class folders, a table, arrays; see docs/own_images.md for the forms.

Classes are in the order of their names, images in that of their files; see `capsexp.data.pictures` for how these become
pixels. Pictures of one `data.group` (a column of the table, or a pattern) are in one split.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Lt
from numpy.typing import NDArray

from capsexp import Seed
from capsexp.config.checks import check_value
from capsexp.config.schema import Data
from capsexp.data.listing import FLAT, TABLES, Listing, Source, array_files, listing, place
from capsexp.data.pictures import Background, Conversion, Options, converted, is_colour, listed
from capsexp.data.reader import Images, Reader, host_memory, part_of_each
from capsexp.errors import InputError, printable

_SPLITS = ("train", "test", "val")


@dataclass(kw_only=True)
class Folder(Options, Reader):
    """Reads the images at `data.path`. The md5 is that of classes and contents, in the order of the files' names."""

    keys = ("images",)
    remedy = ""

    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    split_seed: Seed = 0
    background: Background = "white"
    skip_damaged: bool = False

    def completed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration `data`, with the classes, channels and numbers of images of `data.path`.

        `class_names`, of a network that is evaluated, may have more; raises InputError for other differences.
        """
        source = source_of(data)
        path, found = source.path, listing(source)
        typed = check_value(data.get("class_names") or [], list[str], "data.class_names")
        names = typed or found.names
        if unknown := set(found.names) - set(names):
            raise InputError(f"{path}: has class {min(unknown)}, which is none of {', '.join(names)}")
        if not typed and len(names) < 2:
            raise InputError(f"{path}: must have images of two classes at least; {FLAT}")
        if (classes := data.get("classes") or len(names)) != len(names):
            raise InputError(f"data.classes={classes}: {path} has {len(names)}")
        test = int((self._roles(found) == "test").sum())
        if not test and not typed:
            what = "groups" if source.group else "images"
            raise InputError(f"{path}: must have a class with two {what} at least, one to train and one to test")
        train = len(found.entries) - test
        counts = [train, test] if train and test else None  # images to evaluate
        channels = data.get("channels") or _channels(source)
        title = check_value(data.get("title"), str | None, "data.title")
        title = title or (path.parent if path.name == "raw" else path).name
        found_in = {"classes": len(names), "class_names": names, "channels": channels, "images": counts}
        return {**data, **found_in, "title": printable(title)}

    def root(self, data: Data) -> Path:
        self.source = source_of(vars(data))
        return self.source.path

    def locate(self, root: Path) -> dict[str, Path]:
        return {"images": root}

    def check_training(self, names: Sequence[str]) -> None:
        """Raises InputError for options without effect, and for typed classes in another order than they are found."""
        path, found = self.source.path, listing(self.source).names
        if sorted(names) == sorted(found) and list(names) != found:
            raise InputError(f"data.class_names={names}: {path} has {found}")
        labels, columns = self.source.labels or "(", self.source.columns
        pattern = "(" in labels and Path(labels).suffix.lower() not in TABLES
        if columns and (pattern or len(columns) > 2):
            wanted = "two columns of a table, data.labels=FILE.csv: its files, its classes"
            raise InputError(f"data.columns: must be {wanted}")
        if has_test(self.source) and (self.test_fraction, self.split_seed) != (Folder.test_fraction, Folder.split_seed):
            raise InputError(f"data.reader: test_fraction and split_seed draw test images, but {path} has its own")

    def note(self) -> str:
        """What the images are, for records and tables."""
        if has_test(self.source):
            return "own images"
        part, kept = f"{100 * self.test_fraction:.3g} % of each class", ""
        if self.source.group:
            roles = self._roles(listing(self.source))
            part = f"{100 * (roles == 'test').sum() / (roles != 'val').sum():.3g} %"
            kept = f", {printable(self.source.group)} kept together"
        return f"own images, {part} drawn for the test with seed {self.split_seed}{kept}"

    def digest(self, path: Path) -> str:
        md5 = hashlib.md5(usedforsecurity=False)
        for file in array_files(path):
            with file.open("rb") as stream:
                hashlib.file_digest(stream, lambda: md5)
        for role, name, file, group in () if array_files(path) else listing(self.source).entries:
            contents = file.read_bytes()
            of_group = os.fsencode(f"{group}/" if group else "")  # by which the split is drawn
            head = f"{_SPLITS.index(role)} {len(contents)} ".encode()
            md5.update(head + of_group + os.fsencode(name) + b"\0" + contents)
        return md5.hexdigest()

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        """The images in the configured size, [N, size, size] or [N, size, size, 3]: training, test, validation."""
        found = listing(self.source)
        pictures = [entry.picture for entry in found.entries]
        needed = 3 * len(pictures) * data.channels * data.size**2  # as decoded, as split, in the networks' layout
        if needed > (memory := host_memory()):
            sizes = f"{needed / 1e9:,.1f} GB of memory, and this machine has {memory / 1e9:,.1f}"
            raise InputError(f"data.size={data.size}: {len(pictures):,} images take {sizes}; smaller ones take less")
        pixels, problems = converted(pictures, conversion_of(data))
        if problems and not self.skip_damaged:
            others = [problem for problem in problems.values() if "data.reader." not in problem]
            remedy = "; data.reader.skip_damaged=true leaves them out" if others else ""
            raise InputError(f"{listed(problems.values())}{remedy}")
        self.skipped = [*found.left, *problems.values()]
        labels = np.array([data.class_names.index(name) for name in found.names], np.int64)[found.labels]
        roles = self._roles(found, list(problems))
        self.groups = None if found.groups is None else found.groups[roles == "train"]
        return tuple(Images(pixels[roles == role], labels[roles == role]) for role in _SPLITS)

    def _roles(self, found: Listing, left_out: Sequence[int] = ()) -> NDArray[np.str_]:
        """The split of each image, [N], with those drawn for the test where none are given; "" for those left out."""
        roles = np.array([entry.role for entry in found.entries], "U5")
        drawn = "test" not in roles
        roles[list(left_out)] = ""
        if drawn:
            train = np.flatnonzero(roles == "train")
            groups = None if found.groups is None else found.groups[train]
            # RandomState's streams never change; default_rng's may change with numpy's version.
            order, count = np.random.RandomState(self.split_seed).permutation(len(train)), len(train)
            roles[train[part_of_each(found.labels[train], order, round(count * self.test_fraction), groups)]] = "test"
        return roles


def source_of(data: Mapping[str, Any]) -> Source:
    """What names the pictures of a configured set; raises InputError for no path."""
    columns = check_value(data.get("columns") or [], list[str], "data.columns")
    labels, group = (check_value(data.get(key), str | None, f"data.{key}") for key in ("labels", "group"))
    return Source(place(data.get("path")), labels, tuple(columns), group)


def conversion_of(data: Data, invert: bool = False) -> Conversion:
    """How anybody's pictures become those that the network of a data set takes; or with `invert`, their negatives."""
    reader = data.reader.make()
    names = [field.name for field in fields(Options)] if isinstance(reader, Folder) else []
    conversion = Conversion(data.size, data.channels, **{name: getattr(reader, name) for name in names})
    return replace(conversion, invert=conversion.invert != invert)


def has_test(source: Source) -> bool:
    """Whether test images are given, and not to be drawn."""
    return any(entry.role == "test" for entry in listing(source).entries)


@cache
def _channels(source: Source) -> int:
    """3 if an image is in colour, else 1."""
    return 3 if any(is_colour(entry.picture) for entry in listing(source).entries) else 1
