"""Training steps of every deep method against forward and backward of the same network alone.

    python benchmarks/training.py --backbone efficientnet-lite0 --csv results/training.csv

The rival does what no training can do without: preprocess, forward pass, backward pass, as anybody
would write it; on a GPU it is also recorded as a CUDA graph, as the training loop does. Network and
method take turns, so that a machine whose speed drifts slows both; a ratio is the median over the
turns. It says what pairs, triplets, codes, buffers, augmentation and the optimiser add, and the
work after an epoch too, shared out among the steps of an epoch.

On a processor the ratio of processor times is there as well: where other programs run, and with
OMP_NUM_THREADS=1, it is much the steadier one. Rows that the CSV file has are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import os
import platform
import time
from collections.abc import Callable, Generator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.data.feed import Feed
from bitprint.devices import pick_device
from bitprint.methods import DeepHasher, list_methods, method
from bitprint.nets.network import HashNetwork
from bitprint.training.augment import augment
from bitprint.training.distributed import ALONE
from bitprint.training.graphs import Captured
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.step import Step

PAIRWISE = ("dpsh", "dsdh authors", "dsdh paper", "dsdh balanced", "dsdh-a", "dsdh-b", "dsdh-c")
BUDGET = 1.10
CLASSES = 10
WARM_UP = 2
GROUP = 3  # steps between which a GPU is not asked to finish

SETTING = ("method", "backbone", "images", "bits", "batch", "device", "threads")
RATIOS = ("ratio", "ratio_low", "ratio_high", "ratio_cpu", "ratio_recorded", "rounds")
PARTS = ("step", "network", "recorded", "augment", "loss", "optimizer")
COLUMNS = (
    *SETTING,
    "images_per_second",
    *RATIOS,
    *(f"{part}_ms" for part in PARTS),
    *("after_epoch_s", "gpu_memory_gb", "load", "torch", "date"),
)

Row = dict[str, Any]
Work = Callable[[], object]
Seconds = NDArray[np.float64]  # by the clock on the wall, and of the processor: the last axis
Batches = Generator[tuple[Tensor, Tensor], None, None]


class Task(NamedTuple):
    """What all rows of a table share."""

    images: ImageSet
    feed: Feed
    device: torch.device
    backbone: str
    bits: int
    steps: int
    training: Training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=rows(), default=rows())
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--bits", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    if not 1 <= given.batch <= given.images or given.steps < 1:
        parser.error("--images must be enough for a --batch, and --steps at least 1")
    keep_freed_memory()
    known = read_rows(given.csv) if given.csv else []
    task = make_task(given)
    table = []
    for name in given.methods:
        row = find(known, setting(name, task))
        if row is None:
            row = setting(name, task) | measure(name, task)
            if given.csv:
                append_row(given.csv, row)
        table.append(row)
        print(in_words(row), flush=True)
    for column in ("ratio", "ratio_cpu", "ratio_recorded"):
        known_ratios = (row.get(column) for row in table if row["method"] in PAIRWISE)
        ratios = [float(ratio) for ratio in known_ratios if ratio]
        if ratios:
            print(f"pairwise family: {column} at most {max(ratios):.2f}, budget {BUDGET:.2f}")


def rows() -> list[str]:
    """Every deep method, DSDH in its three modes."""
    deep = [name for name in list_methods() if issubclass(method(name), DeepHasher)]
    modes = [f"dsdh {mode}" for mode in ("authors", "paper", "balanced")]
    return [name for name in deep if name != "dsdh"] + modes


def make_task(given: argparse.Namespace) -> Task:
    rng = np.random.default_rng(0)
    images = ImageSet(
        rng.integers(0, 256, (given.images, 32, 32, 3), np.uint8),
        labels=rng.integers(0, CLASSES, given.images),
    )
    device = pick_device("auto")
    training = Training(batch_size=given.batch, optimizer="adamw", augment="flip+shift", lr=1e-4)
    feed = Feed(images, device)
    return Task(images, feed, device, given.backbone, given.bits, given.steps, training)


# ---- what is timed


def measure(name: str, task: Task) -> Row:
    """All figures of one method."""
    free_gpu()
    hasher, batch = make_hasher(name, task), task.training.batch_size
    labels = torch.as_tensor(task.images.labels).to(task.device)
    state = State(labels, nn.functional.one_hot(labels, CLASSES).float(), batch)
    hasher.prepare(state)
    on_gpu = task.device.type == "cuda"
    group = GROUP if on_gpu else 1
    row: Row = {"load": round(os.getloadavg()[0], 1), "torch": torch.__version__}
    row["date"] = datetime.now(UTC).date().isoformat()
    with closing(endless_batches(task)) as batches:
        works = method_works(hasher, state, batches, task)
        take_turns(works, 1, WARM_UP)
        if on_gpu:  # before the rivals take their part of it
            row["gpu_memory_gb"] = round(torch.cuda.max_memory_reserved() / 1e9, 2)
        alone = network_works(hasher, task)
        take_turns(alone, 1, WARM_UP)
        times = take_turns(alone | works, -(-task.steps // group), group)
    after_epoch = seconds_after_epoch(hasher, state)
    return row | figures(times, after_epoch, -(-len(labels) // batch), batch)


def make_hasher(name: str, task: Task) -> DeepHasher:
    name, _, mode = name.partition(" ")
    options = {"mode": mode} if mode else {}
    hasher = bp.create(name, task.bits, backbone=task.backbone, training=task.training, **options)
    assert isinstance(hasher, DeepHasher)
    return hasher


def build(hasher: DeepHasher, task: Task) -> HashNetwork:
    return hasher._build((*task.images.size, 3), CLASSES, task.device, task.training).train()


def endless_batches(task: Task) -> Batches:
    """Whole batches, epoch after epoch."""
    batch = task.training.batch_size
    while True:
        order = torch.randperm(len(task.feed))
        yield from task.feed.batches(order[: len(order) // batch * batch], batch)


def method_works(hasher: DeepHasher, state: State, batches: Batches, task: Task) -> dict[str, Work]:
    """A step of the training loop, and what it does besides the network, each part alone."""
    net = build(hasher, task)
    step = Step(net, hasher, state, task.training, ALONE)
    step.begin_epoch()
    generator = torch.Generator().manual_seed(0)
    rows, items = next(batches)
    with torch.no_grad():
        outputs = net(items).requires_grad_()

    def train() -> None:
        step(*next(batches), 0, generator)

    def change() -> None:
        augment(next(batches)[1], task.training.augment, generator)

    def loss() -> None:
        outputs.grad = None
        parts = hasher.loss(outputs, rows, state)
        torch.stack(list(parts.values())).sum().backward()

    return {"step": train, "augment": change, "loss": loss, "optimizer": step.optimizer.step}


def network_works(hasher: DeepHasher, task: Task) -> dict[str, Work]:
    """A forward and a backward pass of a network that is built as the method's own."""
    batch = task.training.batch_size
    items = torch.from_numpy(task.images.read(slice(0, batch))).to(task.device)

    def passes(net: nn.Module, forward: Callable[[Tensor], Tensor]) -> Work:
        def work() -> None:
            net.zero_grad(set_to_none=True)
            forward(items).square().mean().backward()

        return work

    net = build(hasher, task)
    works = {"network": passes(net, net)}
    if task.device.type == "cuda":
        net = build(hasher, task)
        works["recorded"] = passes(net, Captured(net, batch))
    return works


