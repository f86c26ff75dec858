"""MLP: fully connected layers for feature vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from bitprint.nets.noise import GaussianNoise
from bitprint.nets.preprocess import Standardize, ToFloat
from bitprint.nets.trunk import Trunk, he_init, register_backbone


@register_backbone("mlp")
class MLP(Trunk):
    """Fully connected layers with ReLU.

    Parameters
    ----------
    inputs : int
        Length of a feature vector.
    hidden : sequence of int
        Width of each hidden layer. Without hidden layers, the features are the inputs.
    standardized : bool
        Whether feature vectors are standardized first, see `standardize`.
    """

    takes_images: ClassVar[bool] = False
    takes_source: ClassVar[bool] = True

    def __init__(
        self, inputs: int, hidden: Sequence[int] = (512,), *, standardized: bool = False
    ) -> None:
        super().__init__()
        if min([inputs, *hidden]) < 1:
            raise ValueError(
                f"an MLP needs inputs and hidden layers of width >= 1, got {inputs} and {hidden}"
            )
        self.inputs = inputs
        self.hidden = list(hidden)
        self.out_features = [inputs, *hidden][-1]
        self.preprocess = Standardize(inputs) if standardized else ToFloat(inputs)
        self.noise = GaussianNoise()
        layers: list[nn.Module] = []
        for before, after in pairwise([inputs, *self.hidden]):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        he_init(self)

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build an MLP for vectors of length `input_shape[0]`; `source` is the width, or empty.

        The width 0 stands for no hidden layer.
        """
        if not source:
            return cls(input_shape[0])
        if not source.isdecimal():
            raise ValueError(
                f"backbone mlp takes the width of its hidden layer after the colon, as in "
                f"mlp:2048, got {source!r}"
            )
        width = int(source)
        return cls(input_shape[0], (width,) if width else ())

    def standardize(self, mean: Tensor, std: Tensor) -> None:
        """Subtract `mean` from feature vectors and divide them by `std`, both of shape (inputs,).

        Both are stored with the weights.

        Examples
        --------
        >>> import torch
        >>> mlp = MLP(2)
        >>> mlp.standardize(mean=torch.tensor([1.0, 2.0]), std=torch.tensor([1.0, 4.0]))
        >>> mlp.preprocess(torch.tensor([[2.0, 10.0]])).tolist()
        [[1.0, 2.0]]
        """
        self.preprocess = Standardize(self.inputs)
        self.preprocess.mean.copy_(mean)
        self.preprocess.std.copy_(std)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, inputs) -> (n, out_features)."""
        features: Tensor = self.layers(self.noise(inputs))
        return features

    def describe(self) -> dict[str, Any]:
        """Return the name and both widths."""
        standardized = isinstance(self.preprocess, Standardize)
        about = {"name": self.name, "inputs": self.inputs, "hidden": self.hidden}
        return about | ({"standardized": True} if standardized else {})
