"""Trunk: the interface of every network, and how those without weights begin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from torch import Tensor, nn


class Trunk(nn.Module, ABC):
    """A network without its last layer: from images (or feature vectors) to features.

    ``trunk(trunk.preprocess(batch))`` gives the features of a raw batch. A constructor takes only
    what describes the architecture and starts from random weights; `create` also finds weights.

    Attributes
    ----------
    name : str
        Its name in the registry.
    out_features : int
        Width of what `forward` returns.
    preprocess : Module
        From raw items (uint8 images, feature vectors) to what `forward` takes.
    takes_images : bool
        Whether its items are images; if not, feature vectors.
    takes_source : bool
        Whether a colon and a file, folder, model id or number may follow its name.
    in_paper : bool
        Whether the DSDH paper, or the authors of a method in its tables, used it.
    skips_blocks : bool
        Whether it has residual blocks that training can skip, see `Training.drop_blocks`.
    optimized : bool
        Whether it can run with its tensors in channels-last order and inside of a CUDA graph.

    Examples
    --------
    >>> import torch
    >>> class MeanColour(Trunk):
    ...     name, out_features, preprocess = "mean-colour", 3, nn.Identity()
    ...
    ...     def forward(self, inputs):
    ...         return inputs.float().mean(dim=(1, 2))
    >>> trunk = MeanColour.create(input_shape=(8, 8, 3), source="", pretrained=False)
    >>> images = torch.full((1, 8, 8, 3), 5, dtype=torch.uint8)
    >>> trunk(trunk.preprocess(images)).tolist(), trunk.describe()
    ([[5.0, 5.0, 5.0]], {'name': 'mean-colour'})
    >>> MeanColour.pretrained(source="")
    False
    """

    name: ClassVar[str]
    takes_images: ClassVar[bool] = True
    takes_source: ClassVar[bool] = False
    in_paper: ClassVar[bool] = False
    skips_blocks: ClassVar[bool] = False
    optimized: ClassVar[bool] = True

    out_features: int
    preprocess: nn.Module

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build the network for items of `input_shape`, with pretrained weights if it has any.

        Parameters
        ----------
        input_shape : tuple of int
            (height, width, 3), or (d,).
        source : str
            What followed the colon in the backbone's name: a file or a model id; may be empty.
        pretrained : bool
            False leaves every weight random.
        """
        return cls()

    @classmethod
    def pretrained(cls, source: str) -> bool:
        """Whether `create` finds pretrained weights, given what follows the colon in the name."""
        return False

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Preprocessed items -> features of shape (n, out_features)."""

    def describe(self) -> dict[str, Any]:
        """Return what `restore_trunk` needs to build this architecture, as plain JSON values."""
        return {"name": self.name}


def he_init(network: nn.Module) -> None:
    """Draw all weights for ReLU networks (He et al., 2015): variance 2 / fan-in, biases zero."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
