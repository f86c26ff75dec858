"""Codes files as written by `bitprint encode`, with the ids in a text file, one per line.

Line breaks in an id are escaped: a null character, which cannot occur in an id, then n or r.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bitprint.cli._shared import counted
from bitprint.utils.files import write_atomically

if TYPE_CHECKING:
    from bitprint.codes import Codes

_ESCAPES = {"\n": "\0n", "\r": "\0r"}


def write_codes(codes: Codes, ids: Iterable[object], file: Path) -> None:
    """Write codes to a file, and their ids to `ids_file(file)`."""
    codes.save(file)
    text = "".join(f"{_escape(str(name))}\n" for name in ids)
    write_atomically(ids_file(file), text.encode("utf-8", "surrogateescape"))


def is_codes(path: Path) -> bool:
    """Return whether a file starts like a codes file: an 8-byte length, then a JSON object."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(9)
    # The ninth byte of an image can be a brace too: in a GIF it is part of the height.
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8


def ids_file(file: Path) -> Path:
    """Return the path of the ids of a codes file."""
    return file.with_name(file.name + ".ids.txt")


def read_ids(file: Path, count: int) -> list[str]:
    """Read the ids of a file of `count` codes."""
    path = ids_file(file)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; it must contain the ids of the codes in {file}, one per line"
        )
    ids = path.read_text("utf-8", "surrogateescape").split("\n")[:-1]
    if len(ids) != count:
        raise ValueError(
            f"{path}: {counted(len(ids), 'id')} for {counted(count, 'code')}; "
            "encode the images again"
        )
    return [_unescape(line) for line in ids]


def _escape(name: str) -> str:
    for character, escape in _ESCAPES.items():
        name = name.replace(character, escape)
    return name


def _unescape(line: str) -> str:
    for character, escape in _ESCAPES.items():
        line = line.replace(escape, character)
    return line
