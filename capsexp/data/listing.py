"""Which pictures somebody's files are: of what split, class and group each is; capsexp.data.folder has the forms."""

import csv
import io
import math
import os
import re
import unicodedata
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsexp.data.mnist import idx_array
from capsexp.data.pictures import files_below, listed, visible
from capsexp.data.reader import decoding
from capsexp.errors import InputError, plural, printable

#: The usual names of splits, by what they are here.
_ROLES = {
    "train": r"(seg[ _-]?)?tr(ai)?n(ing)?([ _-]?(set|data|images))?",
    "test": r"(seg[ _-]?)?te?st(ing)?([ _-]?(set|data|images))?",
    "val": r"(seg[ _-]?)?(val(id(ation)?)?|dev(el(opment)?)?)([ _-]?(set|data|images))?",
}

#: The usual names of a table's columns, in small letters, by what they hold.
_COLUMNS = {
    "file": "file filename filepath image imagename imagefile imagepath imageid img picture photo path name id",
    "class": "label labels class classname category target species breed diagnosis dx",
    "split": "split subset partition",
}

_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")
_TABLES = (".csv", ".tsv")
_IDX = r"(.+-)?(train|t10k|test)-(images|labels)[-.]idx[13]-ubyte(\.gz)?"  # MNIST's files, and those in its format
_MOST = 10_000_000  # images in arrays


class Source(NamedTuple):
    """What names somebody's pictures in a configuration; see conf/data/folder.yaml."""

    path: Path
    labels: str | None = None
    columns: tuple[str, ...] = ()
    group: str | None = None


class Entry(NamedTuple):
    """A picture of a class."""

    role: str  # train, val or test
    name: Any  # of the class: a text, or a number in arrays
    picture: Any  # a Picture: a file, or pixels
    group: str = ""  # of pictures that are in one split


class Listing(NamedTuple):
    """N pictures, split by split and class by class; none for the test where they are to be drawn."""

    entries: list[Entry]
    names: list[str]  # of the J classes, in their order
    labels: NDArray[np.int64]  # [N]
    groups: NDArray[np.int64] | None  # [N], equal for pictures of one group
    left: tuple[str, ...] = ()  # a line on pictures that are in no split


