"""Small: a small convolutional network for 8 x 8 to 64 x 64 images, fast enough for a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, he_init, register_backbone


@register_backbone("small")
class Small(Trunk):
    """3 x 3 convolutions with batch norm and ReLU, pooling between them, and a global mean.

    Images of any size are accepted and not resized.

    Parameters
    ----------
    widths : sequence of int
        Output channels of each convolution.
    """

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256)) -> None:
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(f"the small network needs layers of width >= 1, got {widths}")
        self.widths = list(widths)
        self.out_features = self.widths[-1]
        self.preprocess = Preprocess(None, mean=127.5, std=127.5)
        layers: list[nn.Module] = []
        for before, after in pairwise([3, *self.widths]):
            layers += [
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2, ceil_mode=True),
            ]
        self.layers = nn.Sequential(*layers[:-1])
        he_init(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, height, width) -> (n, widths[-1])."""
        features: Tensor = self.layers(inputs)
        return features.mean(dim=(2, 3))

    def describe(self) -> dict[str, Any]:
        """Return the name and the widths."""
        return {"name": self.name, "widths": self.widths}
