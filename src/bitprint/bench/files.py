"""Time and memory for creating and opening an index file, and memory speed of the machine."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from statistics import median

import numpy as np

from bitprint.bench.engines import Packed
from bitprint.bench.measuring import Row, make_row, near_queries, seconds
from bitprint.codes import Codes
from bitprint.search import flat
from bitprint.search.index import Index
from bitprint.utils.parallel import on_every_core
from bitprint.utils.words import as_words

MACHINE = "this machine"
"""Engine name of the reference times of this machine."""

_MANY = 1024  # queries of a large search


def memory_row(packed: Packed, bits: int, repeats: int = 9) -> Row:
    """Measure the time for reading all codes from memory, on all cores.

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
    """Create and open an index file; return measurements and the open index.

    Parameters
    ----------
    path : path
        Path of the file, which must not exist.
    packed : ndarray of uint8, shape (N, B)
    bits : int

    Returns
    -------
    rows : list of dict
        "add"; "read file", with the file size per code; "open" and "first search", which can build
        tables, with the memory of the index per code afterwards.
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
    """Measure a search that is large enough to build tables, and the memory of the tables."""
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
    """Create an index file of codes with the ids 0, 1, 2 and so on."""
    with Index.create(path, bits) as index:
        for start in range(0, len(packed), batch):
            part = packed[start : start + batch]
            index.add(np.arange(start, start + len(part)), Codes.from_packed(part, bits))
