"""Training steps of every deep method against forward and backward of the same network alone.

    python benchmarks/training.py --backbone efficientnet-lite0 --images 50000

The rival does what no training can do without: preprocess, forward pass, backward pass. The ratio
says what pairs, triplets, codes, buffers, augmentation and the optimiser add to it, and the work
between epochs as well, which is timed once and shared out among the steps of an epoch.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.devices import pick_device
from bitprint.methods import DeepHasher, list_methods, method
from bitprint.nets import create_trunk
from bitprint.training.augment import augment
from bitprint.training.feed import Feed
from bitprint.training.loop import make_optimizer
from bitprint.training.plan import Training
from bitprint.training.state import HashNet, State

PAIRWISE = ("dpsh", "dsdh authors", "dsdh paper", "dsdh balanced", "dsdh-a", "dsdh-b", "dsdh-c")
CLASSES = 10
BUDGET = 1.10
WARM_UP = 3


def rows() -> list[str]:
    """Every deep method, DSDH in its three modes."""
    deep = [name for name in list_methods() if issubclass(method(name), DeepHasher)]
    modes = [f"dsdh {mode}" for mode in ("authors", "paper", "balanced")]
    return [name for name in deep if name != "dsdh"] + modes


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(step: Callable[[], Any], repeats: int) -> float:
    """Median over groups of steps: a GPU is asked to finish only at the end of a group."""
    for _ in range(WARM_UP):
        step()
    group = 10 if torch.cuda.is_available() else 1
    times = []
    for _ in range(-(-repeats // group)):
        synchronise()
        started = time.perf_counter()
        for _ in range(group):
            step()
        synchronise()
        times.append((time.perf_counter() - started) / group)
    return median(times)


def endless_batches(feed: Feed, batch: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        order = torch.randperm(count)[: count // batch * batch]
        yield from feed.batches(order, batch)


def network_alone(images: ImageSet, backbone: str, bits: int, batch: int, repeats: int) -> float:
    """Seconds of a forward and a backward pass."""
    device = pick_device("auto")
    trunk = create_trunk(backbone, input_shape=(*images.size, 3))
    net = HashNet(trunk, torch.nn.Linear(trunk.out_features, bits)).to(device)
    net = net.to(memory_format=torch.channels_last).train()
    net.mixed = device.type == "cuda"
    items = torch.from_numpy(images.read(slice(0, batch))).to(device)

    def step() -> None:
        net.zero_grad(set_to_none=True)
        net(items).square().mean().backward()

    return seconds_of(step, repeats)


def method_steps(
    row: str, images: ImageSet, backbone: str, bits: int, batch: int, repeats: int
) -> tuple[float, float]:
    """Seconds of a training step, and of the work after an epoch."""
    name, _, mode = row.partition(" ")
    options = {"mode": mode} if mode else {}
    training = Training(batch_size=batch, optimizer="adamw", augment="flip+shift", lr=1e-4)
    hasher = bp.create(name, bits, backbone=backbone, training=training, **options)
    assert isinstance(hasher, DeepHasher)
    assert images.labels is not None
    device = pick_device("auto")
    labels = torch.from_numpy(images.labels).to(device)
    state = State(labels, torch.nn.functional.one_hot(labels).float(), batch)
    net = hasher._build((*images.size, 3), CLASSES, device, training).train()
    optimizer = make_optimizer(net, training)
    hasher.prepare(state)
    generator = torch.Generator().manual_seed(0)
    batches = endless_batches(Feed(images, device), batch, len(images))

    def step() -> None:
        numbers, items = next(batches)
        items = augment(items, training.augment, generator)
        parts = hasher.loss(net(items), numbers, state)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(parts.values())).sum().backward()
        optimizer.step()

    seconds = seconds_of(step, repeats)
    hasher.after_epoch(state)  # once to compile what it needs
    synchronise()
    started = time.perf_counter()
    hasher.after_epoch(state)
    synchronise()
    return seconds, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=rows())
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--bits", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    images = ImageSet(
        rng.integers(0, 256, (given.images, 32, 32, 3), np.uint8),
        labels=rng.integers(0, CLASSES, given.images),
    )
    about = (images, given.backbone, given.bits, given.batch, given.steps)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    table = []
    for row in given.methods:
        # The network alone is timed anew beside each method: a machine's speed drifts.
        alone = network_alone(*about)
        step, after_epoch = method_steps(row, *about)
        whole = step + after_epoch / (given.images / given.batch)
        table.append(
            {
                "method": row,
                "backbone": given.backbone,
                "images": given.images,
                "bits": given.bits,
                "batch": given.batch,
                "images_per_second": round(given.batch / whole),
                "network_alone": round(given.batch / alone),
                "ratio": round(whole / alone, 3),
                "step_ms": round(step * 1e3, 2),
                "after_epoch_s": round(after_epoch, 3),
                "device": name,
                "threads": torch.get_num_threads(),
                "date": datetime.now(UTC).date().isoformat(),
            }
        )
        last = table[-1]
        print(
            f"{row:15} {last['images_per_second']:>7,} images/s, network alone "
            f"{last['network_alone']:>7,}: {last['ratio']:.2f} x its time",
            flush=True,
        )
    if given.csv:
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    pairwise = [row["ratio"] for row in table if row["method"] in PAIRWISE]
    if pairwise:
        print(f"pairwise family: at most {max(pairwise):.2f} x the network alone, budget {BUDGET}")


if __name__ == "__main__":
    main()
