"""Compare batched GIST with GIST of single images in NumPy; the last line is the ratio.

The NumPy version follows LMgist of the authors: filters are computed once, then each image needs
32 inverse FFTs of the padded size.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from bitprint.features import gist

REPEATS = 5
IMAGES, RIVAL_IMAGES, ALL_IMAGES = 2_000, 50, 60_000
SIDE, PADDING = 32, 32


def main() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=np.uint8)
    few = images[:RIVAL_IMAGES]
    filters = make_filters(SIDE + 2 * PADDING)
    difference = np.abs(gist(few) - rival_gist(few, filters)).max()
    print(f"largest difference between the two: {difference:.1e}")
    if difference > 1e-5:
        sys.exit("the results differ")
    ours, rival = best_of_each(lambda: gist(images), lambda: rival_gist(few, filters))
    ours, rival = ours / IMAGES, rival / RIVAL_IMAGES
    print(
        f"GIST-512 of {SIDE} x {SIDE} images, {torch.get_num_threads()} threads, "
        f"best of {REPEATS} runs each:"
    )
    for name, each in (("bitprint.features.gist", ours), ("NumPy, single images", rival)):
        print(f"  {name:24}{1 / each:8.0f} images/s {each * ALL_IMAGES:8.0f} s for {ALL_IMAGES:,}")
    print(f"ratio {rival / ours:.1f}")


def rival_gist(images: NDArray[np.uint8], filters: list[NDArray]) -> NDArray[np.float32]:
    """Compute descriptors, (N, 512), one image at a time."""
    inside = slice(PADDING, PADDING + SIDE)
    features = np.empty((len(images), len(filters), 4, 4), np.float32)
    for row, image in enumerate(images):
        spectrum = np.fft.fft2(np.pad(prefilter(image.mean(axis=2)), PADDING, "symmetric"))
        for number, gain in enumerate(filters):
            response = np.abs(np.fft.ifft2(spectrum * gain))[inside, inside]
            cells = response.reshape(4, SIDE // 4, 4, SIDE // 4).mean(axis=(1, 3))
            features[row, number] = cells.T
    return features.reshape(len(images), -1)


def prefilter(gray: NDArray) -> NDArray:
    gray = gray - gray.min()
    x = np.pad(np.log1p(255 * gray / max(1, gray.max())), 5, "symmetric")
    across, down = frequencies(len(x))
    low_pass = np.exp(-(across**2 + down**2) * math.log(2) / 16)
    x = x - np.fft.ifft2(np.fft.fft2(x) * low_pass).real
    power = np.abs(np.fft.ifft2(np.fft.fft2(x**2) * low_pass))
    return (x / (0.2 + np.sqrt(power)))[5:-5, 5:-5]


def make_filters(count: int) -> list[NDArray]:
    across, down = frequencies(count)
    filters = []
    for scale in range(4):
        for orientation in range(8):
            radius = np.hypot(across, down) / count / (0.3 / 1.85**scale)
            angle = np.arctan2(down, across) + np.pi * orientation / 8
            angle = np.where(angle > np.pi, angle - 2 * np.pi, angle)
            filters.append(np.exp(-3.5 * (radius - 1) ** 2 - 2 * np.pi * angle**2))
    return filters


def frequencies(count: int) -> tuple[NDArray, NDArray]:
    cycles = np.fft.fftfreq(count, 1 / count)
    return cycles[None, :], cycles[:, None]


def best_of_each(*contenders: Callable[[], object]) -> list[float]:
    """Return the shortest time of each function; they run in turn to share other load."""
    times = [[seconds(contender) for contender in contenders] for _ in range(REPEATS)]
    return [min(column) for column in zip(*times, strict=True)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
