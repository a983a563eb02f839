"""Versions, missing files, downloads, and when files are read."""

import http.server
import os
import shlex
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from data_formats import Svhn, configuration, idx_set, md5, mnist_files, norb_files, pixels, refusal, write
from support import composed_config, process, raising, refused

from capsexp.config.schema import Version
from capsexp.data import smallnorb, source
from capsexp.data.reader import Reader
from capsexp.data.source import identify, load, match
from capsexp.data.svhn import SVHN
from capsexp.errors import InputError
from capsexp.run.plan import plan


@pytest.fixture
def svhn(tmp_path: Path) -> Svhn:
    return Svhn(tmp_path)


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts without the md5s known to the process."""
    monkeypatch.setattr(source, "_known", {})


def override_in(message: str) -> str:
    """The override that an error message recommends, unquoted as by a shell."""
    words = shlex.split(message.partition(" append ")[2])
    assert len(words) == 1
    return words[0]


def test_note_and_checksum_are_those_of_the_version_found(svhn: Svhn):
    ours, other = svhn.data().versions["ours"], Version("another", dict.fromkeys(svhn.files, "0" * 32))
    data = svhn.data(name="svhn", versions={"other": other, "ours": ours})
    images, identity = load(data), identify(data)
    assert (images.train_images.dtype, images.train_labels.dtype) == (torch.uint8, torch.int64)
    assert (images.note, images.checksum) == (identity.note, identity.unlisted) == ("made up", identity.checksum)
    published = svhn.data(name="svhn", versions={"published": replace(ours, note=None)})
    assert identify(published) == replace(identity, note=None)  # files that conf/ doesn't list don't go by their note
    assert identify(composed_config("data=mnist_sample").data).unlisted is None


def test_unknown_files_are_refused_and_accepted_by_the_printed_override_as_another_run(tmp_path: Path):
    names = []
    for folder, labels in (("a", (1, 10, 3, 9, 10)), ("b", (2, 10, 3, 9, 10))):
        svhn = Svhn(tmp_path / folder, labels)
        words = ("data=svhn", f"data.root={svhn.root}", "data.download=false")
        message = refusal(composed_config(*words).data)
        file, known = svhn.folder / "train_32x32.mat", md5(svhn.files["train_32x32.mat"])
        assert message.startswith(f"{file}: its md5 {known} is not accepted (published: ")
        assert load(composed_config(*words, "data.size=4", override_in(message)).data).note == "what they are"
        names.append(plan(composed_config(*words, override_in(message))).name)
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *((name, "1e" + "2" * 30) for name in ("mnist", "cifar10", "cifar100", "svhn", "smallnorb", "coil20")),
        *(("mnist", number) for number in ("0123456789" * 3 + "01", "1" * 32)),
    ],
)
def test_the_recommended_override_accepts_md5s_that_look_like_numbers(name: str, number: str):
    data = composed_config(f"data={name}").data
    md5s = dict.fromkeys(next(iter(data.versions.values())).files, number)
    message = refused(match, data, {key: Path(key) for key in md5s}, md5s)
    assert composed_config(f"data={name}", override_in(message)).data.versions["mine"].files == md5s


def test_files_of_two_versions_are_not_mixed(svhn: Svhn):
    right, wrong = svhn.data().versions["ours"].files, {"a": "test_32x32.mat", "b": "train_32x32.mat"}
    versions = {name: Version(None, right | {file: "0" * 32}) for name, file in wrong.items()}
    assert refusal(svhn.data(versions=versions)).startswith(f"{svhn.folder}: mixes files of versions a, b; ")


def test_a_version_with_other_names_of_files_is_of_none(svhn: Svhn):
    line = " is not accepted (odd: no such file); "
    assert line in refusal(svhn.data(versions={"odd": Version(None, {"train.mat": "0" * 32})}))


# Missing files and downloads


def test_the_error_for_a_missing_set_names_its_files_and_folder(tmp_path: Path):
    root = tmp_path / "not" / "there"
    message = refusal(configuration(root, "idx", {}, options={"dataset": "MNIST"}, name="mnist"))
    assert message.startswith("mnist: put train-images-idx3-ubyte (or .gz), train-labels-idx1-ubyte (or .gz), ")
    assert f"into {root / 'MNIST' / 'raw'} (data.root or CAPSEXP_DATA names the data folder" in message
    assert message.endswith("data.download is false")
    assert list(tmp_path.iterdir()) == []
    svhn = Svhn(tmp_path)
    (svhn.folder / "test_32x32.mat").unlink()
    os.mkfifo(svhn.folder / "test_32x32.mat")
    assert refusal(svhn.data()).startswith(f"little: put test_32x32.mat into {svhn.folder} (")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "svhn", "smallnorb", "coil20"])
@pytest.mark.parametrize("error", [urllib.error.URLError("no network"), TimeoutError("timed out")])
def test_a_download_without_a_network_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
):
    monkeypatch.setattr(urllib.request, "urlopen", raising(error))
    message = refusal(composed_config(f"data={name}", f"data.root={tmp_path}/data").data)
    assert "the download failed: " in message
    assert str(tmp_path / "data") in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"), [(None, "of no accepted version ("), (OSError("connection lost"), "connection lost")]
)
def test_a_download_that_fails_leaves_no_files(
    svhn: Svhn, monkeypatch: pytest.MonkeyPatch, error: Exception | None, reason: str
):
    def other(self: Reader, root: Path) -> None:
        for name in svhn.files:
            write(root / name, b"of another version")
        if error:
            raise error

    monkeypatch.setattr(SVHN, "download", other)
    (svhn.folder / "test_32x32.mat").unlink()
    before = sorted(svhn.root.rglob("*"))
    assert f"the download failed: {reason}" in refusal(svhn.data(download=True))
    assert sorted(svhn.root.rglob("*")) == before


def test_the_first_remedy_for_unknown_files_is_to_get_the_published_ones(svhn: Svhn):
    write(svhn.folder / "test_32x32.mat", b"cut off")
    for download, remedy in ((True, "delete the set's files to download"), (False, "replace the set's files by")):
        message = refusal(svhn.data(download=download))
        assert 0 < message.index(remedy) < message.index("to use these files as they are, append ")
    edited = {"mnist_sample.npz": Path("edited")}, {"mnist_sample.npz": "0" * 32}
    assert "; install capsexp again; or" in refused(match, composed_config("data=mnist_sample").data, *edited)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder on a web server of this machine, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{web.server_port}/"
        web.shutdown()


def test_a_download_is_checked_and_moved_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[Path, str]
):
    (folder, url), files, lines = server, norb_files(), list[str]()
    for name, contents in files.items():
        write(folder / f"{name}.gz", contents)
    monkeypatch.setattr(smallnorb, "_URL", url)
    root = tmp_path / "new" / "data"
    data = configuration(root, "norb", files, options={"camera": "left"}, download=True, size=6)
    for name, time in (("killed", 0), ("running", None)):
        (tmp_path / f".capsexp-download-{name}").mkdir()
        os.utime(tmp_path / f".capsexp-download-{name}", time if time is None else (time, time))
    assert load(data, lines.append).train_images[:, 0].tolist() == pixels(5, 2, 6, 6)[:, 0].tolist()
    assert [path.name for path in tmp_path.glob(".capsexp*")] == [".capsexp-download-running"]
    assert lines[0] == f"little: downloading into {root} …"
    assert {str(path.relative_to(root)) for path in root.rglob("*.*")} == {f"smallnorb/{name}.gz" for name in files}
    assert [path.name for path in root.iterdir()] == ["smallnorb"]


# When files are read


def write_unnoticed(path: Path, contents: bytes | bytearray) -> None:
    """Other contents under the same times."""
    before = path.stat()
    path.write_bytes(contents)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_flipped_bits_are_found_where_size_and_time_stay(tmp_path: Path):
    """As on a disk that loses bits; the format has no checksums of its own."""
    files = mnist_files()
    data = idx_set(tmp_path, files)
    load(data)
    for key, offset in product(files, (-1, -2)):
        (path,) = tmp_path.rglob(key)
        flipped = bytearray(files[key])
        flipped[offset] ^= 1
        write_unnoticed(path, flipped)
        with pytest.raises(InputError, match=f"{path}: its md5 .* is not accepted"):
            load(data)
        write_unnoticed(path, files[key])
    assert len(load(data).train_images) == 3


def test_a_process_reads_files_once_to_identify_them_and_again_to_load_them(
    svhn: Svhn, monkeypatch: pytest.MonkeyPatch
):
    read, lines = list[str](), list[str]()
    digest = Reader.digest
    monkeypatch.setattr(SVHN, "digest", lambda self, path: (read.append(path.name), digest(self, path))[1])
    for _ in range(2):
        identify(svhn.data(), lines.append)
        assert read == [*svhn.files]
    load(svhn.data(), lines.append)
    assert read == 2 * [*svhn.files]
    assert lines == [f"little: reading {svhn.folder} …"]


def test_to_identify_a_set_imports_neither_torch_nor_torchvision(tmp_path: Path):
    code = f"""
import sys
from capsexp.config.checks import check_dataclass
from capsexp.config.compose import composed
from capsexp.config.schema import Data
from capsexp.data.source import identify
for name in ("mnist", "cifar10", "svhn", "smallnorb", "coil20"):
    node = composed([f"data={{name}}"])["data"] | {{"root": {str(tmp_path)!r}, "download": False}}
    try:
        identify(check_dataclass(Data, node))
    except Exception as error:
        assert "data.download is false" in str(error), error
assert not {{"torch", "torchvision"}} & sys.modules.keys()
"""
    assert process("-c", code).stderr == ""
