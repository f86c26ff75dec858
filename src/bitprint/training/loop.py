"""The one training loop of all deep methods."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from bitprint.training.augment import augment
from bitprint.training.feed import Feed
from bitprint.training.order import balanced_order
from bitprint.training.plan import Training
from bitprint.training.progress import EpochBar
from bitprint.training.run import RunFolder
from bitprint.training.state import HashNet, Objective, State


def train(
    net: HashNet,
    objective: Objective,
    feed: Feed,
    state: State,
    training: Training,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Train `net` in place; return the figures of every epoch.

    Everything random in an epoch is drawn from (seed, epoch), so that a run which is killed and
    resumed from its last checkpoint goes on as if nothing had happened.

    Parameters
    ----------
    net : HashNet
        On the training device.
    objective : Objective
        The method: its buffers, its loss, its work between epochs.
    feed : Feed
        The N training items.
    state : State
        Their labels, on the training device.
    training : Training
        Optimiser, schedule, augmentation.
    seed : int
        Seed of shuffling, augmentation and dropout.
    run : RunFolder, optional
        Where checkpoints and figures go; resumed from when it holds a checkpoint.
    progress : bool
        Show a progress bar.
    """
    optimizer = _optimizer(net, training)
    objective.prepare(state)
    first, history = run.restore(net, optimizer, state) if run else (0, [])
    devices = [state.device] if state.device.type == "cuda" else []
    with EpochBar(training.epochs, first, enabled=progress) as bar, torch.random.fork_rng(devices):
        for epoch in range(first, training.epochs):
            started = time.perf_counter()
            losses = _one_epoch(net, objective, feed, state, training, optimizer, seed, epoch, bar)
            total = sum(losses.values())
            if not math.isfinite(total):
                raise FloatingPointError(_not_finite("loss", epoch, run))
            # A finite loss can still have had a gradient that is not.
            if not _is_finite(net):
                raise FloatingPointError(_not_finite("network", epoch, run))
            row: dict[str, Any] = {"epoch": epoch + 1, "loss": total, **losses}
            row |= objective.after_epoch(state)
            seconds = time.perf_counter() - started
            row |= {"lr": optimizer.param_groups[0]["lr"], "seconds": round(seconds, 3)}
            bar.finish_epoch(epoch + 1, total, len(feed) / seconds)
            history.append(row)
            if run:
                run.write_metrics(history)
                if run.due() or epoch + 1 == training.epochs:
                    run.save(history, net, optimizer, state)
    return history


def _one_epoch(
    net: HashNet,
    objective: Objective,
    feed: Feed,
    state: State,
    training: Training,
    optimizer: torch.optim.Optimizer,
    seed: int,
    epoch: int,
    bar: EpochBar,
) -> dict[str, float]:
    """One pass over the training set; returns the mean of every part of the loss."""
    torch.manual_seed(_mix(seed, epoch))
    generator = torch.Generator().manual_seed(_mix(seed, epoch) + 1)
    if training.per_class is None:
        order = torch.randperm(len(feed), generator=generator)
    else:
        per_class = min(training.per_class, max(1, training.batch_size // 2))
        order = balanced_order(state.labels, per_class, generator)
    steps = -(-len(feed) // training.batch_size)
    sums: dict[str, Tensor] = {}
    net.train()
    for step, (rows, items) in enumerate(feed.batches(order, training.batch_size)):
        _set_rate(optimizer, training, epoch, (epoch + step / steps) / training.epochs)
        if items.ndim == 4:
            items = augment(items, training.augment, generator)
        parts = objective.loss(net(items), rows, state)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(parts.values())).sum().backward()
        optimizer.step()
        for name, value in parts.items():
            # Sums stay on the device: reading one here would make it wait.
            sums[name] = sums.get(name, torch.zeros((), device=state.device)) + value.detach()
        bar.advance(len(rows) / len(feed))
    return {name: float(value) / steps for name, value in sums.items()}


def _optimizer(net: HashNet, training: Training) -> torch.optim.Optimizer:
    groups = [{"params": list(net.head.parameters())}, {"params": list(net.trunk.parameters())}]
    if training.optimizer == "sgd":
        return torch.optim.SGD(
            groups,
            lr=training.lr,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
        )
    on_gpu = next(net.parameters()).is_cuda
    return torch.optim.AdamW(
        groups, lr=training.lr, weight_decay=training.weight_decay, fused=on_gpu
    )


def _set_rate(
    optimizer: torch.optim.Optimizer, training: Training, epoch: int, progress: float
) -> None:
    head, trunk = optimizer.param_groups
    head["lr"] = training.rate(epoch, progress)
    trunk["lr"] = training.trunk_rate(epoch, progress)


def _mix(seed: int, epoch: int) -> int:
    return (seed * 1_000_003 + epoch) * 2 % 2**63


def _is_finite(net: HashNet) -> bool:
    return bool(torch.stack([value.isfinite().all() for value in net.state_dict().values()]).all())


def _not_finite(what: str, epoch: int, run: RunFolder | None) -> str:
    kept = ""
    if run and run.kept_epochs:
        kept = f"; the checkpoint after epoch {run.kept_epochs} is kept in {run.path}"
    return f"the {what} is not finite in epoch {epoch + 1}{kept}; lower the learning rate"
