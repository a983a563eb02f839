"""What is written where the user says."""

import os
import threading
from pathlib import Path

import pytest
from support import raising, refused

from capsexp.cli import check_new
from capsexp.files import check_writable, naming, opened, write_file, write_output


def test_an_output_that_is_a_device_or_a_pipe_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, Path(os.devnull), tmp_path / "new"):
        check_new(path)
    write_output(pipe, "content")
    assert (os.read(reader, 100), pipe.is_fifo()) == (b"content", True)
    os.close(reader)
    with pytest.raises(OSError, match="pipe"):
        write_output(pipe, "content")  # instead of waiting for ever
    with pytest.raises(OSError, match=r"No space left on device.*full"):
        write_output(Path("/dev/full"), b"content")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("mode", ["rb", "ab"])
def test_only_regular_files_are_opened_and_links_are_not_written_through(mode: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/zero"), *[tmp_path / "link"] * (mode == "ab")):
        assert refused(opened, path, mode) == f"{path}: not a file; move it away"
    with opened(tmp_path / ("link" if mode == "rb" else "file"), mode) as stream:
        assert stream.fileno() > 2


@pytest.mark.parametrize("there", [True, False])
def test_an_output_that_is_a_link_is_written_to_its_target(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    if there:
        target.touch()
    write_output(link, "content")
    assert (target.read_text(), link.readlink()) == ("content", target)


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path):
        assert refused(check_new, path) == f"{path}: exists already; --output=FILE must be a new file"


def test_a_pipe_gets_all_of_what_does_not_fit_into_it_at_once(tmp_path: Path) -> None:
    content, read = bytes(1 << 20), list[bytes]()
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        os.set_blocking(stream.fileno(), True)
        reader = threading.Timer(0.1, lambda: read.append(stream.read()))
        reader.start()
        write_output(tmp_path / "pipe", content)
        reader.join()
    assert read == [content]


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "new" / "folder")
    assert [*tmp_path.rglob("*")] == [tmp_path / "new", tmp_path / "new" / "folder"]
    with pytest.raises(OSError, match=": '/proc'"):
        check_writable(Path("/proc"))
    monkeypatch.setattr(os, "fsync", raising(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"):
        check_writable(tmp_path)


@pytest.mark.parametrize(("own", "named"), [(None, "folder"), ("file", "file")])
def test_an_error_of_a_library_gets_the_name_of_the_place(own: str | None, named: str) -> None:
    with pytest.raises(OSError, match="No space") as raised, naming(Path("folder")):
        raise OSError(28, "No space left on device", own)
    assert raised.value.filename == named


def test_a_written_file_is_closed_and_so_is_its_folder(tmp_path: Path) -> None:
    before = os.listdir("/dev/fd")
    write_file(tmp_path / "a" / "b", "content")
    assert os.listdir("/dev/fd") == before
