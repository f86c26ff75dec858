"""Compare learning rates of the hash layer for each deep method in the recommended training.

    python benchmarks/rates.py --epochs 24 --workers 4 --csv results/rates_cifar10_validation.csv

MAP is measured on held-out training images of CIFAR-10, protocol 1: 3,000 training images, 1,000
queries and a database of 1,000 images, without the test queries. All methods are trained with the
same rates and number of epochs. A method can have options: "dsdh power=0.5" changes the weights of
similar and dissimilar pairs. Run the same command again to resume.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from many_classes import read_rows, write_rows

from bitprint.data import ImageSet, open_images
from bitprint.experiments.cells import Cell, run_cell
from bitprint.methods import dsdh

METHODS = (
    *("dsdh", "dtsh", "dlbhc", "dhn", "dpsh", "dqn", "dsrh", "ssdh", "dsprh"),
    *("cnnh", "cnnh+", "ninh", "dsch", "drsch", "dsdh-a", "dsdh-b", "dsdh-c"),
)
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
KEY = ("variant", "bits", "seed", "lr", "epochs")
WEIGHTS = dsdh.pair_weights


@lru_cache(1)
def images_of(name: str) -> ImageSet:
    """Return the image set, read once per process."""
    return open_images(name)


def measure(variant: str, bits: int, seed: int, lr: float, epochs: int, backbone: str) -> dict:
    """Train one cell and return its row."""
    method, *changes = variant.split()
    change = dict(pair.split("=") for pair in changes)
    power = float(change.pop("power", 1.0))
    dsdh.pair_weights = lambda *given: WEIGHTS(*given) ** power
    options: dict[str, Any] = {"backbone": backbone, "lr": lr}
    options |= {"epochs": epochs} if epochs else {}
    options |= {key: number(value) for key, value in change.items()}
    cell = Cell("cifar10", 1, variant, method, backbone, bits, seed, True, options=options)
    started = time.perf_counter()
    done = run_cell(cell, images_of("cifar10"))
    row = done.row | {"lr": lr, "epochs": epochs, "seconds": round(time.perf_counter() - started)}
    return {key: row[key] for key in (*KEY, *(k for k in row if k not in KEY))}


def number(text: str) -> Any:
    """Convert a text to bool, int or float if possible."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def measured(cells: list[tuple], workers: int) -> Iterator[dict[str, Any]]:
    """Yield rows as cells are completed; print failures."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(measure, *cell): cell for cell in cells}
        for job in as_completed(jobs):
            if job.exception() is None:
                yield job.result()
            else:
                print(f"failed: {jobs[job]}: {job.exception()!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--bits", nargs="+", type=int, default=[24])
    parser.add_argument("--epochs", type=int, default=0, help="number of epochs (0: recommended)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument(
        "--workers", type=int, default=1, help="number of processes that share the GPU"
    )
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    rows = read_rows(args.csv)
    done = {tuple(str(row[key]) for key in KEY) for row in rows}
    wanted = [
        (variant, bits, seed, lr, args.epochs, args.backbone)
        for seed, lr, bits, variant in product(args.seeds, args.rates, args.bits, args.methods)
    ]
    cells = [cell for cell in wanted if tuple(map(str, cell[: len(KEY)])) not in done]
    for row in measured(cells, args.workers):
        rows.append(row)
        print("{variant}, {bits} bits, lr {lr}: {map:.3f} ({seconds} s)".format(**row), flush=True)
        write_rows(args.csv, rows, KEY)


if __name__ == "__main__":
    main()
