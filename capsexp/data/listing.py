"""Which pictures somebody's files are: of what split, class and group each is; capsexp.data.folder has the forms."""

import csv
import io
import os
import re
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsexp.data.mnist import idx_array
from capsexp.data.pictures import files_below, listed, visible
from capsexp.data.reader import decoding, host_memory
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

TABLES = (".csv", ".tsv")
#: What takes the classes of a folder of pictures.
FLAT = "data.labels=labels.csv takes the classes from a table, data.labels='([a-z]+)' from the files' names"
_IDX = r"(.+-)?(train|t10k|test)-(images|labels)[-.]idx[13]-ubyte(\.gz)?"  # MNIST's files, and those in its format


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
    left: list[str]  # a line on pictures that are in no split


def place(typed: str | None) -> Path:
    """The absolute path that `data.path` names; raises InputError for none."""
    path = Path(typed or "").expanduser().absolute()
    if typed and (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        return path
    state = "missing" if not typed else "no folder" if path.exists() else "isn't there"
    wanted = "must be a folder with a folder for each class, or an .npz file"
    if path.is_file():
        wanted += "; an archive must be unpacked, a table is data.labels=FILE beside data.path=FOLDER"
    raise InputError(f"data.path={typed or ''}: {state}; {wanted}")


@cache  # a folder is walked once a process
def listing(source: Source) -> Listing:
    """The pictures of a source: their files, or their pixels."""
    path, labels, _, group = source
    files, left = not array_files(path), list[str]()
    if not files:
        if labels or group:
            raise InputError(f"data.{'labels' if labels else 'group'}: not with {path}, which names no files")
        with decoding(path, "", "can't be used"):  # numpy and zipfile raise many kinds for damaged files
            entries, left = _of_npz(path) if path.is_file() else (_of_idx(path), [])
    elif labels is None:
        entries = _folders(path)
        beside = sum((path / name).is_file() for name in visible(os.listdir(path)))
        left = [f"{plural(beside, 'file')} beside the class folders"] * (beside > 0)
    elif "(" in labels and Path(labels).suffix.lower() not in TABLES:
        entries = [Entry("train", _matched(labels, file, path), file) for file in files_below(path)]
    else:
        entries, left = _of_table(source)
    if group and "(" in group:
        entries = [entry._replace(group=_matched(group, entry.picture, path)) for entry in entries]
    elif group and (alone := [entry.picture for entry in entries if not entry.group]):
        wanted = "must be a column of the table data.labels, or a pattern such as '(.+)_'"
        raise InputError(f"data.group={group}: {alone[0]} has none; {wanted}")
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
    """Raises InputError for a class that is only tested, and for a group in two splits."""
    for role, what in {"test": "test", "val": "validation"}.items():
        trained, tested = ([entry for entry in entries if entry.role == one] for one in ("train", role))
        unknown = {entry.name for entry in tested}.difference(entry.name for entry in trained)
        if unknown and trained:
            raise InputError(f"{path}: class {min(unknown)} has {what} images, but no training images")
        others = {entry.group for entry in entries if entry.group and entry.role != role}
        if both := others.intersection(entry.group for entry in tested):
            raise InputError(f"{path}: {min(both)} of data.group has {what} and other images")


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


def _of_table(source: Source) -> tuple[list[Entry], list[str]]:
    """The pictures that a table names, and a line on those without a class; raises InputError for other tables."""
    path, typed = source.path, Path(source.labels or "").expanduser()
    table = next((one for one in (path / typed, typed) if one.is_file()), None)
    if table is None:
        raise InputError(f"data.labels={typed}: no such file in {path}")
    columns = dict(zip(("file", "class"), source.columns, strict=False))
    if source.group and "(" not in source.group:
        columns["group"] = source.group
    files, entries = list(files_below(path)), dict[Path, Entry]()
    for cells, file in _rows(table, path, files, columns, ("file", "class")):
        split, name = cells.get("split", "train"), unicodedata.normalize("NFC", cells["class"])
        if not (roles := _splits_among([split])):
            raise InputError(f"{table}: {file.name} has the split {split or 'nothing'}; must be train, val or test")
        entry = Entry(roles[split], name, file, cells.get("group", ""))
        if name and entries.setdefault(file, entry) != entry:
            raise InputError(f"{table}: has {file.name} twice, differently: a picture must have one class and split")
    left = len(files) - len(entries)
    lines = [f"{plural(left, 'picture')} without a class in {table.name}"] if left else []
    return [entries[file] for file in sorted(entries)], lines


def pictures_of(table: Path, column: str | None = None) -> list[Path]:
    """The picture that each row of a table names, in its folder or below; raises InputError for missing ones."""
    files = list(files_below(table.parent))
    return [file for _, file in _rows(table, table.parent, files, {"file": column} if column else {})]


def _rows(
    table: Path, path: Path, files: Sequence[Path], typed: Mapping[str, str], needed: Sequence[str] = ("file",)
) -> Iterator[tuple[dict[str, str], Path]]:
    """The cells of each row of a table, by what its columns hold, with its picture among the files below a folder.

    `typed` are the names of columns; others are found by their usual names. Raises InputError for missing pictures.
    """
    with decoding(table, ""):
        try:
            text = table.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{table}: must be in UTF-8; a spreadsheet saves it as CSV UTF-8") from None
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter, restval=""))
    if not rows:
        raise InputError(f"{table}: has no rows below its first line")
    columns, by_name = _columns(table, list(rows[0]), typed, needed), _by_name(path, files)
    names = [PurePosixPath(row[columns["file"]].strip().replace("\\", "/")) for row in rows]
    found = [by_name.get(str(name)) or by_name.get(name.name) or [] for name in names]
    missing = [
        f"{name} is {'several files' if places else 'not there'}"
        for name, places in zip(names, found, strict=True)
        if len(places) != 1
    ]
    if missing:
        raise InputError(f"{table}: names pictures in {path}: {listed(missing)}")
    for row, (file,) in zip(rows, found, strict=True):
        yield {what: row[column].strip() for what, column in columns.items()}, file


