"""Module: any torch module as a trunk."""

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

    The module gets float32 images (n, 3, height, width), or vectors (n, d), and returns features
    of shape (n, d) or (n, d, 1, 1).

    Parameters
    ----------
    module : Module
        It is copied, not changed.
    item_shape : tuple of int
        Shape of one item: (height, width, 3) or (d,).

    Notes
    -----
    Images are preprocessed by the first of these that the module has: an attribute `preprocess`,
    a module from uint8 images (n, height, width, 3) to its input; an attribute `pretrained_cfg` or
    `default_cfg`, as the models of timm have, whose `mean`, `std`, `input_size` and
    `interpolation` apply; else pixels from 0 to 1 are normalized by ImageNet's mean and standard
    deviation, as for torchvision's models, and images keep their size.

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
        with torch.device(weights.device):  # whatever device is the default here
            try:
                self.module = deepcopy(module)
                self.preprocess = _preprocess_for(self.module, item_shape)
                self.out_features = self._count_features(item_shape)
            except Exception as error:  # a module may raise anything
                reason = " ".join(str(error).split())
                raise ValueError(
                    f"the backbone, a {self.kind}, cannot be used on items of shape {item_shape}: "
                    f"{reason}"
                ) from error

    def forward(self, inputs: Tensor) -> Tensor:
        """Preprocessed images or vectors -> (n, out_features)."""
        # Pixels come channel by channel, as from a DataLoader, so that `view` works.
        features: Tensor = self.module(inputs.contiguous())
        return features.flatten(1)

    def describe(self) -> dict[str, Any]:
        """Return the names of this trunk and of the module's class; the module is not stored."""
        return {"name": self.name, "class": self.kind}

    @torch.no_grad()
    def _count_features(self, item_shape: tuple[int, ...]) -> int:
        """Width of the features of one item."""
        modes = [(part, part.training) for part in self.modules()]
        self.eval()
        kind = torch.uint8 if len(item_shape) == 3 else torch.float32
        inputs = self.preprocess(torch.zeros((1, *item_shape), dtype=kind))
        features = self.module(inputs.contiguous())
        for part, training in modes:
            part.training = training
        if not isinstance(features, Tensor):
            raise ValueError(f"it returns a {type(features).__name__}, and must return a tensor")
        if features.ndim < 2 or features.shape[2:].numel() != 1:
            raise ValueError(
                f"it returns features of shape {tuple(features.shape)}, and must return (n, d) or "
                "(n, d, 1, 1): end it with torch.nn.AdaptiveAvgPool2d(1)"
            )
        return int(features.shape[1])


def module_name(module: nn.Module) -> str:
    """Name a module in settings of a run: its class.

    Examples
    --------
    >>> module_name(nn.Linear(2, 3))
    'module:Linear'
    """
    return f"{Module.name}:{type(module).__name__}"


def module_shapes(module: nn.Module) -> dict[str, list[int]]:
    """Shapes of all tensors of a module by their names; a run resumes with the same ones.

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
    """What to do with raw items before the module gets them, see `Module`."""
    if isinstance(own := getattr(module, "preprocess", None), nn.Module):
        return own
    if len(item_shape) == 1:
        return ToFloat(item_shape[0])
    timm = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
    if not isinstance(timm, dict):
        timm = vars(timm)
    _, height, width = timm.get("input_size") or (3, None, None)
    if height != width:
        raise ValueError(f"its images are to be {height} x {width} pixels, which is no square")
    bilinear = timm.get("interpolation") == "bilinear"
    return Preprocess(
        height,
        timm.get("mean") or IMAGENET_MEAN,
        timm.get("std") or IMAGENET_STD,
        interpolation="bilinear" if bilinear else "bicubic",
        scale=1 / 255,
    )
