"""What is written where the user says."""

import os
from pathlib import Path

import pytest
from support import refused

from capsexp.cli import check_new
from capsexp.files import write_output


def test_an_output_that_is_a_device_or_a_pipe_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_new(pipe, Path(os.devnull), tmp_path / "new")
    write_output(pipe, "content")
    assert (os.read(reader, 100), pipe.is_fifo()) == (b"content", True)
    os.close(reader)
    with pytest.raises(OSError, match="pipe"):
        write_output(pipe, "content")  # instead of waiting for ever
    with pytest.raises(OSError, match=r"No space left on device.*full"):
        write_output(Path("/dev/full"), b"content")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("there", [True, False])
def test_an_output_that_is_a_link_is_written_to_its_target(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    if there:
        target.touch()
    write_output(link, "content")
    assert (target.read_text(), link.readlink()) == ("content", target)


def test_a_file_is_overwritten_only_by_the_command_that_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("<!DOCTYPE html>")
    check_new(file, own="<!DOCTYPE")
    for own in ("", "{"):
        assert refused(lambda own=own: check_new(file, own=own)).startswith(f"{file}: exists already")
    assert refused(check_new, tmp_path).startswith(f"{tmp_path}: exists already")
