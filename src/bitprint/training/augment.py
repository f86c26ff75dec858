"""Random augmentation of uint8 images, on the device of the images."""

from __future__ import annotations

import torch
from torch import Tensor

CHANGES = ("flip", "shift", "colour", "erase")
"""Augmentations; a kind is "none", or some of these joined by plus signs."""

_STRENGTH = 0.4  # brightness, contrast and saturation change by a factor within 1 +- this
_GRAY = 128


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Return a randomly augmented copy of a batch.

    Parameters
    ----------
    images : Tensor of uint8, shape (n, height, width, 3)
    kind : str
        "none", or some of these joined by plus signs. "flip" mirrors half of the images. "shift"
        moves an image by up to 1/8 of its height and width and repeats the border pixels. "colour"
        changes brightness, contrast and saturation by up to 40%. "erase" paints a gray box, half
        as high and half as wide as the image, at a random place.
    generator : torch.Generator
        A CPU generator, so that a CPU and a GPU draw the same numbers.

    Returns
    -------
    Tensor of uint8, shape (n, height, width, 3)
        `images` itself if `kind` is "none".

    Examples
    --------
    >>> images = torch.arange(12, dtype=torch.uint8).reshape(1, 2, 2, 3)
    >>> augment(images, "none", torch.Generator()) is images
    True
    """
    changes = check_augment(kind)
    if "shift" in changes or "flip" in changes:
        images = _move(images, changes, generator)
    if "colour" in changes:
        images = _jitter_color(images, generator)
    if "erase" in changes:
        images = _erase(images, generator)
    return images


def check_augment(kind: str) -> list[str]:
    """Return the augmentations in `kind`; raise a ValueError for an unknown one.

    Examples
    --------
    >>> check_augment("flip+erase"), check_augment("none")
    (['flip', 'erase'], [])
    """
    changes = [] if kind == "none" else str(kind).split("+")
    if not set(changes) <= set(CHANGES) or len(set(changes)) < len(changes):
        raise ValueError(
            f"augment must be none, or some of {', '.join(CHANGES)} joined by +, got {kind!r}"
        )
    return changes


def _move(images: Tensor, changes: list[str], generator: torch.Generator) -> Tensor:
    count, height, width, _ = images.shape
    rows = torch.arange(height).expand(count, height)
    columns = torch.arange(width).expand(count, width)
    if "shift" in changes:
        rows = _shift(rows, height, generator)
        columns = _shift(columns, width, generator)
    if "flip" in changes:
        mirrored = torch.rand(count, 1, generator=generator) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    pick = [torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return images[tuple(index.to(images.device, non_blocking=True) for index in pick)]


def _shift(positions: Tensor, size: int, generator: torch.Generator) -> Tensor:
    reach = size // 8
    offsets = torch.randint(-reach, reach + 1, (len(positions), 1), generator=generator)
    return (positions + offsets).clamp(0, size - 1)


def _jitter_color(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change brightness, then contrast, then saturation."""
    factors = 1 + _STRENGTH * (2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1)
    brightness, contrast, saturation = factors.to(images.device, non_blocking=True)
    pixels: Tensor = brightness * images
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    pixels = mean + contrast * (pixels - mean)
    gray = pixels.mean(dim=3, keepdim=True)
    pixels = gray + saturation * (pixels - gray)
    return pixels.round_().clamp_(0, 255).to(torch.uint8)


def _erase(images: Tensor, generator: torch.Generator) -> Tensor:
    """Paint a box with a random center in the image; at the border the box is clipped."""
    inside = []
    for axis in (1, 2):
        size = images.shape[axis]
        center = torch.randint(size, (len(images), 1), generator=generator)
        first = center - size // 4
        place = torch.arange(size)
        inside.append(((place >= first) & (place < first + size // 2)).to(images.device))
    box = inside[0][:, :, None, None] & inside[1][:, None, :, None]
    return torch.where(box, torch.full_like(images[:1, :1, :1], _GRAY), images)
