"""The training loop of all deep methods."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bitprint.data.feed import Feed
from bitprint.nets.network import HashNetwork
from bitprint.training.average import averaged
from bitprint.training.distributed import ALONE, Workers
from bitprint.training.graphs import silence_false_alarms
from bitprint.training.order import balanced_order, repeat_batches
from bitprint.training.plan import Training
from bitprint.training.progress import EpochBar
from bitprint.training.run import RunFolder
from bitprint.training.state import Objective, State
from bitprint.training.step import Step
from bitprint.training.whole_batch import whole_batches

Callback = Callable[[dict[str, Any]], object]
"""Receives the metrics of an epoch."""

_RNG_LOCK = threading.RLock()


@contextmanager
def isolated_rng(devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Isolate torch's RNG state: seeding and drawing inside have no effect outside.

    Torch's generators are global; dropout and weight initialization draw from them. Other threads
    that enter this context wait, and the previous state is restored at the end.

    Parameters
    ----------
    devices : sequence of device
        GPUs whose generators are isolated too.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with isolated_rng():
    ...     _ = torch.manual_seed(7)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    with _RNG_LOCK, torch.random.fork_rng(list(devices)):
        yield


def train(
    net: HashNetwork,
    objective: Objective,
    feed: Feed,
    state: State,
    training: Training,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    progress: bool | str = False,
    workers: Workers = ALONE,
    validate: Callable[[], dict[str, float]] | None = None,
    callback: Callback | None = None,
) -> list[dict[str, Any]]:
    """Train `net` in place and return the metrics of every epoch.

    All randomness of an epoch depends on (seed, epoch) only. A run that is killed and resumed from
    its last checkpoint therefore has the same result as an uninterrupted run. Several processes
    have the same result as one, except for rounding: they add floating-point numbers in another
    order.

    Parameters
    ----------
    net : HashNetwork
        On the training device.
    objective : Objective
        The method: its buffers, its loss and its update between epochs.
    feed : Feed
        The N training items.
    state : State
        Their labels, on the training device.
    training : Training
        Optimizer, schedule and augmentation.
    seed : int
        Seed of shuffling, augmentation and dropout.
    run : RunFolder, optional
        Folder of checkpoints and metrics; training resumes from its last checkpoint, if any.
    progress : bool or str
        Show a progress bar. Without a terminal, print lines that begin with this text.
    workers : Workers
        The processes that train together, each with its part of `feed`. Only process 0 writes
        files and logs.
    validate : callable, optional
        Evaluates the network after every epoch, with averaged weights if they are used. Its
        results become columns of `metrics.csv`.
    callback : callable, optional
        Called after every epoch with its metrics. An exception that it raises ends the training.

    Returns
    -------
    list of dict
        Metrics of each epoch, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from bitprint.methods import create
    >>> from bitprint.nets import create_trunk
    >>> labels = torch.tensor([0, 0, 0, 1, 1, 1])
    >>> state = State(labels, classes=torch.eye(2)[labels], batch_size=6)
    >>> feed = Feed(np.eye(6, dtype=np.float32), torch.device("cpu"))
    >>> trunk = create_trunk("mlp", input_shape=(6,))
    >>> hasher = create("dpsh", bits=12)
    >>> net = HashNetwork(trunk, hasher.make_head(trunk.out_features, classes=2))
    >>> history = train(net, hasher, feed, state, Training(epochs=3, lr=0.01))
    >>> [row["epoch"] for row in history], history[-1]["loss"] < history[0]["loss"]
    ([1, 2, 3], True)
    """
    step = Step(net, objective, state, training, workers)
    objective.prepare(state)
    first, history = run.restore(net, step.optimizer, state) if run else (0, [])
    _synchronize_start(net, state, first, run, workers)
    devices = [state.device] if state.device.type == "cuda" else []
    title = progress if isinstance(progress, str) else "training"
    with (
        EpochBar(
            training.epochs, first, enabled=bool(progress) and workers.first, title=title
        ) as bar,
        isolated_rng(devices),
        whole_batches(net, workers),
        silence_false_alarms(),
    ):
        for epoch in range(first, training.epochs):
            started = time.perf_counter()
            losses = _one_epoch(
                step, feed, state, training, seed, epoch, bar, views=objective.views
            )
            total = sum(losses.values())
            if not math.isfinite(total):
                raise FloatingPointError(_not_finite("loss", epoch, run))
            # A finite loss can have an infinite gradient.
            if not _is_finite(net):
                raise FloatingPointError(_not_finite("network", epoch, run))
            row: dict[str, Any] = {"epoch": epoch + 1, "loss": total, **losses}
            row |= objective.after_epoch(state)
            if validate is not None:
                with averaged(net, state, training.average):
                    row |= validate()
            # All processes computed the same values; copy them in case their hardware rounds
            # differently.
            workers.copy_from_first(state.tensors.values())
            seconds = time.perf_counter() - started
            row |= {"lr": step.optimizer.param_groups[0]["lr"], "seconds": round(seconds, 3)}
            bar.finish_epoch(epoch + 1, total, len(feed) / seconds)
            history.append(row)
            if run and workers.first:
                run.write_metrics(history)
                if run.due() or epoch + 1 == training.epochs:
                    run.save(history, net, step.optimizer, state)
            if callback is not None:
                callback(dict(row))
    step.finish()
    return history


def _one_epoch(
    step: Step,
    feed: Feed,
    state: State,
    training: Training,
    seed: int,
    epoch: int,
    bar: EpochBar,
    *,
    views: int,
) -> dict[str, float]:
    """Train for one epoch and return the mean of each part of the loss."""
    torch.manual_seed(_mix(seed, epoch))
    generator = torch.Generator().manual_seed(_mix(seed, epoch) + 1)
    if training.per_class is None:
        order = torch.randperm(len(feed), generator=generator)
    else:
        per_class = min(training.per_class, max(1, training.batch_size // 2))
        order = balanced_order(state.labels, per_class, generator)
    steps = -(-len(feed) // training.batch_size)
    order = repeat_batches(order, training.batch_size, views)
    sums: dict[str, Tensor] = {}
    step.begin_epoch()
    for number, (rows, items) in enumerate(feed.batches(order, views * training.batch_size)):
        step.set_rate(epoch, (epoch + number / steps) / training.epochs)
        for name, value in step(rows, items, epoch * steps + number, generator).items():
            # Keep the sums on the device: reading one here would synchronize with the GPU.
            sums[name] = sums.get(name, torch.zeros((), device=state.device)) + value
        bar.advance(len(rows) / len(order))
    return {name: float(value) / steps for name, value in sums.items()}


def _synchronize_start(
    net: HashNetwork, state: State, first: int, run: RunFolder | None, workers: Workers
) -> None:
    """Copy the network and the buffers of process 0 to all processes."""
    folder = run.path if run else "the run"
    workers.check_same(
        f"{first} epochs",
        f"{folder}: not all processes read the same checkpoint; "
        "put the run folder on a disk that all machines share",
    )
    workers.copy_from_first([*net.state_dict().values(), *state.tensors.values()])


def _mix(seed: int, epoch: int) -> int:
    """Return an even seed for an epoch; the next odd number seeds a second generator."""
    return (seed * 1_000_003 + epoch) * 2 % 2**63


def _is_finite(net: HashNetwork) -> bool:
    return bool(torch.stack([value.isfinite().all() for value in net.state_dict().values()]).all())


def _not_finite(what: str, epoch: int, run: RunFolder | None) -> str:
    kept = ""
    if run and run.kept_epochs:
        kept = f"; the checkpoint after epoch {run.kept_epochs} is kept in {run.path}"
    return f"the {what} is not finite in epoch {epoch + 1}{kept}; lower the learning rate"
