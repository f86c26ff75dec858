"""Compare the time to open an index file with that to read it, and measure its memory.

    python benchmarks/opening.py --csv results/opening.csv

The file is in the page cache. `read` reads it into memory and computes its CRC-32; `parts` does the
same in parts of 512 KiB, which stay in the processor's cache. Times are medians, measured in turn.
Memory is what the process gains (resident set size) by opening the index, then by adding one code,
and then by adding a tenth more. Each kind of ids is measured in a new process.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bitprint.bench.measuring import random_codes
from bitprint.codes import Codes
from bitprint.search.index import Index

BATCH = 1_000_000
PART = 1 << 19

Ids = NDArray[np.int64]
Row = dict[str, Any]


def number(count: int) -> Ids:
    return np.arange(count)


def draw(count: int) -> Ids:
    """Return distinct numbers that form no ranges."""
    return np.random.default_rng(0).permutation(count) * 7919


IDS: dict[str, Callable[[int], Ids]] = {"0 to N-1": number, "irregular": draw}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=int, default=10_000_000)
    parser.add_argument("--bits", type=int, nargs="+", default=[64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows = []
    for bits in given.bits:
        for kind in IDS:
            about = {"codes": given.codes, "bits": bits, "ids": kind}
            rows.append({**about, **measure(kind, given.codes, bits, given.repeats)})
            if given.csv:
                write_csv(given.csv, rows)
    table = Table(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        shown = (
            f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()
        )
        table.add_row(*shown)
    Console(width=160).print(table)


def write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def measure(kind: str, count: int, bits: int, repeats: int) -> Row:
    """Measure an index with one kind of ids."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.bp"
        in_new_process(fill, path, kind, count, bits)
        read, parts, opened = in_new_process(measure_times, path, repeats)
        disk = path.stat().st_size / count
        memory = in_new_process(measure_memory, path, kind)
    return {
        "read_s": read,
        "parts_s": parts,
        "open_s": opened,
        "open_to_read": opened / read,
        "open_to_parts": opened / parts,
        "disk_bytes_per_code": disk,
        **memory,
    }


def in_new_process(task: Callable[..., Any], *arguments: object) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(task, arguments)


def fill(path: Path, kind: str, count: int, bits: int) -> None:
    ids = IDS[kind](count)
    with Index.create(path, bits) as index:
        for start in range(0, count, BATCH):
            part = ids[start : start + BATCH]
            index.add(part, codes_of(len(part), bits))


def measure_times(path: Path, repeats: int) -> list[float]:
    """Return the median times to read and to open a file; the tasks run in turn."""
    tasks = read_whole, read_parts, open_index
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(repeats):
        for task, spent in zip(tasks, times, strict=True):
            started = time.perf_counter()
            task(path)
            spent.append(time.perf_counter() - started)
    return [median(spent) for spent in times]


def measure_memory(path: Path, kind: str) -> Row:
    """Return the growth of this process by opening an index and adding codes, in bytes per code."""
    before = resident()
    with Index.open(path) as index:
        count, bits = len(index), index.bits
        found = {"open_bytes_per_code": (resident() - before) / count}
        new = IDS[kind](count + 1 + count // 10)[count:].copy()
        index.add(new[:1], codes_of(1, bits))
        found["one_added_bytes_per_code"] = (resident() - before) / (count + 1)
        for start in range(1, len(new), BATCH):
            part = new[start : start + BATCH]
            index.add(part, codes_of(len(part), bits))
        del part, new
        return {**found, "tenth_added_bytes_per_code": (resident() - before) / len(index)}


def codes_of(count: int, bits: int) -> Codes:
    return Codes.from_packed(random_codes(count, bits, seed=count), bits)


def read_whole(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


def read_parts(path: Path) -> int:
    crc, part = 0, memoryview(bytearray(PART))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(part):
            crc = zlib.crc32(part[:size], crc)
    return crc


def open_index(path: Path) -> None:
    Index.open(path).close()


def resident() -> int:
    """Return the resident memory of this process in bytes (Linux)."""
    fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return 1024 * int(fields[0])


if __name__ == "__main__":
    main()