def place(typed: str | None) -> Path:
    """The absolute path that `data.path` names; raises InputError for none."""
    path = Path(typed or "").expanduser().absolute()
    if typed and (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        return path
    given, wanted = f"data.path={typed}:" if typed else "data.path: missing;", "an .npz file"
    if path.suffix in _TABLES and path.is_file():
        wanted += f"; data.path={Path(typed or '').parent} data.labels={path.name} takes the classes from this table"
    elif path.suffix.lower() in _ARCHIVES and path.is_file():
        given += " an archive: unpack it;"
    elif typed and not path.exists():
        given += " isn't there;"
    raise InputError(f"{given} must be a folder with a folder for each class, or {wanted}")


@cache  # a folder is walked once a process
def listing(source: Source) -> Listing:
    """The pictures of a source: their files; of arrays, black ones in their place, which are not read."""
    path, labels, _, group = source
    files, left = not array_files(path), tuple[str, ...]()
    if not files:
        if labels or group:
            raise InputError(f"data.{'labels' if labels else 'group'}: not with {path}, which names no files")
        entries = arrays(path, pixels=False)
    elif labels is None:
        entries = _folders(path)
    elif "(" in labels and Path(labels).suffix.lower() not in _TABLES:
        entries = [Entry("train", _matched(labels, file, path), file) for file in files_below(path)]
    else:
        entries, left = _of_table(source)
    if group and entries and not any(entry.group for entry in entries):
        if "(" not in group:
            raise InputError(f"data.group={group}: needs a table, data.labels=FILE, or is a pattern such as '(.+)_'")
        entries = [entry._replace(group=_matched(group, entry.picture, path)) for entry in entries]
    if not any(entry.role == "test" for entry in entries):
        entries = [entry._replace(role="test") if entry.role == "val" else entry for entry in entries]
    _check(path, entries)
    every = {entry.name for entry in entries}
    numbers = files and all(re.fullmatch("[0-9]{1,18}", name) for name in every)
    order = sorted(every, key=lambda name: (int(name), name) if numbers else name)
    places = {name: at for at, name in enumerate(order)}
    if files:
        entries.sort(key=lambda entry: ([*_ROLES].index(entry.role), places[entry.name]))
    groups = np.unique([entry.group for entry in entries], return_inverse=True)[1] if group else None
    names = [printable(str(name)) for name in order]
    return Listing(entries, names, np.array([places[entry.name] for entry in entries], np.int64), groups, left)


def _check(path: Path, entries: Sequence[Entry]) -> None:
    """Raises InputError for a class that is only tested, and for a group that is trained on and tested."""
    for role, what in {"test": "test", "val": "validation"}.items():
        trained, tested = ([entry for entry in entries if entry.role == one] for one in ("train", role))
        unknown = {entry.name for entry in tested}.difference(entry.name for entry in trained)
        if unknown and trained:
            raise InputError(f"{path}: class {min(unknown)} has {what} images, but no training images")
        if both := {entry.group for entry in tested if entry.group}.intersection(entry.group for entry in trained):
            raise InputError(f"{path}: {min(both)} of data.group has training and {what} images")


def _matched(pattern: str, file: Path, path: Path) -> str:
    """What the brackets of a pattern match in a file's name below a folder; raises InputError for nothing."""
    try:
        match = re.search(pattern, file.relative_to(path).as_posix())
        text = match[1] if match else ""
    except (re.error, IndexError) as error:
        raise InputError(f"{pattern}: no pattern with one pair of brackets ({error})") from error
    if not text:
        raise InputError(f"{pattern}: nothing in {file} matches this pattern")
    return text


def _of_table(source: Source) -> tuple[list[Entry], tuple[str, ...]]:
    """The pictures that a table names, and a line on those that it doesn't; raises InputError for others."""
    path, typed = source.path, Path(source.labels or "").expanduser()
    table = next((one for one in (path / typed, typed) if one.is_file()), None)
    if table is None:
        raise InputError(f"data.labels={typed}: no such file in {path}")
    with decoding(table, ""):
        text = table.read_bytes().decode("utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter, restval=""))
    columns = _columns(table, list(rows[0]) if rows else [], source)
    files = _by_name(path)
    entries: dict[Path, Entry] = {}
    missing, empty = list[str](), 0
    for row in rows:
        cells = {what: row[column].strip() if column else "" for what, column in columns.items()}
        named = PurePosixPath(cells["file"].replace("\\", "/"))
        found = files.get(str(named)) or files.get(named.name) or []
        if len(found) != 1:
            missing.append(f"{named} is {'in several folders' if found else 'not there'}")
        elif not cells["class"]:
            empty += 1
        else:
            role = _role(cells["split"]) if columns["split"] else "train"
            entry = Entry(role, unicodedata.normalize("NFC", cells["class"]), found[0], cells["group"])
            if columns["group"] and not entry.group:
                raise InputError(f"{table}: {named} has no {columns['group']} (data.group)")
            if not role:
                raise InputError(f"{table}: {columns['split']}={cells['split']}: must be train, val or test")
            if entries.setdefault(found[0], entry) != entry:
                raise InputError(f"{table}: has {named} twice, differently: a picture must have one class and split")
    if missing:
        raise InputError(f"{table}: names pictures in {path}: {listed(missing)}")
    left = [f"{plural(empty, 'row')} of {table.name} without a class"] if empty else []
    if unnamed := len({file for found in files.values() for file in found}) - len(entries) - empty:
        left.append(f"{plural(unnamed, 'picture')} that {table.name} doesn't name")
    return [entries[file] for file in sorted(entries)], tuple(left)


def _columns(table: Path, header: list[str], source: Source) -> dict[str, str]:
    """The columns of a table by what they hold; raises InputError where these aren't known."""
    usual = {re.sub(r"[\W_]", "", str(name)).lower(): name for name in header}
    columns = {key: next((usual[one] for one in words.split() if one in usual), "") for key, words in _COLUMNS.items()}
    columns |= dict(zip(("file", "class"), source.columns, strict=False)) | {"group": source.group or ""}
    if "(" in columns["group"] and columns["group"] not in header:
        columns["group"] = ""  # a pattern
    every = ", ".join(map(str, header))
    if wrong := [one for one in columns.values() if one and one not in header]:
        raise InputError(f"{table}: has no column {wrong[0]}; has {every}")
    if not (columns["file"] and columns["class"]):
        typed = "data.columns=[FILE,CLASS] says which of them name the pictures and the classes"
        raise InputError(f"{table}: has the columns {every}; {typed}")
    return columns


def _by_name(path: Path) -> dict[str, list[Path]]:
    """The files below a folder by their path in it and by their name, with suffix and without."""
    files: dict[str, list[Path]] = {}
    for file in files_below(path):
        inside = file.relative_to(path)
        for name in {str(inside), str(inside.with_suffix("")), file.name, file.stem}:
            files.setdefault(name, []).append(file)
    return files


def _folders(path: Path) -> list[Entry]:
    """The pictures in class folders, or in folders of them."""
    found = _subfolders(path)
    if not found:
        tables = [one.name for one in sorted(path.iterdir()) if one.suffix in _TABLES]
        raise InputError(f"{path}: has no folders; must have one for each class, or {flat(tables)}")
    inside, roles = [_subfolders(path / name) for name in found], _splits_among(found)
    if len(found) == 1 and not roles and inside[0]:
        return _folders(path / found[0])
    if len(roles) == len(found) or len(set(roles.values())) > 1:
        if not len(set(roles.values())) == len(roles) == len(found):
            rest = "".join(f"; {name} is none: move it away" for name in found if name not in roles)
            line = f"{path}: has {', '.join(found)}; must have train, test and val, each at most once"
            raise InputError(f"{line}{rest}")
        return [entry for name, role in roles.items() for entry in _in_classes(path / name, role)]
    own = any((path / name / one).is_file() for name in found for one in visible(os.listdir(path / name)))
    if len(inside[0]) > 1 and all(other == inside[0] for other in inside) and not own:
        raise InputError(
            f"{path}: {' and '.join(found)} have the same folders ({', '.join(inside[0])}): splits must be named "
            f"train, test and val, a class must have pictures of its own; data.path={path / found[0]} takes one alone"
        )
    return _in_classes(path)


def flat(tables: Sequence[str] = ()) -> str:
    """What takes the classes of a folder of pictures."""
    table = [*tables, "labels.csv"][0]
    return f"data.labels={table} takes the classes from a table, data.labels='([a-z]+)' from the files' names"


def _role(name: str) -> str:
    """The split that a name means; nothing for others."""
    return next((role for role, words in _ROLES.items() if re.fullmatch(words, name, re.IGNORECASE)), "")


def _splits_among(names: Sequence[str]) -> dict[str, str]:
    """The split that each name means, alone or beside a word that all of these share: Final_Training, Final_Test."""
    beside: dict[tuple[str | None, str | None], dict[str, str]] = {}
    for name in names:
        for role, words in _ROLES.items():
            if match := re.fullmatch(f"(?:(?P<a>.+)[ _-])??(?:{words})(?:[ _-](?P<b>.+))?", name, re.IGNORECASE):
                beside.setdefault((match["a"], match["b"]), {})[name] = role
    shared = next((roles for roles in beside.values() if len(set(roles.values())) > 1), {})
    return beside.get((None, None)) or shared


def _in_classes(folder: Path, role: str = "train") -> list[Entry]:
    """The files in the class folders of a folder, or of the one folder in it; raises InputError where there are none.

    A name that is written in two ways in Unicode is one class.
    """
    names = _subfolders(folder)
    if len(names) == 1 and _subfolders(folder / names[0]):
        return _in_classes(folder / names[0], role)
    if not names:
        raise InputError(f"{folder}: has no class folders")
    entries: list[Entry] = []
    copies: dict[Path, set[str]] = {}
    for name in names:
        files = list(files_below(folder / name))
        if not files:
            raise InputError(f"{folder / name}: a class without images")
        entries += [Entry(role, unicodedata.normalize("NFC", name), file) for file in files]
        for part in (part for file in files for part in file.relative_to(folder / name).parents if part.name in names):
            copies.setdefault(Path(name, part.parent), set()).add(part.name)
    for copy, inner in copies.items():
        if len(inner) > 1:
            raise InputError(
                f"{folder}: {copy} has the folders {' and '.join(sorted(inner))}, as {folder.name} has: move one of "
                f"the copies away, or take it alone: data.path={folder / copy}"
            )
    return entries


def _subfolders(path: Path) -> list[str]:
    return [name for name in visible(os.listdir(path)) if (path / name).is_dir()]


def array_files(path: Path) -> list[Path]:
    """The .npz file that a path is, or the idx files in a folder."""
    return [path] if path.is_file() else [one for one in sorted(path.iterdir()) if re.fullmatch(_IDX, one.name)]


def arrays(path: Path, pixels: bool = True) -> list[Entry]:
    """The images of an .npz file or of idx files; raises InputError for damaged ones, and for other arrays.

    Without `pixels`, black images stand in their place, and those of an .npz file are not read.
    """
    with decoding(path, "", "can't be used"):  # numpy and zipfile raise many kinds for damaged files
        return (_of_npz if path.is_file() else _of_idx)(path, pixels)


def _of_idx(path: Path, pixels: bool) -> list[Entry]:
    """The idx files of one set in a folder; raises InputError for those of several."""
    found = {one: match for one in array_files(path) if (match := re.fullmatch(_IDX, one.name))}
    if len(sets := {match[1] for match in found.values()}) > 1:
        raise InputError(f"{path}: idx files of several sets ({', '.join(sorted(map(str, sets)))}): a folder for each")
    entries: list[Entry] = []
    for role in ("train", "test"):
        files = {match[3]: file for file, match in found.items() if (match[2] == "train") == (role == "train")}
        if files.keys() == {"images", "labels"}:
            images, labels = idx_array(files["images"]), idx_array(files["labels"])
            entries += _entries(role, images if pixels else _black(images.shape), labels)
        elif files:
            raise InputError(f"{path}: {', '.join(one.name for one in files.values())} without labels or images")
    return entries


def _of_npz(path: Path, pixels: bool) -> list[Entry]:
    """The images of an .npz file; raises ValueError for others than `Folder` takes."""
    entries: list[Entry] = []
    with np.load(path, allow_pickle=False) as stored, zipfile.ZipFile(path) as archive:
        for role, prefix in {"train": "", "val": "val_", "test": "test_"}.items():
            images, labels = f"{prefix}images", f"{prefix}labels"
            if role != "train" and images not in stored:
                continue
            if missing := " and ".join(name for name in (images, labels) if name not in stored):
                raise ValueError(f"has {', '.join(stored.files)}, not {missing}; must have images and labels")
            (shape, kind), (labelled, label) = (_header(archive, f"{name}.npy") for name in (images, labels))
            if kind != np.uint8 or not (len(shape) == 3 or shape[3:] in ((1,), (3,))) or 0 in shape:
                raise ValueError(f"{images} must be uint8 [N, H, W] or [N, H, W, 3]; they are {kind} {list(shape)}")
            if labelled[:1] != shape[:1]:
                raise ValueError(f"{labels}: {math.prod(labelled[:1]):,}, but {shape[0]:,} {images}")
            if label.kind not in "iuU" or len(labelled) != 1:
                known = "; labels.astype(str) makes texts" if label.kind == "O" else ""
                wrong = f"they are {label} {list(labelled)}{known}"
                raise ValueError(f"{labels} must be [N] whole numbers or texts; {wrong}")
            if shape[0] > _MOST:
                raise ValueError(f"{images}: {shape[0]:,}; must be at most {_MOST:,}")
            entries += _entries(role, stored[images] if pixels else _black(shape), stored[labels])
    return entries


def _black(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.broadcast_to(np.uint8(0), shape)


def _entries(role: str, images: NDArray[np.uint8], labels: NDArray[Any]) -> list[Entry]:
    images = images[..., 0] if images.shape[3:] == (1,) else images
    return [Entry(role, label, image) for label, image in zip(labels.tolist(), images, strict=True)]


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of a stored array; raises ValueError where it would need more bytes than there are."""
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(stream)
        stored = archive.getinfo(name).file_size - stream.tell()
    if not kind.hasobject and kind.itemsize * math.prod(shape) != stored:
        raise ValueError(f"{name}: says {kind} {list(shape)}, and has {stored:,} bytes")
    return shape, kind
