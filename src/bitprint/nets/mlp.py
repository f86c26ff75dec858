"""MLP: fully connected layers, for items that are feature vectors already."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from bitprint.nets.preprocess import ToFloat
from bitprint.nets.trunk import Trunk, he_init


class MLP(Trunk):
    """Hidden layers with ReLU over vectors of `inputs` numbers.

    Parameters
    ----------
    inputs : int
        Length of a feature vector.
    hidden : sequence of int
        Width of each hidden layer.
    """

    name: ClassVar[str] = "mlp"
    takes_images: ClassVar[bool] = False
    takes_source: ClassVar[bool] = True

    def __init__(self, inputs: int, hidden: Sequence[int] = (512,)) -> None:
        super().__init__()
        if inputs < 1 or not hidden or min(hidden) < 1:
            raise ValueError(
                f"an MLP needs inputs and hidden layers of width >= 1, got {inputs} and {hidden}"
            )
        self.inputs = inputs
        self.hidden = list(hidden)
        self.out_features = self.hidden[-1]
        self.preprocess = ToFloat(inputs)
        layers: list[nn.Module] = []
        for before, after in pairwise([inputs, *self.hidden]):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        he_init(self)

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build it for vectors of length `input_shape[0]`; `source` is the width, if not 512."""
        if not source:
            return cls(input_shape[0])
        if not source.isdecimal():
            raise ValueError(
                f"backbone mlp takes the width of its hidden layer after the colon, as in "
                f"mlp:2048, not {source!r}"
            )
        return cls(input_shape[0], (int(source),))

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, inputs) -> (n, hidden[-1])."""
        features: Tensor = self.layers(inputs)
        return features

    def describe(self) -> dict[str, Any]:
        """Return the name and both widths."""
        return {"name": self.name, "inputs": self.inputs, "hidden": self.hidden}
