"""Estimate the duration of a training from a few images."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from bitprint.data.feed import Feed, item_shape
from bitprint.data.images import ImageSet

if TYPE_CHECKING:
    from bitprint.methods._deep import DeepHasher

_IMAGES = 8


def estimate_training(hasher: DeepHasher, images: ImageSet) -> tuple[float, float]:
    """Estimate the seconds of a whole training and of one feature extraction.

    The forward and backward passes of a few images are timed on a temporary network.

    Parameters
    ----------
    hasher : DeepHasher
        With all options resolved, see `bitprint.methods.recipes.settle`.
    images : ImageSet
        The training images.
    """
    training = hasher.training
    assert training is not None
    device = torch.device("cpu")
    some = images.subset(np.arange(min(_IMAGES, len(images))))
    net = hasher._build(item_shape(some), 2, device, training)
    feed = Feed(some, device)
    ((_, items),) = feed.batches(torch.arange(len(some)), len(some))
    net.train()
    best_forward, best_step = float("inf"), float("inf")
    for _ in range(2):  # the first pass also allocates memory
        started = time.perf_counter()
        outputs = net.trunk(net.trunk.preprocess(items))
        best_forward = min(best_forward, time.perf_counter() - started)
        outputs.sum().backward()
        best_step = min(best_step, time.perf_counter() - started)
    passes = len(images) / len(some)
    return best_step * passes * training.epochs, best_forward * passes


def spell_time(seconds: float) -> str:
    """Format a duration in words.

    Examples
    --------
    >>> spell_time(20), spell_time(600), spell_time(9000), spell_time(200_000)
    ('20 seconds', '10 minutes', '2.5 hours', '2.3 days')
    """
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            count = f"{seconds / size:.0f}" if unit == "minutes" else f"{seconds / size:.1f}"
            return f"{count.removesuffix('.0')} {unit}"
    return f"{max(1, round(seconds))} seconds"
