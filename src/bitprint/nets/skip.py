"""AlexNetSkip: AlexNet that gives both of its wide layers, as DSRH's hash layer takes them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from bitprint.nets.alexnet import AlexNet


class AlexNetSkip(AlexNet):
    """AlexNet with the second wide layer (fc7, after dropout) and the first (fc6) side by side.

    A layer on top that sees fc6 directly learns from what fc7 has lost on its way to categories.
    Weights are those of `AlexNet`, and load from the same files.
    """

    name: ClassVar[str] = "alexnet-skip"

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 2 * 4096

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, 224, 224) -> (n, 8192), not negative: fc7, then fc6."""
        fc6 = self.classifier[:3](self.features(inputs).flatten(1))
        fc7 = self.classifier[3:](fc6)
        return torch.cat([torch.dropout(fc7, 0.5, self.training), fc6], dim=1)
