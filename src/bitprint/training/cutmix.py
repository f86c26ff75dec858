"""CutMix: images that carry a box of another image, and are taught both of their labels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Cut(NamedTuple):
    """A box that every image of a batch takes from its partner.

    Parameters
    ----------
    partners : Tensor of int64, shape (n,)
        Whose box each image gets.
    top, left, height, width : int
        Where the box is, in all images alike.
    share : float
        How much of an image stays its own.
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
    """Draw a box of up to half of the image for a batch, or none.

    Yun et al., "CutMix", ICCV 2019, where the box may be the whole image: as much of it as of the
    image itself leaves nothing to learn, and a label that is mostly the other's.

    Parameters
    ----------
    shape : Size
        (n, height, width, 3), of the whole batch.
    chance : float
        That there is a box.
    generator : torch.Generator
        A CPU generator, so that a CPU and a GPU draw the same.

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
