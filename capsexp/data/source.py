"""A data set, from its configuration to uint8 tensors.

Files are found or downloaded, compared with the accepted versions, decoded by `data.reader`, fitted to size, channels.
"""

import hashlib
import json
import os
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from capsexp import Log
from capsexp.config.compose import described
from capsexp.config.schema import Data, Version
from capsexp.data.folder import Folder
from capsexp.data.reader import Reader, decoding, fit, labelled
from capsexp.data.sample import Sample
from capsexp.errors import CapsexpError, InputError, located, printable

if TYPE_CHECKING:
    from torch import Tensor  # imported where it is used, since `identify` doesn't need it

_TIMEOUT = 20.0  # seconds without an answer
_TEMPORARY, _ABANDONED = ".capsexp-download-", 86_400.0  # folders of downloads; seconds after which nobody downloads
_NAMED = 20  # classes in a line; of more, that with the fewest and that with the most images

#: (path, how its classes are named) → md5, of what this process has read.
_known: dict[tuple[Path, str], str] = {}


@dataclass(frozen=True)
class Identity:
    """Which version of a data set the files are."""

    note: str | None  # None for the published pixels and labels
    checksum: str  # of all files' md5s
    unlisted: str | None  # the checksum of files that conf/ doesn't list: a part of the run's identity


@dataclass(frozen=True)
class ImageSet(Identity):
    """Images uint8 [N, C, H, W] and labels int64 [N] of files of an Identity."""

    train_images: "Tensor"
    train_labels: "Tensor"
    test_images: "Tensor"
    test_labels: "Tensor"
    validation: int = 0  # how many of the training images, the last ones, are meant to be held out
    groups: NDArray[np.int64] | None = None  # [N], of the other training images: of equal ones all are held out


def class_names(data: Data) -> list[str]:
    """The names of the J classes in the order of the labels; numbers for classes without a name."""
    named = data.class_names[: data.classes]
    return named + [str(label) for label in range(len(named), data.classes)]


def identify(data: Data, log: Log = print, download: bool = True) -> Identity:
    """The identity of the set that `load` would load, of which a process reads the files once.

    Without `download`, missing files that `data.download` allows to fetch are taken for the published ones.
    """
    published = next((version for version in data.versions.values() if version.note is None), None)
    if data.download and published and not download:
        reader: Reader = data.reader.make()
        if reader.locate(reader.root(data)).keys() != set(reader.keys):
            return _identity(data, published, published.files)
    reader, _, identity = _checked(data, log)
    if isinstance(reader, Folder):
        reader.check_training(data.class_names)
    return identity


def load(data: Data, log: Log = print) -> ImageSet:
    """The whole data set, with a line to `log` for each step that takes time.

    Raises InputError for missing, damaged and unknown files, and for an impossible size or number of channels.
    """
    import torch

    reader, files, identity = _checked(data, log, read=True)
    size = data.size if data.synthesis is None else None  # a synthesis uses images in their own size
    try:
        splits = reader.read(files, data)
        if not isinstance(reader, Folder):  # somebody's own may give anything, a folder one split alone
            splits = tuple(labelled(*split, data.classes, Path(data.name)) for split in splits)
        train, test, *validation = (
            (torch.from_numpy(fit(split.images, size, data.channels, data.name)), torch.from_numpy(split.labels))
            for split in splits
        )
    except (CapsexpError, MemoryError, OSError):
        raise
    except Exception as error:  # the reader may be the user's
        raise InputError(f"{data.name}: {data.reader.target}: {located(error)}") from error
    for problem in getattr(reader, "skipped", []):
        log(f"left out: {problem}")
    held = sum(len(labels) for _, labels in validation)
    if held:
        train = (torch.cat([train[0], validation[0][0]]), torch.cat([train[1], validation[0][1]]))
    groups = reader.groups if isinstance(reader, Folder) else None
    return ImageSet(identity.note, identity.checksum, identity.unlisted, *train, *test, held, groups)


