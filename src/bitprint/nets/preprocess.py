"""What a network needs done to its input first; its numbers are saved with the weights."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Interpolation = Literal["bicubic", "bilinear"]


class Preprocess(nn.Module):
    """Resize uint8 images and normalise them: (scale * pixel - mean) / std.

    The resize goes straight to a square and ignores the aspect. It averages when it shrinks
    (antialiasing), and its bicubic kernel has a = -0.5: MATLAB's ``imresize``, except that at the
    border weights outside of the image are dropped rather than mirrored. Nothing is clipped.

    Parameters
    ----------
    size : int or None
        Height and width of the result; None keeps those of the images.
    mean : number, 3 numbers, or array of shape (3, size, size)
        Per colour, or a mean image.
    std : number or 3 numbers
    interpolation : {"bicubic", "bilinear"}
    scale : float
        Factor on the pixels before `mean` and `std` apply: 1/255 if these are in units of 0..1.

    Examples
    --------
    >>> halve = Preprocess(2, mean=127.5, std=127.5)
    >>> halve(torch.full((1, 4, 4, 3), 255, dtype=torch.uint8)).shape
    torch.Size([1, 3, 2, 2])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        size: int | None,
        mean: Any,
        std: Any = 1.0,
        *,
        interpolation: Interpolation = "bicubic",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        if interpolation not in ("bicubic", "bilinear"):
            raise ValueError(f"interpolation is 'bicubic' or 'bilinear', got {interpolation!r}")
        self.size = size
        self.interpolation = interpolation
        # Kept in units of pixels, so that the two buffers say all that there is to normalising.
        self.register_buffer("mean", (_planes(mean, size) / scale).float())
        self.register_buffer("std", (_planes(std, size) / scale).float())

    def forward(self, images: Tensor) -> Tensor:
        """(n, height, width, 3) uint8 -> (n, 3, size, size) float32, on the same device."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(
                "images are uint8 of shape (n, height, width, 3), "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        pixels = images.permute(0, 3, 1, 2).float()
        if self.size is not None and pixels.shape[2:] != (self.size, self.size):
            pixels = functional.interpolate(
                pixels, (self.size, self.size), mode=self.interpolation, antialias=True
            )
        return pixels.sub_(self.mean).div_(self.std)


class ToFloat(nn.Module):
    """Feature vectors of any number type -> float32; scaling them is left to the caller."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.inputs = inputs

    def forward(self, features: Tensor) -> Tensor:
        """(n, inputs) -> (n, inputs) float32."""
        if features.ndim != 2 or features.shape[1] != self.inputs:
            raise ValueError(f"features have shape (n, {self.inputs}), got {tuple(features.shape)}")
        return features.float()


def _planes(values: Any, size: int | None) -> Tensor:
    """A number, 3 numbers or a mean image, as float64 of shape (3, 1, 1) or (3, size, size)."""
    planes = torch.as_tensor(values, dtype=torch.float64)
    if planes.shape in ((), (3,)):
        return planes.expand(3).reshape(3, 1, 1)
    if size is not None and planes.shape == (3, size, size):
        return planes
    raise ValueError(
        "mean and std are a number, 3 numbers or an image of the shape that the network sees, "
        f"got shape {tuple(planes.shape)}"
    )
