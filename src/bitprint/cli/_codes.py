"""Files of codes, as `bitprint encode` writes them: with the ids beside them, one per line.

The name of a file may hold line breaks; these are written as a null character, which no id has,
followed by n or r.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bitprint.cli._shared import counted
from bitprint.files import no_part_left

if TYPE_CHECKING:
    from bitprint.codes import Codes

_BREAKS = {"\n": "\0n", "\r": "\0r"}


def write_codes(codes: Codes, ids: Iterable[object], file: Path) -> None:
    """Write N codes to a file, and their ids beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with no_part_left(file, file.with_name(file.name + ".partial")):
        codes.save(file)
    text = "".join(f"{_in_one_line(str(name))}\n" for name in ids)
    with no_part_left(ids_beside(file)):
        ids_beside(file).write_text(text, "utf-8", "surrogateescape")


def is_codes(path: Path) -> bool:
    """Whether a file is in the format of codes: eight bytes are the length of a JSON object."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(9)
    # In a picture the ninth byte may be a brace too, as part of its height in a GIF.
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8


def ids_beside(file: Path) -> Path:
    """Where the ids of a file of codes are."""
    return file.with_name(file.name + ".ids.txt")


def read_ids(file: Path, count: int) -> list[str]:
    """Read the ids of a file of so many codes."""
    beside = ids_beside(file)
    if not beside.is_file():
        raise FileNotFoundError(f"{beside}: no ids for the codes of {file}; one per line")
    ids = beside.read_text("utf-8", "surrogateescape").split("\n")[:-1]
    if len(ids) != count:
        raise ValueError(
            f"{beside}: {counted(len(ids), 'id')} for {counted(count, 'code')}; "
            "encode the pictures again"
        )
    return [_with_breaks(line) for line in ids]


def _in_one_line(name: str) -> str:
    for character, escape in _BREAKS.items():
        name = name.replace(character, escape)
    return name


def _with_breaks(line: str) -> str:
    for character, escape in _BREAKS.items():
        line = line.replace(escape, character)
    return line