def summary(data: Data, images: ImageSet) -> list[str]:
    """Lines on a set: its classes with their numbers of training and test images; what has only equal images."""
    labels, names = (images.train_labels, images.test_labels), class_names(data)
    counts = list(zip(names, *(one.bincount(minlength=len(names)).tolist() for one in labels), strict=True))
    classes = [f"{name} {train:,} + {test:,}" for name, train, test in counts]
    if len(classes) > _NAMED:
        least, most = (pick(counts, key=lambda count: count[1] + count[2]) for pick in (min, max))
        classes = [f"{train:,} + {test:,} in {name}" for name, train, test in (least, most)]
        classes = classes if least[1:] != most[1:] else ["{:,} + {:,} in each".format(*least[1:])]
    held = f"; {images.validation:,} of the training images are for validation" if images.validation else ""
    lines = [f"{data.name}: {len(names)} classes: {', '.join(classes)} (training + test images){held}"]
    if data.path:
        known, trained = digests(images.train_images), len(labels[0]) - images.validation
        tested = {"test": (images.test_images, known), "validation": (images.train_images[trained:], known[:trained])}
        for name, (part, others) in tested.items():
            if count := repeated(part, others):
                line = f"{count:,} of the {len(part):,} {name} images are among the training images, too"
                lines.append(f"{data.name}: {line}")
    if data.path and (twice := ambiguous(images)):
        lines.append(f"{data.name}: {twice:,} images are equal to one of another class")
    if data.group:
        lines.append(f"{data.name}: images of one {printable(data.group)} aren't independent: intervals are too narrow")
    if _all_equal(images.train_images):
        return [*lines, f"{data.name}: all {len(labels[0]):,} training images are equal"]
    equal = [name for at, name in enumerate(names) if _all_equal(images.train_images[labels[0] == at])]
    return [*lines, *(f"{data.name}: all training images of class {name} are equal" for name in equal)]


def digests(images: "Tensor") -> "Tensor":
    """64 bits of a hash of each image's pixels: [N, …] uint8 -> [N] int64."""
    import torch

    hashes = (hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in images.cpu().numpy())
    return torch.tensor([int.from_bytes(one, signed=True) for one in hashes], dtype=torch.int64)


def repeated(tested: "Tensor", trained: "Tensor") -> int:
    """How many images, [N, …] uint8, are among those with these `digests`."""
    return int(np.isin(digests(tested), trained).sum())


def ambiguous(images: ImageSet) -> int:
    """How many images of a set are equal to one with another label."""
    hashes = np.concatenate([digests(images.train_images), digests(images.test_images)])
    pairs = np.stack([hashes, np.concatenate([images.train_labels, images.test_labels])], axis=1)
    known, labels = np.unique(np.unique(pairs, axis=0)[:, 0], return_counts=True)
    return int(np.isin(hashes, known[labels > 1]).sum())


def _all_equal(images: "Tensor") -> bool:
    """Whether there are several images, and all are equal."""
    return len(images) > 1 and bool((images[1] == images[0]).all()) and bool((images == images[:1]).all())


def normalization(data: Data, images: "Tensor") -> tuple[list[float], list[float]]:
    """Mean and standard deviation a channel, of pixels between 0 and 1: those of the configuration, else computed.

    Training images [N, C, H, W] uint8.
    """
    import torch

    values = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([plane.flatten().bincount(minlength=256) for plane in images.unbind(1)]).double()
    frequencies = counts / counts.sum(dim=1, keepdim=True)
    mean = frequencies @ values
    std = (frequencies @ values.square() - mean.square()).clamp(min=1e-6).sqrt()  # a channel can be constant
    return data.mean or mean.tolist(), data.std or std.tolist()


def _checked(data: Data, log: Log, read: bool = False) -> tuple[Reader, dict[str, Path], Identity]:
    """The reader of a data set, its files, which are located or downloaded, and which version they are.

    Files that are to be `read` have their md5s computed even if this process has read them.
    """
    reader: Reader = data.reader.make()
    paths = _located(data, reader, reader.root(data), log)
    named = f"{data.labels} {data.columns} {data.group}"  # the same files can have other classes
    names = {key: (path, named) for key, path in paths.items()}
    unknown = [key for key, name in names.items() if name not in _known]
    if unknown and not isinstance(reader, Sample):
        path = paths[unknown[0]]
        log(f"{data.name}: reading {path if len(paths) == 1 else path.parent} …")
    for key in paths if read else unknown:
        with decoding(paths[key], reader.remedy):
            _known[names[key]] = reader.digest(paths[key])
    md5s = {key: _known[name] for key, name in names.items()}
    version = Version(reader.note(), md5s) if isinstance(reader, Folder) else match(data, paths, md5s)
    return reader, paths, _identity(data, version, md5s)