def _columns(table: Path, header: list[str], typed: Mapping[str, str], needed: Sequence[str]) -> dict[str, str]:
    """The columns of a table by what they hold; raises InputError where these aren't known."""
    usual = {re.sub(r"[\W_]", "", str(name)).lower(): name for name in header}
    known = {what: [usual[one] for one in words.split() if one in usual] for what, words in _COLUMNS.items()}
    columns = {what: names[0] for what, names in known.items() if names} | dict(typed)
    every = ", ".join(map(str, header))
    for what, column in typed.items():
        if column not in header:
            key = "data.group" if what == "group" else "data.columns"
            raise InputError(f"{table}: has no column {column}, which {key} names (null: none); has {every}")
    if unknown := [what for what in needed if what not in columns]:
        remedy = "rename one" + ", or name them by data.columns=[FILE,CLASS]" * ("class" in needed)
        raise InputError(f"{table}: none of the columns {every} is known as {unknown[0]}; {remedy}")
    return columns


def _by_name(path: Path, files: Sequence[Path]) -> dict[str, list[Path]]:
    """The files below a folder by their path in it and by their name, with suffix and without."""
    named: dict[str, list[Path]] = {}
    for file in files:
        inside = file.relative_to(path)
        for name in {str(inside), str(inside.with_suffix("")), file.name, file.stem}:
            named.setdefault(name, []).append(file)
    return named


def _folders(path: Path) -> list[Entry]:
    """The pictures in class folders, or in folders of them."""
    found = _subfolders(path)
    if not found:
        raise InputError(f"{path}: has no folders; must have one for each class, or {FLAT}")
    inside, roles = [_subfolders(path / name) for name in found], _splits_among(found)
    if len(found) == 1 and not roles and inside[0]:
        return _folders(path / found[0])
    if len(roles) == len(found) or len(set(roles.values())) > 1:
        if not len(set(roles.values())) == len(roles) == len(found):
            wanted = "must have train, test and val, each at most once, and nothing else"
            raise InputError(f"{path}: has {', '.join(found)}; {wanted}")
        return [entry for name, role in roles.items() for entry in _in_classes(path / name, role)]
    own = any((path / name / one).is_file() for name in found for one in visible(os.listdir(path / name)))
    if len(inside[0]) > 1 and all(other == inside[0] for other in inside) and not own:
        raise InputError(
            f"{path}: {' and '.join(found)} have the same folders ({', '.join(inside[0])}): splits must be named "
            f"train, test and val, a class must have pictures of its own; data.path={path / found[0]} takes one alone"
        )
    return _in_classes(path)


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
    for name in names:
        files = list(files_below(folder / name))
        if not files:
            raise InputError(f"{folder / name}: a class without images")
        inner = {part.name for file in files for part in file.relative_to(folder / name).parents}.intersection(names)
        if len(inner) > 1:
            raise InputError(
                f"{folder}: {name} has the folders {' and '.join(sorted(inner))}, as {folder.name} has: move one of "
                f"the copies away, or take it alone: data.path={folder / name}"
            )
        entries += [Entry(role, unicodedata.normalize("NFC", name), file) for file in files]
    return entries


