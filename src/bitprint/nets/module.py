"""Module: any torch module as a backbone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bitprint.nets.preprocess import Preprocess, ToFloat
from bitprint.nets.trunk import Trunk

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Module(Trunk):
    """A copy of a module that maps images or vectors to features.

    The module receives float32 images (n, 3, height, width) or vectors (n, d), and returns
    features of shape (n, d) or (n, d, 1, 1).

    Parameters
    ----------
    module : Module
        It is copied and not modified.
    item_shape : tuple of int
        Shape of one item: (height, width, 3) or (d,).

    Notes
    -----
    The preprocessing of images is the first of these that applies:

    - an attribute `preprocess` of the module, itself a module that maps uint8 images
      (n, height, width, 3) to the input
    - an attribute `pretrained_cfg` or `default_cfg`, as in timm models, with `mean`, `std`,
      `input_size` and `interpolation`
    - pixels from 0 to 1 are normalized by ImageNet's mean and standard deviation, as for
      torchvision models, and images keep their size

    Examples
    --------
    >>> body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1))
    >>> trunk = Module(body, (32, 32, 3))
    >>> trunk.out_features, trunk.describe()
    (8, {'name': 'module', 'class': 'Sequential'})
    >>> trunk(trunk.preprocess(torch.zeros((5, 32, 32, 3), dtype=torch.uint8))).shape
    torch.Size([5, 8])
    """

    name: ClassVar[str] = "module"
    optimized: ClassVar[bool] = False

    def __init__(self, module: nn.Module, item_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.kind = type(module).__name__
        weights = next(module.parameters(), torch.empty(0))
        with torch.device(weights.device):  # not the default device
            try:
                self.module = deepcopy(module)
                self.preprocess = _preprocess_for(self.module, item_shape)
                self.out_features = self._count_features(item_shape)
            except Exception as error:  # a module can raise anything
                reason = " ".join(str(error).split())
                raise ValueError(
                    f"backbone {self.kind} does not support items of shape {item_shape}: {reason}"
                ) from error

    def forward(self, inputs: Tensor) -> Tensor:
        """Preprocessed images or vectors -> (n, out_features)."""
        # Contiguous NCHW tensors, as from a DataLoader, so that `view` works.
        features: Tensor = self.module(inputs.contiguous())
        return features.flatten(1)

    def describe(self) -> dict[str, Any]:
        """Return the name and the class of the module; the module itself is not stored."""
        return {"name": self.name, "class": self.kind}

    @torch.no_grad()
    def _count_features(self, item_shape: tuple[int, ...]) -> int:
        """Return the number of features of one item."""
        modes = [(part, part.training) for part in self.modules()]
        self.eval()
        kind = torch.uint8 if len(item_shape) == 3 else torch.float32
        inputs = self.preprocess(torch.zeros((1, *item_shape), dtype=kind))
        features = self.module(inputs.contiguous())
        for part, training in modes:
            part.training = training
        if not isinstance(features, Tensor):
            raise ValueError(f"it must return a tensor, got {type(features).__name__}")
        if features.ndim < 2 or features.shape[2:].numel() != 1:
            raise ValueError(
                "it must return features of shape (n, d) or (n, d, 1, 1), got "
                f"{tuple(features.shape)}: end it with torch.nn.AdaptiveAvgPool2d(1)"
            )
        return int(features.shape[1])


def module_name(module: nn.Module) -> str:
    """Return the name of a module in the settings of a run.

    Examples
    --------
    >>> module_name(nn.Linear(2, 3))
    'module:Linear'
    """
    return f"{Module.name}:{type(module).__name__}"


def module_shapes(module: nn.Module) -> dict[str, list[int]]:
    """Return the shapes of all tensors of a module by name; a resumed run must have the same.

    Examples
    --------
    >>> module_shapes(nn.Linear(2, 3))
    {'weight': [3, 2], 'bias': [3]}
    """
    return {
        name: list(getattr(value, "shape", ()))  # a lazy layer has no shapes yet
        for name, value in module.state_dict().items()
    }


def _preprocess_for(module: nn.Module, item_shape: tuple[int, ...]) -> nn.Module:
    """Return the preprocessing of a module, see `Module`."""
    if isinstance(own := getattr(module, "preprocess", None), nn.Module):
        return own
    if len(item_shape) == 1:
        return ToFloat(item_shape[0])
    timm = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
    if not isinstance(timm, dict):
        timm = vars(timm)
    _, height, width = timm.get("input_size") or (3, None, None)
    if height != width:
        raise ValueError(f"its input size must be square, got {height} x {width}")
    bilinear = timm.get("interpolation") == "bilinear"
    return Preprocess(
        height,
        timm.get("mean") or IMAGENET_MEAN,
        timm.get("std") or IMAGENET_STD,
        interpolation="bilinear" if bilinear else "bicubic",
        scale=1 / 255,
    )
