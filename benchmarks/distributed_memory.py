"""Measure the memory of each training process for a data set of the size of NUS-WIDE.

    torchrun --nproc-per-node 2 benchmarks/distributed_memory.py

The network is small and uses 8 random features. Memory therefore consists mainly of the labels, the
buffers of DSDH (last outputs U and codes B, each N x K), a batch compared with all images, and the
copies of the discrete step. An N x N matrix would take 140 GiB. Without torchrun there is one
process.
"""

from __future__ import annotations

import argparse
import resource
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

import bitprint as bp
from bitprint.training.distributed import joined
from bitprint.training.state import State

MIB = 2**20


def resident() -> float:
    """Return the current memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def peak() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=193_734)
    parser.add_argument("--bits", type=int, default=48)
    parser.add_argument("--labels", type=int, default=21)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    features = rng.standard_normal((given.images, 8), np.float32)
    labels = (rng.random((given.images, given.labels)) < 0.1).astype(np.uint8)
    labels[:, 0] |= labels.sum(axis=1) == 0
    hasher = bp.create("dsdh", given.bits, epochs=1, batch_size=given.batch, device="cpu")
    measured: dict[str, float] = {}

    class EnoughError(Exception):
        """Stop training after a few steps; further steps use no more memory."""

    loss, after_epoch = hasher.loss, hasher.after_epoch
    steps = []

    def watched(outputs: torch.Tensor, rows: torch.Tensor, state: State) -> dict:
        steps.append(1)
        if len(steps) == 1:
            measured["labels and buffers"] = resident() - start
        if len(steps) > given.steps:
            measured["training steps (peak)"] = peak() - start
            after_epoch(state)
            measured["training and discrete steps (peak)"] = peak() - start
            raise EnoughError
        parts: dict = loss(outputs, rows, state)
        return parts

    hasher.loss = watched
    with joined("cpu") as workers:
        warm_up = bp.create("dsdh", given.bits, epochs=1, batch_size=8, device="cpu")
        warm_up.fit(features[:16], labels[:16])
        start = resident()
        with suppress(EnoughError):
            hasher.fit(features, labels)
        report(given, measured, workers.rank, workers.size)
        workers.wait()


def report(given: argparse.Namespace, measured: dict[str, float], rank: int, size: int) -> None:
    state = given.images * (2 * given.bits + given.labels) * 4 / MIB
    pairs = given.batch * given.images * 4 / MIB
    lines = [
        f"process {rank + 1} of {size}: N = {given.images:,}, K = {given.bits}, "
        f"c = {given.labels}, batches of {given.batch}",
        f"  U and B (N x K each) and labels (N x c), float32: {state:,.0f} MiB",
        f"  one batch against all images, float32: {pairs:,.0f} MiB",
        *[f"  increase by {name}: {value:,.0f} MiB" for name, value in measured.items()],
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
