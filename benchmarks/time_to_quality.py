"""Measure the time of all steps of DSDH from raw files to MAP, in a new process.

    python benchmarks/time_to_quality.py --bits 48 --csv results/time_to_quality.csv

Training is also compared with the same number of forward and backward passes of the same network,
with trainable normalization layers and without the kernels of Bitprint, in the same process.
"""

import time

STARTED = time.perf_counter()  # before the imports, whose time is included

import argparse  # noqa: E402
import csv  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from bitprint.data import ImageSet, open_images, split_for  # noqa: E402
from bitprint.evaluation import evaluate  # noqa: E402
from bitprint.experiments.deep import training_of  # noqa: E402
from bitprint.methods import DeepHasher, create  # noqa: E402

PASSES = 60  # of the network alone, after WARM_UP passes
WARM_UP = 5

_seconds: dict[str, float] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10", help="name or folder of images with labels")
    parser.add_argument("--row", default="dsdh recipe", help="row of the tables")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--bits", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    _seconds["import"] = time.perf_counter() - STARTED
    with stage("read"):
        images = open_images(given.data)
        split = split_for(images, 1, given.seed)
        training, queries, database = map(
            images.subset, (split.training, split.queries, split.database)
        )
    _, options = training_of(given.row, given.bits, given.backbone)
    hasher = create(given.row.partition(" ")[0], given.bits, seed=given.seed, **options)
    assert isinstance(hasher, DeepHasher)
    with stage("train"):
        hasher.fit(training)
    with stage("encode"):
        codes = hasher.encode(queries), hasher.encode(database)
    with stage("evaluate"):
        assert queries.labels is not None
        assert database.labels is not None
        found = evaluate(codes[0], queries.labels, codes[1], database.labels, top=split.map_at)
    total = time.perf_counter() - STARTED
    row: dict[str, Any] = {
        **{"row": given.row, "backbone": given.backbone, "bits": given.bits, "seed": given.seed},
        **{"data": given.data, "map": round(found.map, 4), "total_s": round(total, 1)},
        **{f"{name}_s": round(seconds, 1) for name, seconds in _seconds.items()},
        **compare_with_network(hasher, training),
        **{"device": device_name(), "torch": torch.__version__},
        "date": datetime.now(UTC).date().isoformat(),
    }
    for name, value in row.items():
        print(f"{name:16} {value}")
    if given.csv:
        append(given.csv, row)


@contextmanager
def stage(name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    synchronize()
    _seconds[name] = time.perf_counter() - started


def compare_with_network(hasher: DeepHasher, training: ImageSet) -> dict[str, float]:
    """Return the estimated time of all network passes alone, and the ratio of training to it."""
    plan = hasher.training or hasher.default_training
    net = hasher.net_.train()
    items = torch.from_numpy(training.read(slice(0, plan.batch_size)))
    items = items.to(next(net.parameters()).device)
    for number in range(WARM_UP + PASSES):
        if number == WARM_UP:
            synchronize()
            started = time.perf_counter()
        net.zero_grad(set_to_none=True)
        net(items).square().mean().backward()
    synchronize()
    each = (time.perf_counter() - started) / PASSES
    alone = each * plan.epochs * len(training) / plan.batch_size
    return {
        "network_s": round(alone, 1),
        "train_over_network": round(_seconds["train"] / alone, 2),
    }


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
