"""Preprocessing of the input of a network; its mean and std are saved with the weights."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

_ROWS = 65_536  # of features that are read at once
_LEAST = 0.1  # of the root mean square of all standard deviations

Interpolation = Literal["bicubic", "bilinear"]


class Preprocess(nn.Module):
    """Resize uint8 images and normalize them: (scale * pixel - mean) / std.

    Images are resized to a square; the aspect ratio is ignored. Resizing uses antialiasing, and
    the bicubic kernel has a = -0.5, as MATLAB's ``imresize``, except that at the border weights
    outside the image are dropped instead of mirrored. Results are not clipped.

    Parameters
    ----------
    size : int or None
        Height and width of the result; None keeps the size of the images.
    mean : number, 3 numbers, or array of shape (3, size, size)
        Mean per color channel, or a mean image.
    std : number or 3 numbers
        Standard deviation per color channel.
    interpolation : {"bicubic", "bilinear"}
    scale : float
        Factor on the pixels before `mean` and `std` apply: 1/255 if these are for pixels in 0..1.

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
            raise ValueError(f"interpolation must be bicubic or bilinear, got {interpolation!r}")
        self.size = size
        self.interpolation = interpolation
        # In units of pixels, so that the two buffers define the normalization completely.
        self.register_buffer("mean", (_planes(mean, size) / scale).float())
        self.register_buffer("std", (_planes(std, size) / scale).float())

    def forward(self, images: Tensor) -> Tensor:
        """(n, height, width, 3) uint8 -> (n, 3, size, size) float32, on the same device."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(
                "images must be uint8 of shape (n, height, width, 3), "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        pixels = images.permute(0, 3, 1, 2).float()
        if self.size is not None and pixels.shape[2:] != (self.size, self.size):
            if pixels.device.type == "cpu":
                pixels = pixels.contiguous()  # faster to resize
            pixels = functional.interpolate(
                pixels, (self.size, self.size), mode=self.interpolation, antialias=True
            )
        return pixels.sub_(self.mean).div_(self.std)


class ToFloat(nn.Module):
    """Convert feature vectors to float32, without scaling."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.inputs = inputs

    def forward(self, features: Tensor) -> Tensor:
        """(n, inputs) -> (n, inputs) float32."""
        if features.ndim != 2 or features.shape[1] != self.inputs:
            raise ValueError(
                f"features must have shape (n, {self.inputs}), got {tuple(features.shape)}"
            )
        return features.float()


class Standardize(ToFloat):
    """Feature vectors of any number type -> float32 with mean 0 and standard deviation 1.

    Examples
    --------
    >>> standardize = Standardize(2)
    >>> standardize.std.fill_(2.0)
    tensor([2., 2.])
    >>> standardize(torch.tensor([[2, 4]])).tolist()
    [[1.0, 2.0]]
    """

    mean: Tensor
    std: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("std", torch.ones(inputs))

    def forward(self, features: Tensor) -> Tensor:
        """(n, inputs) -> (n, inputs) float32."""
        return super().forward(features).sub(self.mean).div_(self.std)


def feature_scale(features: NDArray) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each feature, for `Standardize`.

    A standard deviation below a tenth of the root mean square of all of them is replaced by that
    tenth, so that features which hardly vary are not inflated.

    Parameters
    ----------
    features : ndarray, shape (N, d)

    Examples
    --------
    >>> mean, std = feature_scale(np.array([[0.0, 5.0], [4.0, 5.0]]))
    >>> mean.tolist(), [round(value, 3) for value in std.tolist()]
    ([2.0, 5.0], [2.0, 0.141])
    """
    count, first = len(features), np.asarray(features[:1], np.float64)
    total, squares = np.zeros((2, features.shape[1]))
    for start in range(0, count, _ROWS):
        part = features[start : start + _ROWS] - first  # near zero, so that squares keep digits
        total += part.sum(axis=0)
        squares += np.square(part).sum(axis=0)
    mean = total / count
    variance = np.maximum(squares / count - mean**2, 0)
    least = _LEAST * np.sqrt(variance.mean())
    std = np.maximum(np.sqrt(variance), least or 1)
    return torch.from_numpy(mean + first[0]).float(), torch.from_numpy(std).float()


def _planes(values: Any, size: int | None) -> Tensor:
    """Return a number, 3 numbers or an image as float64, (3, 1, 1) or (3, size, size)."""
    planes = torch.as_tensor(values, dtype=torch.float64)
    if planes.shape in ((), (3,)):
        return planes.expand(3).reshape(3, 1, 1)
    if size is not None and planes.shape == (3, size, size):
        return planes
    raise ValueError(
        "mean and std must be a number, 3 numbers or an image of the input shape, "
        f"got shape {tuple(planes.shape)}"
    )