# ---- clocks


def take_turns(works: dict[str, Work], rounds: int, group: int) -> dict[str, Seconds]:
    """Seconds of each work in each round, (rounds, 2); every other round goes backwards."""
    times: dict[str, list[Seconds]] = {name: [] for name in works}
    for number in range(rounds):
        for name in list(works)[:: -1 if number % 2 else 1]:
            times[name].append(seconds_of(works[name], group))
    return {name: np.array(each) for name, each in times.items()}


def seconds_of(work: Work, count: int) -> Seconds:
    """Mean of `count` times in a row, (2,); a GPU is asked to finish only after the last."""
    synchronise()
    started = np.array([time.perf_counter(), time.process_time()])
    for _ in range(count):
        work()
    synchronise()
    taken: Seconds = np.array([time.perf_counter(), time.process_time()]) - started
    return taken / count


def seconds_after_epoch(hasher: DeepHasher, state: State) -> Seconds:
    """Mean of two epochs, as DQN works after every second one; two before them compile."""
    for _ in range(2):
        seconds = seconds_of(lambda: hasher.after_epoch(state), 2)
    return seconds


# ---- the machine


def keep_freed_memory() -> None:
    """Let glibc keep memory that is freed, rather than give it back to the system.

    Else passes through a network begin with page faults, or not, depending on what happens to lie
    last in the heap: the network alone took 1.2 to 1.4 times as long as a step that contains it.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: never shrink the heap
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no block outside of it


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free_gpu() -> None:
    """Forget the networks of the last row, recorded ones too, and the most that they used."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# ---- figures and files


def figures(
    times: dict[str, Seconds], after_epoch: Seconds, steps_per_epoch: int, batch: int
) -> Row:
    """Medians over the rounds; those of ratios are taken after dividing round by round."""
    whole = times["step"] + after_epoch / steps_per_epoch
    ratios = whole / times["network"]
    row: Row = {
        "images_per_second": round(batch / np.median(whole[:, 0])),
        "ratio": round(np.median(ratios[:, 0]), 3),
        "ratio_low": round(ratios[:, 0].min(), 3),
        "ratio_high": round(ratios[:, 0].max(), 3),
        "rounds": len(ratios),
        "after_epoch_s": round(after_epoch[0], 4),
    }
    if "recorded" in times:
        row["ratio_recorded"] = round(np.median((whole / times["recorded"])[:, 0]), 3)
    else:  # beside a GPU the processor spends its time waiting
        row["ratio_cpu"] = round(np.median(ratios[:, 1]), 3)
    for part, seconds in times.items():
        row[f"{part}_ms"] = round(1e3 * np.median(seconds[:, 0]), 3)
    return row


def setting(name: str, task: Task) -> Row:
    """What two rows must have in common to be the same row."""
    device = torch.cuda.get_device_name() if task.device.type == "cuda" else "cpu"
    batch, threads = task.training.batch_size, torch.get_num_threads()
    values = (name, task.backbone, len(task.images), task.bits, batch, device, threads)
    return dict(zip(SETTING, values, strict=True))


def find(known: list[Row], wanted: Row) -> Row | None:
    """The last known row of a setting."""
    same = [row for row in known if all(row[key] == str(wanted[key]) for key in SETTING)]
    return same[-1] if same else None


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: a table with other columns; give another file")
        return list(reader)


def append_row(path: Path, row: Row) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def in_words(row: Row) -> str:
    parts = [(part, row.get(f"{part}_ms")) for part in PARTS]
    others = [(kind, row.get(f"ratio_{kind}")) for kind in ("cpu", "recorded")]
    return (
        f"{row['method']:15} {int(row['images_per_second']):>7,} images/s, "
        f"{row['ratio']} x the network alone ({row['ratio_low']} to {row['ratio_high']}"
        + "".join(f"; {kind} {ratio}" for kind, ratio in others if ratio)
        + "); ms: "
        + ", ".join(f"{part} {float(ms):.1f}" for part, ms in parts if ms)
        + f"; after an epoch {row['after_epoch_s']} s"
    )


if __name__ == "__main__":
    main()
