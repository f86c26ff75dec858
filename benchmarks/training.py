"""Compare training steps of all deep methods with forward and backward passes of the network.

    python benchmarks/training.py --backbone efficientnet-lite0 --csv results/training.csv

The reference is the minimum of any training: preprocessing, forward pass and backward pass. On a
GPU it is also measured as a CUDA graph, as in the training loop. Network and method run in turn, so
that changes in the speed of the machine affect both; a ratio is the median over the turns. It
includes the cost of pairs, triplets, codes, buffers, augmentation and the optimizer, and a share of
the work after each epoch.

On a CPU the ratio of CPU times is measured too. With other load on the machine and
OMP_NUM_THREADS=1 it varies much less. Rows that the CSV file contains are not measured again.
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
from bitprint.methods import DeepHasher, list_methods, method
from bitprint.nets.network import HashNetwork
from bitprint.training.augment import augment
from bitprint.training.distributed import ALONE
from bitprint.training.graphs import Captured
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.step import Step
from bitprint.utils.devices import pick_device

PAIRWISE = ("dpsh", "dsdh authors", "dsdh paper", "dsdh balanced", "dsdh-a", "dsdh-b", "dsdh-c")
BUDGET = 1.10
CLASSES = 10
WARM_UP = 2
GROUP = 3  # steps between synchronizations with a GPU

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
Seconds = NDArray[np.float64]  # last axis: wall-clock time and CPU time
Batches = Generator[tuple[Tensor, Tensor], None, None]


class TrainingTask(NamedTuple):
    """Settings that are common to all rows of a table."""

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
        parser.error("--images must be >= --batch >= 1, and --steps >= 1")
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
        print(format_row(row), flush=True)
    for column in ("ratio", "ratio_cpu", "ratio_recorded"):
        known_ratios = (row.get(column) for row in table if row["method"] in PAIRWISE)
        ratios = [float(ratio) for ratio in known_ratios if ratio]
        if ratios:
            print(f"pairwise family: maximum {column} {max(ratios):.2f}, budget {BUDGET:.2f}")


def rows() -> list[str]:
    """Return the names of all deep methods, with DSDH in three modes."""
    deep = [name for name in list_methods() if issubclass(method(name), DeepHasher)]
    modes = [f"dsdh {mode}" for mode in ("authors", "paper", "balanced")]
    return [name for name in deep if name != "dsdh"] + modes


def make_task(given: argparse.Namespace) -> TrainingTask:
    rng = np.random.default_rng(0)
    images = ImageSet(
        rng.integers(0, 256, (given.images, 32, 32, 3), np.uint8),
        labels=rng.integers(0, CLASSES, given.images),
    )
    device = pick_device("auto")
    training = Training(batch_size=given.batch, optimizer="adamw", augment="flip+shift", lr=1e-4)
    feed = Feed(images, device)
    return TrainingTask(images, feed, device, given.backbone, given.bits, given.steps, training)


# ---- timed functions


def measure(name: str, task: TrainingTask) -> Row:
    """Return all measurements of one method."""
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
        if on_gpu:  # before the reference networks allocate memory
            row["gpu_memory_gb"] = round(torch.cuda.max_memory_reserved() / 1e9, 2)
        alone = network_works(hasher, task)
        take_turns(alone, 1, WARM_UP)
        times = take_turns(alone | works, -(-task.steps // group), group)
    after_epoch = seconds_after_epoch(hasher, state)
    return row | figures(times, after_epoch, -(-len(labels) // batch), batch)


def make_hasher(name: str, task: TrainingTask) -> DeepHasher:
    name, _, mode = name.partition(" ")
    options = {"mode": mode} if mode else {}
    hasher = bp.create(name, task.bits, backbone=task.backbone, training=task.training, **options)
    assert isinstance(hasher, DeepHasher)
    return hasher


def build(hasher: DeepHasher, task: TrainingTask) -> HashNetwork:
    return hasher._build((*task.images.size, 3), CLASSES, task.device, task.training).train()


def endless_batches(task: TrainingTask) -> Batches:
    """Yield full batches of consecutive epochs."""
    batch = task.training.batch_size
    while True:
        order = torch.randperm(len(task.feed))
        yield from task.feed.batches(order[: len(order) // batch * batch], batch)


def method_works(
    hasher: DeepHasher, state: State, batches: Batches, task: TrainingTask
) -> dict[str, Work]:
    """Return functions for a training step, and for its parts besides the network."""
    net = build(hasher, task)
    step = Step(net, hasher, state, task.training, ALONE)
    step.begin_epoch()
    generator = torch.Generator().manual_seed(0)
    rows, items = next(batches)
    with torch.no_grad():
        outputs = net(items).requires_grad_()

    def train() -> None:
        step(*next(batches), 0, generator)

    def augment_batch() -> None:
        augment(next(batches)[1], task.training.augment, generator)

    def loss() -> None:
        outputs.grad = None
        parts = hasher.loss(outputs, rows, state)
        torch.stack(list(parts.values())).sum().backward()

    return {"step": train, "augment": augment_batch, "loss": loss, "optimizer": step.optimizer.step}


def network_works(hasher: DeepHasher, task: TrainingTask) -> dict[str, Work]:
    """Return functions for forward and backward passes of the network of the method."""
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
    """Return the times of each function, (rounds, 2); the order alternates between rounds."""
    times: dict[str, list[Seconds]] = {name: [] for name in works}
    for number in range(rounds):
        for name in list(works)[:: -1 if number % 2 else 1]:
            times[name].append(seconds_of(works[name], group))
    return {name: np.array(each) for name, each in times.items()}


def seconds_of(work: Work, count: int) -> Seconds:
    """Return the mean time of `count` calls, (2,); synchronize with a GPU after the last only."""
    synchronize()
    started = np.array([time.perf_counter(), time.process_time()])
    for _ in range(count):
        work()
    synchronize()
    taken: Seconds = np.array([time.perf_counter(), time.process_time()]) - started
    return taken / count


def seconds_after_epoch(hasher: DeepHasher, state: State) -> Seconds:
    """Return the mean of two epochs (DQN works every second epoch), after two for warm-up."""
    for _ in range(2):
        seconds = seconds_of(lambda: hasher.after_epoch(state), 2)
    return seconds


# ---- the machine


def keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system.

    Otherwise network passes cause page faults depending on the layout of the heap: the network
    alone took 1.2 to 1.4 times as long as a step that contains it.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: never shrink the heap
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no blocks outside the heap


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free_gpu() -> None:
    """Free the networks and CUDA graphs of the previous row, and reset the peak memory."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# ---- results and files


def figures(
    times: dict[str, Seconds], after_epoch: Seconds, steps_per_epoch: int, batch: int
) -> Row:
    """Return medians over the rounds; ratios are computed in each round first."""
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
    else:  # with a GPU the CPU mostly waits
        row["ratio_cpu"] = round(np.median(ratios[:, 1]), 3)
    for part, seconds in times.items():
        row[f"{part}_ms"] = round(1e3 * np.median(seconds[:, 0]), 3)
    return row


def setting(name: str, task: TrainingTask) -> Row:
    """Return the columns that identify a row."""
    device = torch.cuda.get_device_name() if task.device.type == "cuda" else "cpu"
    batch, threads = task.training.batch_size, torch.get_num_threads()
    values = (name, task.backbone, len(task.images), task.bits, batch, device, threads)
    return dict(zip(SETTING, values, strict=True))


def find(known: list[Row], wanted: Row) -> Row | None:
    """Return the last known row with these settings, or None."""
    same = [row for row in known if all(row[key] == str(wanted[key]) for key in SETTING)]
    return same[-1] if same else None


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: unexpected columns; use another file")
        return list(reader)


def append_row(path: Path, row: Row) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def format_row(row: Row) -> str:
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
