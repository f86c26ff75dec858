"""Exact search on a GPU against its memory bandwidth and against bf16 matrix products.

python benchmarks/gpu_search.py --codes 100000000 --csv results/search_gpu.csv
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from bitprint.search import gpu

BITS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=int, default=100_000_000)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 16, 128, 1024])
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device here")
    name = torch.cuda.get_device_name()
    print(f"{given.codes:,} codes of {BITS} bits on {name}, torch {torch.__version__}")
    planes = random_words(1, given.codes)
    bandwidth = read_speed(planes)
    floor = 8 * given.codes / bandwidth
    print(f"reading the codes once takes {1e3 * floor:.2f} ms ({bandwidth / 1e12:.2f} TB/s)")
    check(planes)
    signs = to_signs(planes)
    rows = []
    for count in given.queries:
        queries = random_words(count, 1)
        wanted = to_signs(queries.T)
        for k in given.k:
            ours = seconds(partial(gpu.nearest, queries, planes, k))
            product = seconds(partial(products, wanted, signs), repeats=3)
            theirs = seconds(partial(product_search, wanted, signs, k), repeats=3)
            rows.append(
                {
                    "codes": given.codes,
                    "bits": BITS,
                    "queries": count,
                    "k": k,
                    "ms": round(1e3 * ours, 3),
                    "read_once_ms": round(1e3 * floor, 3),
                    "bf16_product_alone_ms": round(1e3 * product, 3),
                    "bf16_product_and_topk_ms": round(1e3 * theirs, 3),
                    "comparisons_per_second": f"{count * given.codes / ours:.3g}",
                    "times_reading": round(ours / floor, 2),
                    "faster_than_bf16": round(theirs / ours, 1),
                    "device": name,
                    "date": date.today().isoformat(),
                }
            )
            print({name: rows[-1][name] for name in list(rows[-1])[2:11]}, flush=True)
    radius = seconds(lambda: gpu.within(random_words(16, 1), planes, 2))
    print(f"16 queries, everything within radius 2: {1e3 * radius:.2f} ms")
    if given.csv:
        given.csv.parent.mkdir(parents=True, exist_ok=True)
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def random_words(*shape: int) -> Tensor:
    """Uniform 64-bit words, both signs."""
    return torch.randint(-(2**63), 2**63 - 1, shape, device="cuda")


def to_signs(planes: Tensor) -> Tensor:
    """Codes (1, N) as bf16 rows of -1 and +1, (N, 64): the rival's database."""
    signs = torch.empty(planes.shape[1], BITS, dtype=torch.bfloat16, device="cuda")
    for bit in range(BITS):
        signs[:, bit] = ((planes[0] >> bit) & 1) * 2 - 1
    return signs


STEP = 1 << 22


def products(queries: Tensor, signs: Tensor) -> None:
    """The matrix products alone; nothing is selected."""
    for part in signs.split(STEP):
        queries @ part.T


def product_search(queries: Tensor, signs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest products of each query: top-k of each part, then of what is left."""
    values, rows = [], []
    for number, part in enumerate(signs.split(STEP)):
        for some in queries.split(128):
            best = (some @ part.T).topk(k)
            values.append(best.values)
            rows.append(best.indices + number * STEP)
    groups = -(-len(queries) // 128)
    kept, found = [], []
    for group in range(groups):
        top = torch.cat(values[group::groups], 1).topk(k)
        kept.append(top.values)
        found.append(torch.cat(rows[group::groups], 1).gather(1, top.indices))
    return torch.cat(kept), torch.cat(found)


def check(planes: Tensor) -> None:
    """Triton against plain torch operations, few queries and many, ties included."""
    some = planes[:, :3_000_000].clone()
    some[:, 1_000_000:1_400_000] = some[:, :1]  # more equal codes than a scan has room for
    for count in (3, 70):
        queries = torch.cat([some[:, :1].T, random_words(count, 1)])
        ours = gpu.nearest(queries, some, 100)
        plain = gpu.nearest(queries.cpu(), some.cpu(), 100)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, plain, strict=True))
    ours_within = gpu.within(queries, some, 18)
    plain_within = gpu.within(queries.cpu(), some.cpu(), 18)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(ours_within, plain_within, strict=True))
    wide = random_words(5, 400_000)
    marks = (torch.rand(400_000, device="cuda") < 0.7).to(torch.uint8)
    for count in (2, 40):
        queries = random_words(count, 5)
        ours = gpu.nearest(queries, wide, 50, marks)
        plain = gpu.nearest(queries.cpu(), wide.cpu(), 50, marks.cpu())
        assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, plain, strict=True))
    print("answers equal those of plain torch operations")


def read_speed(planes: Tensor) -> float:
    """Bytes per second of a copy on the device, reading and writing counted."""
    target = torch.empty_like(planes)
    return 2 * planes.nbytes / seconds(lambda: target.copy_(planes))


def seconds(work: Callable[[], object], repeats: int = 9) -> float:
    """Median of repeated runs after a first one."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return median(times)


if __name__ == "__main__":
    main()