def _subfolders(path: Path) -> list[str]:
    return [name for name in visible(os.listdir(path)) if (path / name).is_dir()]


def array_files(path: Path) -> list[Path]:
    """The .npz file that a path is, or the idx files in a folder."""
    return [path] if path.is_file() else [one for one in sorted(path.iterdir()) if re.fullmatch(_IDX, one.name)]


def _of_idx(path: Path) -> list[Entry]:
    """The idx files of one set in a folder; raises InputError for those of several."""
    found = {one: match for one in array_files(path) if (match := re.fullmatch(_IDX, one.name))}
    if len(sets := {match[1] or "" for match in found.values()}) > 1:
        raise InputError(f"{path}: idx files of several sets ({', '.join(sorted(sets))}): a folder for each")
    entries: list[Entry] = []
    for role in ("train", "test"):
        files = {match[3]: file for file, match in found.items() if (match[2] == "train") == (role == "train")}
        if files.keys() == {"images", "labels"}:
            entries += _entries(role, idx_array(files["images"]), idx_array(files["labels"]))
        elif files:
            raise InputError(f"{path}: {', '.join(one.name for one in files.values())} without labels or images")
    return entries


def _of_npz(path: Path) -> tuple[list[Entry], list[str]]:
    """The images of an .npz file, and a line on its other arrays; raises ValueError for others than `Folder` takes."""
    entries, used = list[Entry](), set[str]()
    if not zipfile.is_zipfile(path):
        raise ValueError("not what numpy.savez writes, or not all of it")
    with np.load(path, allow_pickle=False) as stored:
        if (needed := sum(info.file_size for info in stored.zip.infolist())) > host_memory():
            raise ValueError(f"its arrays take {needed:,} bytes, more than this machine has")
        for role, prefix in {"train": "", "val": "val_", "test": "test_"}.items():
            images, labels = f"{prefix}images", f"{prefix}labels"
            if role != "train" and images not in stored:
                continue
            if missing := " and ".join(name for name in (images, labels) if name not in stored):
                raise ValueError(f"has {', '.join(stored.files)}, not {missing}; must have images and labels")
            pixels, wanted = stored[images], f"{labels} must be [N] whole numbers or texts"
            try:
                names = stored[labels]
            except ValueError as error:  # of Python objects, to which numpy refuses itself
                raise ValueError(f"{wanted}; labels.astype(str) makes texts") from error
            shape, kind = pixels.shape, pixels.dtype
            if kind != np.uint8 or not (len(shape) == 3 or shape[3:] in ((1,), (3,))) or 0 in shape:
                raise ValueError(f"{images} must be uint8 [N, H, W] or [N, H, W, 3]; they are {kind} {list(shape)}")
            if names.dtype.kind not in "iuU" or names.shape != shape[:1]:
                raise ValueError(f"{wanted}, one an image; they are {names.dtype} {list(names.shape)}")
            entries += _entries(role, pixels, names)
            used |= {images, labels}
        others = [printable(name) for name in stored.files if name not in used]
    return entries, [f"the arrays {', '.join(others)}: none of images, labels, val_…, test_…"] * bool(others)


def _entries(role: str, images: NDArray[np.uint8], labels: NDArray[Any]) -> list[Entry]:
    images = images[..., 0] if images.shape[3:] == (1,) else images
    return [Entry(role, label, image) for label, image in zip(labels.tolist(), images, strict=True)]
