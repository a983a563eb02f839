"""The records in an installed package: all of them, or one line."""

import tarfile
from pathlib import Path

import pytest

from capsexp.errors import RunError
from capsexp.results import packed


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the wheel has it, of three files."""
    monkeypatch.setattr(packed, "ARCHIVE", tmp_path / "records.tar.xz")
    (tmp_path / "runs").mkdir()
    with tarfile.open(packed.ARCHIVE, "w:xz") as archive:
        for name in ("a", "b", "c"):
            path = tmp_path / "runs" / f"{name}.txt"
            path.write_text(name * 2000)
            archive.add(path, f"runs/{path.name}")
    return packed.ARCHIVE


def test_the_packed_records_are_read_where_a_folder_has_none(archive: Path, tmp_path: Path) -> None:
    with packed.own_or_packed(tmp_path / "none") as results:
        assert sorted(path.name for path in (results / "runs").iterdir()) == ["a.txt", "b.txt", "c.txt"]
        assert (results / "runs" / "b.txt").read_text() == "b" * 2000
    assert not results.exists()


def test_a_damaged_archive_is_one_line_at_any_place(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            archive.write_bytes(damaged)
            with pytest.raises(RunError, match=r"records\.tar\.xz: damaged .*; install capsexp again$"):
                packed.own_or_packed(tmp_path / "none").__enter__()
