"""Random mirroring and shifting of uint8 images, on the device they are on."""

from __future__ import annotations

import torch
from torch import Tensor


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Return a randomly changed copy of a batch.

    Parameters
    ----------
    images : Tensor of uint8, shape (n, height, width, 3)
    kind : {"none", "flip", "shift", "flip+shift"}
        Shifts are of up to an eighth of height and width; the border pixel fills what is left.
    generator : torch.Generator
        A CPU generator, so that a CPU and a GPU draw the same changes.

    Examples
    --------
    >>> images = torch.arange(12, dtype=torch.uint8).reshape(1, 2, 2, 3)
    >>> augment(images, "none", torch.Generator()) is images
    True
    """
    if kind == "none":
        return images
    count, height, width, _ = images.shape
    rows = torch.arange(height).expand(count, height)
    columns = torch.arange(width).expand(count, width)
    if "shift" in kind:
        rows = _shift(rows, height, generator)
        columns = _shift(columns, width, generator)
    if "flip" in kind:
        mirrored = torch.rand(count, 1, generator=generator) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    pick = [torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return images[tuple(index.to(images.device, non_blocking=True) for index in pick)]


def _shift(positions: Tensor, size: int, generator: torch.Generator) -> Tensor:
    reach = size // 8
    offsets = torch.randint(-reach, reach + 1, (len(positions), 1), generator=generator)
    return (positions + offsets).clamp(0, size - 1)