def _identity(data: Data, version: Version, md5s: Mapping[str, str]) -> Identity:
    """The identity of a version's files; of one that conf/ lists, the note stands for these files and no others."""
    checksum = hashlib.sha256(json.dumps(sorted(md5s.items())).encode()).hexdigest()[:32]
    listed = [Version(**one) for one in described(data.name).get("versions", {}).values()]
    return Identity(version.note, checksum, None if version in listed else checksum)


def _located(data: Data, reader: Reader, root: Path, log: Log) -> dict[str, Path]:
    """The path of each of the reader's files; missing ones are downloaded if `data.download` allows it."""
    files = reader.locate(root)
    if files.keys() == set(reader.keys):
        return files
    reason = "data.download is false"
    if data.download:
        log(f"{data.name}: downloading into {root} …")
        try:
            _download(data, reader, root)
            return reader.locate(root)
        except InputError as error:
            reason = str(error)
    packed = f" (or {reader.packed_suffix})" if reader.packed_suffix else ""
    missing = ", ".join(f"{key}{packed}" for key in reader.keys if key not in files)
    folder = next(iter(files.values())).parent if files else root / reader.places[0]
    place = f"{folder} (data.root or CAPSEXP_DATA names the data folder, here {root})"
    raise InputError(f"{data.name}: put {missing} into {place}; {reason}")


def _download(data: Data, reader: Reader, root: Path) -> None:
    """Downloads all of the reader's files into `root`; raises InputError if that fails, and then leaves no file.

    It fails for files of no accepted version, too: some servers have plain http only. A temporary folder of the same
    file system has them until they are complete; those of a day ago, whose downloads were killed, are removed.
    """
    beside = next(folder for folder in (root, *root.parents) if os.path.isdir(folder))
    for left in beside.glob(f"{_TEMPORARY}*"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)  # torchvision sets none for its connections
    try:
        with tempfile.TemporaryDirectory(dir=beside, prefix=_TEMPORARY) as name:
            temporary = Path(name)
            reader.download(temporary)
            files = reader.locate(temporary)
            if files.keys() != set(reader.keys):
                raise RuntimeError("the archive lacks files")
            md5s = {key: reader.digest(path) for key, path in files.items()}
            if md5s not in [version.files for version in data.versions.values()]:
                raise RuntimeError(f"of no accepted version ({', '.join(md5s.values())})")
            for path in files.values():
                target = root / path.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
    except Exception as error:  # networks, archives and readers of somebody's own raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__  # torchvision's message has a line a mirror
        raise InputError(f"the download failed: {reason}") from error
    finally:
        socket.setdefaulttimeout(before)


def match(data: Data, paths: Mapping[str, Path], md5s: Mapping[str, str]) -> Version:
    """The accepted version with exactly these files; raises InputError with the override that would accept them."""
    for version in data.versions.values():
        if version.files == md5s:
            return version
    for key, md5 in md5s.items():
        expected = {name: version.files.get(key, "no such file") for name, version in data.versions.items()}
        if md5 not in expected.values():
            wanted = ", ".join(f"{name}: {other}" for name, other in expected.items()) or "nothing yet"
            raise InputError(f"{paths[key]}: its md5 {md5} is not accepted ({wanted}); {_how_to_accept(data, md5s)}")
    folder = next(iter(paths.values())).parent
    raise InputError(f"{folder}: mixes files of versions {', '.join(data.versions)}; {_how_to_accept(data, md5s)}")


def _how_to_accept(data: Data, md5s: Mapping[str, str]) -> str:
    """The override, quoted for a shell. Hydra allows quotes around values (an md5 may look like a number), not keys."""
    files = ", ".join(f'{key}: "{md5}"' for key, md5 in md5s.items())
    override = f'++data.versions.mine={{note: "what they are", files: {{{files}}}}}'
    given = "install capsexp again" if data.reader.cls is Sample else "replace the set's files by the published ones"
    again = "delete the set's files to download them again" if data.download else given
    return f"{again}; or, to use these files as they are, append {shlex.quote(override)}"
