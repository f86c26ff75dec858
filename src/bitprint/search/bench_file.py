"""What an index file costs to make, open and hold, and how fast this machine reads memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from statistics import median

import numpy as np

from bitprint.codes import Codes
from bitprint.parallel import on_every_core
from bitprint.search import flat
from bitprint.search.bench import Row, make_row, near_queries, seconds
from bitprint.search.engines import Packed
from bitprint.search.index import Index
from bitprint.words import as_words

MACHINE = "this machine"
"""Whose speed our own is compared with, where there is no other engine."""

_MANY = 1024  # queries of a large search


def memory_row(packed: Packed, bits: int, repeats: int = 9) -> Row:
    """Time this machine reading the words of all codes from memory, on every core.

    Examples
    --------
    >>> memory_row(np.zeros((1000, 8), np.uint8), 64)["seconds"] > 0
    True
    """
    words = as_words(packed).ravel()

    def read() -> int:
        return sum(on_every_core(lambda part: int(words[part].sum()), len(words), len(words)))

    if read() % 2**64 != int(words.sum()):
        raise ValueError("not all words were read")
    spent = median(seconds(read) for _ in range(repeats))
    return make_row(len(packed), bits, "read memory", MACHINE, seconds=spent)


def file_rows(path: Path, packed: Packed, bits: int) -> tuple[list[Row], Index]:
    """Make an index file and open it; return rows on that, and the open index.

    Parameters
    ----------
    path : path
        Where the file goes; nothing may be there.
    packed : ndarray of uint8, shape (N, B)
    bits : int

    Returns
    -------
    rows : list of dict
        "add"; "read file", with the bytes of the file per code; "open", and "first search", which
        may build tables, with the bytes of memory per code that the index holds after it.
    index : Index
    """

    def row(
        task: str, spent: float, size: float | None = None, engine: str = "bitprint index"
    ) -> Row:
        each = None if size is None else size / len(packed)
        return make_row(len(packed), bits, task, engine, seconds=spent, bytes_per_code=each)

    adding = row("add", seconds(lambda: build_index(path, packed, bits)))
    adding["codes_per_second"] = len(packed) / adding["seconds"]
    reading = median(seconds(path.read_bytes) for _ in range(3))
    opening = median(seconds(lambda: Index.open(path).close()) for _ in range(3))
    query = Codes.from_packed(near_queries(packed, bits, 1), bits)
    flat.warm_up()
    tracemalloc.start()
    index = Index.open(path)
    opened, _ = tracemalloc.get_traced_memory()
    searching = seconds(lambda: index.search(query, 10))
    searched, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [
        adding,
        row("read file", reading, path.stat().st_size, MACHINE),
        row("open", opening, opened),
        row("first search", searching, searched),
    ], index


def tables_row(index: Index, packed: Packed, bits: int) -> Row:
    """Time a search so large that tables pay at once, if they do; say what they take."""
    queries = Codes.from_packed(near_queries(packed, bits, _MANY), bits)
    spent = seconds(lambda: index.within(queries, 2))
    each = index._multi_index.nbytes / len(packed)
    return make_row(
        len(packed),
        bits,
        "first large search",
        "bitprint index",
        seconds=spent,
        bytes_per_code=each,
    )


def build_index(path: Path, packed: Packed, bits: int, batch: int = 1_000_000) -> None:
    """Make an index file of codes, with the ids 0, 1, 2 and so on."""
    with Index.create(path, bits) as index:
        for start in range(0, len(packed), batch):
            part = packed[start : start + batch]
            index.add(np.arange(start, start + len(part)), Codes.from_packed(part, bits))
