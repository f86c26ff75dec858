"""A DSDH epoch against forward and backward of the same network alone, on the same device.

    python benchmarks/training.py --backbone efficientnet-lite0

The rival does what no training can do without: preprocess, forward pass, backward pass. The ratio
says what pairs, codes, buffers, augmentation and the optimiser add to it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.devices import pick_device
from bitprint.nets import create_trunk
from bitprint.training.state import HashNet


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def network_alone(images: ImageSet, backbone: str, bits: int, batch: int, epochs: int) -> float:
    """Best seconds of an epoch of forward and backward passes."""
    device = pick_device("auto")
    trunk = create_trunk(backbone, input_shape=(*images.size, 3))
    net = HashNet(trunk, torch.nn.Linear(trunk.out_features, bits)).to(device)
    net = net.to(memory_format=torch.channels_last).train()
    net.mixed = device.type == "cuda"
    pixels = torch.from_numpy(images.read(slice(None))).to(device)
    seconds = []
    for _ in range(epochs):
        synchronise()
        started = time.perf_counter()
        for items in pixels.split(batch):
            net.zero_grad(set_to_none=True)
            net(items).square().mean().backward()
        synchronise()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--bits", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    images = ImageSet(
        rng.integers(0, 256, (given.images, 32, 32, 3), np.uint8),
        labels=rng.integers(0, 10, given.images),
    )
    alone = network_alone(images, given.backbone, given.bits, given.batch, given.epochs)
    print(f"{given.backbone}: network alone {alone:.3f} s, {given.images / alone:,.0f} images/s")
    for mode in ("authors", "paper"):
        hasher = bp.create(
            "dsdh",
            given.bits,
            mode=mode,
            backbone=given.backbone,
            epochs=given.epochs,
            batch_size=given.batch,
            optimizer="adamw",
            augment="flip+shift",
        ).fit(images)
        epoch = min(row["seconds"] for row in hasher.history_)
        print(f"DSDH, mode {mode}: {epoch:.3f} s an epoch, {epoch / alone:.2f} x the network alone")


if __name__ == "__main__":
    main()
