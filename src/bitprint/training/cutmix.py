"""CutMix: paste a box of another image into each image and mix their labels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Cut(NamedTuple):
    """A box that every image of a batch receives from another image of the batch.

    Parameters
    ----------
    partners : Tensor of int64, shape (n,)
        Position of the image from which each image receives the box.
    top, left, height, width : int
        The box, the same in all images.
    share : float
        Share of the pixels outside the box.
    """

    partners: Tensor
    top: int
    left: int
    height: int
    width: int
    share: float

    def paste(self, images: Tensor, others: Tensor) -> Tensor:
        """Return a copy of `images` with the box of `others`, both of shape (n, h, w, 3)."""
        rows = slice(self.top, self.top + self.height)
        columns = slice(self.left, self.left + self.width)
        images = images.clone()
        images[:, rows, columns] = others[:, rows, columns]
        return images


def draw_cut(shape: torch.Size, chance: float, generator: torch.Generator) -> Cut | None:
    """Draw a box of at most half of the image for a batch, or None.

    Yun et al., "CutMix", ICCV 2019. In the paper the box can cover the whole image; here it covers
    at most half, so that the larger part of the image keeps its own label.

    Parameters
    ----------
    shape : Size
        Shape of the whole batch, (n, height, width, 3).
    chance : float
        Probability of a box.
    generator : torch.Generator
        A CPU generator, so that a CPU and a GPU draw the same numbers.

    Returns
    -------
    Cut or None

    Examples
    --------
    >>> cut = draw_cut(torch.Size((4, 32, 32, 3)), chance=1, generator=torch.Generator())
    >>> cut.share == 1 - cut.height * cut.width / 32**2 and cut.share >= 0.45
    True
    """
    count, height, width, _ = shape
    partners = torch.randperm(count, generator=generator)
    drawn, area, down, right = torch.rand(4, generator=generator).tolist()
    if drawn >= chance:
        return None
    side = (area / 2) ** 0.5
    rows, columns = round(height * side), round(width * side)
    return Cut(
        partners=partners,
        top=int(down * (height - rows + 1)),
        left=int(right * (width - columns + 1)),
        height=rows,
        width=columns,
        share=1 - rows * columns / (height * width),
    )
