"""Compare exact search on a GPU with its memory bandwidth and with bf16 matrix products.

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
        parser.error("no CUDA device found")
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
    """Return uniformly random 64-bit words."""
    return torch.randint(-(2**63), 2**63 - 1, shape, device="cuda")


def to_signs(planes: Tensor) -> Tensor:
    """Convert codes, (1, N), to bf16 rows of -1 and +1, (N, 64), for the matrix product."""
    signs = torch.empty(planes.shape[1], BITS, dtype=torch.bfloat16, device="cuda")
    for bit in range(BITS):
        signs[:, bit] = ((planes[0] >> bit) & 1) * 2 - 1
    return signs


STEP = 1 << 22


def products(queries: Tensor, signs: Tensor) -> None:
    """Compute the matrix products without selection."""
    for part in signs.split(STEP):
        queries @ part.T


def product_search(queries: Tensor, signs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest products of each query: top-k of each part, then of the selection."""
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
    """Compare the Triton kernels with torch operations for few and many queries, with ties."""
    some = planes[:, :3_000_000].clone()
    some[:, 1_000_000:1_400_000] = some[:, :1]  # more equal codes than the buffer of a scan
    for count in (3, 70):
        queries = torch.cat([some[:, :1].T, random_words(count, 1)])
        kernel = gpu.nearest(queries, some, 100)
        reference = gpu.nearest(queries.cpu(), some.cpu(), 100)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(kernel, reference, strict=True))
    kernel_within = gpu.within(queries, some, 18)
    torch_within = gpu.within(queries.cpu(), some.cpu(), 18)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(kernel_within, torch_within, strict=True))
    wide = random_words(5, 400_000)
    marks = (torch.rand(400_000, device="cuda") < 0.7).to(torch.uint8)
    for count in (2, 40):
        queries = random_words(count, 5)
        kernel = gpu.nearest(queries, wide, 50, marks)
        reference = gpu.nearest(queries.cpu(), wide.cpu(), 50, marks.cpu())
        assert all(torch.equal(a.cpu(), b) for a, b in zip(kernel, reference, strict=True))
    print("results equal those of torch operations")


def read_speed(planes: Tensor) -> float:
    """Return bytes per second of a copy on the device, counting reads and writes."""
    target = torch.empty_like(planes)
    return 2 * planes.nbytes / seconds(lambda: target.copy_(planes))


def seconds(work: Callable[[], object], repeats: int = 9) -> float:
    """Return the median time of repeated runs, after a warm-up."""
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
