"""The records of this project, which an installed package has in one archive (see setup.py)."""

import io
import lzma
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from capsexp.errors import RunError

ARCHIVE = Path(__file__).with_name("records.tar.xz")


@contextmanager
def own_or_packed(results: Path) -> Iterator[Path]:
    """The folder `results`; where it has no records, a temporary one with the packed ones, if there are any.

    Raises RunError for a damaged archive, which tarfile would take for the end of the records.
    """
    if not ARCHIVE.exists() or any((results / "runs").glob("*.json")):
        yield results
        return
    try:
        content = io.BytesIO(lzma.decompress(ARCHIVE.read_bytes()))  # compares checksums
    except lzma.LZMAError as error:
        raise RunError(f"{ARCHIVE}: damaged ({error}); install capsexp again") from None
    with TemporaryDirectory() as folder, tarfile.open(fileobj=content) as archive:
        for member in archive:
            path, stream = Path(folder, member.name), archive.extractfile(member)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(stream.read() if stream else b"")
        yield Path(folder)
