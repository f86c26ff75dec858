"""AlexNet with the layer names of torchvision, and the variant with a skip connection for DSRH."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import ClassVar, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, he_init, register_backbone

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@register_backbone("alexnet")
class AlexNet(Trunk):
    """AlexNet up to the ReLU of its second fully connected layer (fc7).

    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: 64, 192,
    384, 256 and 256 channels, no normalization layers. The input is RGB / 255, normalized by
    ImageNet's mean and standard deviation.
    """

    in_paper: ClassVar[bool] = True
    takes_source: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 4096
        self.preprocess = Preprocess(224, _IMAGENET_MEAN, _IMAGENET_STD, scale=1 / 255)
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
        )
        he_init(self)

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build AlexNet, with the weights of the file `source` if given."""
        trunk = cls()
        if source and pretrained:
            trunk.load_weights(source)
        return trunk

    @classmethod
    def pretrained(cls, source: str) -> bool:
        """Return whether a weights file is given."""
        return bool(source)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Load a torchvision state dict; missing layers stay random and cause a warning.

        Parameters
        ----------
        path : path
            A .safetensors file, or a file of `torch.save` that contains tensors only.
        """
        given = _read_state(Path(path))
        wanted = dict(self.named_parameters())
        # classifier.6 is the 1000-way classification layer.
        given = {name: value for name, value in given.items() if "classifier.6." not in name}
        if not given or not given.keys() <= wanted.keys():
            raise ValueError(f"{path}: not AlexNet weights; expected features.N and classifier.N")
        for name, value in given.items():
            if value.shape != wanted[name].shape:
                raise ValueError(
                    f"{path}: {name} has shape {tuple(value.shape)}, "
                    f"AlexNet has {tuple(wanted[name].shape)}"
                )
        self.load_state_dict(given, strict=False)
        missing = sorted(wanted.keys() - given.keys())
        if missing:
            warnings.warn(f"{path}: missing {', '.join(missing)}; these stay random", stacklevel=2)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, 224, 224) -> (n, 4096), nonnegative."""
        features: Tensor = self.classifier(self.features(inputs).flatten(1))
        return features


@register_backbone("alexnet-skip")
class AlexNetSkip(AlexNet):
    """AlexNet that returns fc7 (after dropout) and fc6 side by side, as in DSRH.

    The hash layer sees fc6 directly and can use information that fc7 has lost. The weights are
    those of `AlexNet` and load from the same files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 2 * 4096

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, 224, 224) -> (n, 8192), nonnegative: fc7, then fc6."""
        fc6 = self.classifier[:3](self.features(inputs).flatten(1))
        fc7 = self.classifier[3:](fc6)
        return torch.cat([torch.dropout(fc7, 0.5, self.training), fc6], dim=1)


def _read_state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise many types
        raise ValueError(f"{path}: not a file of tensors, or damaged") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ValueError(f"{path}: not a state dict of tensors")
    return state
