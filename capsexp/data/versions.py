"""Which of the accepted versions of a data set the files on disk are."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from capsexp.config.schema import Data, Version
from capsexp.errors import InputError


def match(data: Data, paths: Mapping[str, Path], md5s: Mapping[str, str]) -> Version:
    """The version whose files are exactly these; raises InputError that says how to accept them otherwise."""
    for name, version in data.versions.items():
        if version.files.keys() != md5s.keys():
            raise InputError(f"data.versions.{name}.files: must give an md5 for each of {', '.join(md5s)}, no other")
    for version in data.versions.values():
        if version.files == dict(md5s):
            return version
    for key, md5 in md5s.items():
        expected = {name: version.files[key] for name, version in data.versions.items()}
        if md5 not in expected.values():
            wanted = ", ".join(f"{name}: {other}" for name, other in expected.items()) or "nothing yet"
            raise InputError(f"{paths[key]}: its md5 {md5} is not accepted ({wanted}); {_how_to_accept(data, md5s)}")
    origins = ", ".join(f"{key} is of {_names_with(data, key, md5)}" for key, md5 in md5s.items())
    folder = next(iter(paths.values())).parent
    raise InputError(f"{folder}: files of several versions are mixed ({origins}); {_how_to_accept(data, md5s)}")


def _names_with(data: Data, key: str, md5: str) -> str:
    return " and ".join(name for name, version in data.versions.items() if version.files[key] == md5)


def _how_to_accept(data: Data, md5s: Mapping[str, str]) -> str:
    """The override, quoted for a shell. Hydra takes quotes around values (an md5 may look like a number), not keys."""
    name = next(name for name in ("mine", *(f"mine{i}" for i in range(2, 99))) if name not in data.versions)
    files = ", ".join(f'{key}: "{md5}"' for key, md5 in md5s.items())
    override = f'+data.versions.{name}={{note: "what they are", files: {{{files}}}}}'
    return f"to use these files as they are, append {shlex.quote(override)}"
