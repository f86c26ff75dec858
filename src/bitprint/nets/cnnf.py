"""CNN-F: the backbone of the DSDH paper, with weights from imagenet-vgg-f.mat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bitprint.nets.matconvnet import MatLayer, MatNetwork, read_matconvnet
from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, he_init, register_backbone

_IMAGENET_MEAN = (123.68, 116.779, 103.939)

# fmt: off
_KINDS = [
    "conv", "relu", "lrn", "pool",
    "conv", "relu", "lrn", "pool",
    "conv", "relu", "conv", "relu", "conv", "relu", "pool",
    "conv", "relu", "conv", "relu",  # fc6 and fc7 are convolutions in the file
]
# fmt: on

# Stride and padding of the layers with weights.
_WEIGHTED = {
    "conv1": (4, 0),
    "conv2": (1, 2),
    "conv3": (1, 1),
    "conv4": (1, 1),
    "conv5": (1, 1),
    "fc6": (1, 0),
    "fc7": (1, 0),
}


@register_backbone("cnnf")
class CNNF(Trunk):
    """CNN-F (also VGG-F) up to the ReLU of fc7.

    Chatfield et al., "Return of the Devil in the Details", BMVC 2014. The order in a block is
    convolution, ReLU, normalization, pooling. With the default widths there are 56,737,536
    parameters. The input is RGB, 0..255, minus a mean image.

    Parameters
    ----------
    channels : sequence of 5 int
        Output channels of the convolutions.
    hidden : int
        Width of fc6 and fc7.
    size : int
        Height and width of the input.
    normalization : sequence of 4 numbers
        n, kappa, alpha and beta of x / (kappa + alpha * sum of n squares) ** beta; alpha as in
        MatConvNet, not divided by n.
    """

    in_paper: ClassVar[bool] = True
    takes_source: ClassVar[bool] = True

    def __init__(
        self,
        channels: Sequence[int] = (64, 256, 256, 256, 256),
        hidden: int = 4096,
        size: int = 224,
        normalization: Sequence[float] = (5, 2, 1e-4, 0.75),
    ) -> None:
        super().__init__()
        self.channels = list(channels)
        self.hidden = self.out_features = hidden
        self.size = size
        self.normalization = list(normalization)
        mean_image = torch.tensor(_IMAGENET_MEAN).reshape(3, 1, 1).expand(3, size, size)
        self.preprocess = Preprocess(size, mean_image)

        one, two, three, four, five = self.channels
        self.conv1 = nn.Conv2d(3, one, 11, stride=4)
        self.conv2 = nn.Conv2d(one, two, 5, padding=2)
        self.conv3 = nn.Conv2d(two, three, 3, padding=1)
        self.conv4 = nn.Conv2d(three, four, 3, padding=1)
        self.conv5 = nn.Conv2d(four, five, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        n, kappa, alpha, beta = self.normalization
        # PyTorch divides alpha by n.
        self.normalize = nn.LocalResponseNorm(int(n), alpha=alpha * n, beta=beta, k=kappa)
        # ceil_mode equals the file's padding by one row below and one column on the right.
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        side = _pooled(_pooled(_pooled((size - 11) // 4 + 1)))
        self.fc6 = nn.Linear(five * side * side, hidden)
        self.fc7 = nn.Linear(hidden, hidden)
        he_init(self)

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build CNN-F, with the weights of the MatConvNet file `source` if given."""
        return cls.from_mat(source) if source and pretrained else cls()

    @classmethod
    def pretrained(cls, source: str) -> bool:
        """Return whether a weights file is given."""
        return bool(source)

    @classmethod
    def from_mat(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Build CNN-F with the weights, normalization and mean image of imagenet-vgg-f.mat.

        Parameters
        ----------
        path : path
            The file, in either of the layouts published by MatConvNet.
        **options
            Widths and size as in the constructor, if the file contains a narrower network.
        """
        network = read_matconvnet(path)
        kinds = [layer.kind for layer in network.layers if layer.kind != "dropout"]
        if kinds[: len(_KINDS)] != _KINDS:
            raise ValueError(f"{path}: not the layers of CNN-F, got {' '.join(kinds)}")
        normalization = [layer.normalization for layer in network.layers if layer.kind == "lrn"]
        if normalization[0] is None or normalization[0] != normalization[1]:
            raise ValueError(f"{path}: the normalization layers must be equal, got {normalization}")
        trunk = cls(normalization=normalization[0], **options)
        trunk._copy_from(network, path)
        return trunk

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, hidden), nonnegative."""
        x = self.pool(self.normalize(self.relu(self.conv1(inputs))))
        x = self.pool(self.normalize(self.relu(self.conv2(x))))
        x = self.relu(self.conv3(x))
        x = self.relu(self.conv4(x))
        x = self.pool(self.relu(self.conv5(x)))
        x = self.relu(self.fc6(x.flatten(1)))
        features: Tensor = self.relu(self.fc7(x))
        return features

    def describe(self) -> dict[str, Any]:
        """Return the name, the widths, the size and the normalization."""
        return {
            "name": self.name,
            "channels": self.channels,
            "hidden": self.hidden,
            "size": self.size,
            "normalization": self.normalization,
        }

    @torch.no_grad()
    def _copy_from(self, network: MatNetwork, path: str | os.PathLike[str]) -> None:
        """Copy weights and mean image after checking their shapes."""
        layers = {layer.name: layer for layer in network.layers}
        for name, (stride, pad) in _WEIGHTED.items():
            if name not in layers:
                raise ValueError(f"{path}: layer {name} of CNN-F is missing")
            layer, target = layers[name], self.get_submodule(name)
            if layer.stride not in (None, (stride,) * 2) or layer.pad not in (None, (pad,) * 4):
                raise ValueError(
                    f"{path}: {name} has stride {layer.stride} and pad {layer.pad}, "
                    f"CNN-F has {stride} and {pad}"
                )
            _copy_weights(layer, target.get_parameter("weight"), target.get_parameter("bias"), path)
        mean = torch.from_numpy(network.mean)
        if mean.shape[1:] not in ((1, 1), (self.size, self.size)):
            raise ValueError(
                f"{path}: the mean image has shape {tuple(mean.shape)}, "
                f"but the input of CNN-F is {self.size} x {self.size}"
            )
        buffer = self.preprocess.get_buffer("mean")
        buffer.copy_(mean.expand_as(buffer))


def _copy_weights(
    layer: MatLayer, weight: Tensor, bias: Tensor, path: str | os.PathLike[str]
) -> None:
    assert layer.filters is not None
    assert layer.biases is not None
    filters, biases = torch.from_numpy(layer.filters), torch.from_numpy(layer.biases)
    if weight.ndim == 2:  # fully connected: flatten channels, rows and columns, in this order
        filters = filters.flatten(1)
    if filters.shape != weight.shape or biases.shape != bias.shape:
        raise ValueError(
            f"{path}: {layer.name} has filters of shape {layer.filters.shape} and "
            f"{len(biases)} biases, CNN-F has {tuple(weight.shape)} and {len(bias)}"
        )
    weight.copy_(filters)
    bias.copy_(biases)


def _pooled(size: int) -> int:
    return -(-(size - 3) // 2) + 1
