"""Random changes of uint8 images, on the device they are on."""

from __future__ import annotations

import torch
from torch import Tensor

CHANGES = ("flip", "shift", "colour", "erase")
"""What `augment` can do; a kind names some of these, joined by plus signs, or "none"."""

_STRENGTH = 0.4  # brightness, contrast and saturation are multiplied by up to 1 +- this
_GREY = 128


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Return a randomly changed copy of a batch.

    Parameters
    ----------
    images : Tensor of uint8, shape (n, height, width, 3)
    kind : str
        "none", or some of these joined by plus signs. "flip" mirrors half of the images; "shift"
        moves them by up to an eighth of height and width, the border pixel filling what is left;
        "colour" changes brightness, contrast and saturation by up to 0.4 of themselves; "erase"
        paints a grey box, half as high and as wide as the image, anywhere.
    generator : torch.Generator
        A CPU generator, so that a CPU and a GPU draw the same changes.

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
        images = _recolour(images, generator)
    if "erase" in changes:
        images = _erase(images, generator)
    return images


def check_augment(kind: str) -> list[str]:
    """Return the changes that a kind names; raise a ValueError for what is none.

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


def _recolour(images: Tensor, generator: torch.Generator) -> Tensor:
    """Blend images with black, with their mean grey and with their own grey, in this order."""
    factors = 1 + _STRENGTH * (2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1)
    brightness, contrast, saturation = factors.to(images.device, non_blocking=True)
    pixels: Tensor = brightness * images
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    pixels = mean + contrast * (pixels - mean)
    grey = pixels.mean(dim=3, keepdim=True)
    pixels = grey + saturation * (pixels - grey)
    return pixels.round_().clamp_(0, 255).to(torch.uint8)


def _erase(images: Tensor, generator: torch.Generator) -> Tensor:
    """Paint a box whose centre is anywhere in the image: at the border less of it is seen."""
    inside = []
    for axis in (1, 2):
        size = images.shape[axis]
        centre = torch.randint(size, (len(images), 1), generator=generator)
        first = centre - size // 4
        place = torch.arange(size)
        inside.append(((place >= first) & (place < first + size // 2)).to(images.device))
    box = inside[0][:, :, None, None] & inside[1][:, None, :, None]
    return torch.where(box, torch.full_like(images[:1, :1, :1], _GREY), images)
