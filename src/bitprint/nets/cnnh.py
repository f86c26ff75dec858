"""The network of CNNH: three wide convolutions for small images, trained from scratch."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, he_init, register_backbone


@register_backbone("cnnh")
class CNNHNet(Trunk):
    """5 x 5 convolutions with 32, 64 and 128 maps, each with pooling, then dropout 0.5.

    Xia et al., AAAI 2014. Our choices: ReLU, overlapping pooling as in AlexNet, and images resized
    to 32 x 32.
    """

    in_paper: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 128 * 4 * 4
        self.preprocess = Preprocess(32, mean=127.5, std=127.5)
        layers: list[nn.Module] = []
        for before, after in pairwise([3, 32, 64, 128]):
            layers += [
                nn.Conv2d(before, after, 5, padding=2),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, stride=2, padding=1),
            ]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Dropout())
        he_init(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, 32, 32) -> (n, 2048), nonnegative."""
        features: Tensor = self.layers(inputs)
        return features
