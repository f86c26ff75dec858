"""Trunk: the interface of all backbones, their registry, and weight initialization."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class Trunk(nn.Module, ABC):
    """A backbone: a network without its last layer, from images or vectors to features.

    ``trunk(trunk.preprocess(batch))`` returns the features of a raw batch. The constructor takes
    only the options of the architecture and draws random weights; `create` can also load weights.

    Attributes
    ----------
    name : str
        Name in the registry, set by `register_backbone`.
    out_features : int
        Number of features that `forward` returns.
    preprocess : Module
        Maps raw items (uint8 images, feature vectors) to the input of `forward`.
    takes_images : bool
        Whether the items are images (True) or feature vectors (False).
    takes_source : bool
        Whether a colon and a file, folder, model id or number can follow the name.
    in_paper : bool
        Whether the DSDH paper, or the authors of a method in its tables, used this network.
    skips_blocks : bool
        Whether it has residual blocks that training can skip, see `Training.drop_blocks`.
    optimized : bool
        Whether it supports channels-last tensors and CUDA graphs.

    Examples
    --------
    >>> import torch
    >>> class MeanColor(Trunk):
    ...     name, out_features, preprocess = "mean-color", 3, nn.Identity()
    ...
    ...     def forward(self, inputs):
    ...         return inputs.float().mean(dim=(1, 2))
    >>> trunk = MeanColor.create(input_shape=(8, 8, 3), source="", pretrained=False)
    >>> images = torch.full((1, 8, 8, 3), 5, dtype=torch.uint8)
    >>> trunk(trunk.preprocess(images)).tolist(), trunk.describe()
    ([[5.0, 5.0, 5.0]], {'name': 'mean-color'})
    >>> MeanColor.pretrained(source=""), trunk.frozen() is trunk
    (False, True)
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
            The part of the name after the colon, such as a file or a model id; can be empty.
        pretrained : bool
            If False, all weights are random.
        """
        return cls()

    @classmethod
    def pretrained(cls, source: str) -> bool:
        """Return whether `create` loads pretrained weights for this `source`."""
        return False

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Preprocessed items -> features of shape (n, out_features)."""

    def frozen(self) -> Trunk:
        """Return a network with the same outputs that may be faster on a CPU, for inference only.

        It has a copy of the current weights. By default the network itself.
        """
        return self

    def describe(self) -> dict[str, Any]:
        """Return the JSON values from which `restore_trunk` builds this architecture."""
        return {"name": self.name}


_Class = TypeVar("_Class", bound=type[Trunk])

_BACKBONES: dict[str, type[Trunk]] = {}


def list_backbones() -> list[str]:
    """Return the names of all backbones.

    Examples
    --------
    >>> from bitprint.nets import list_backbones
    >>> "efficientnet-lite0" in list_backbones()
    True
    """
    return list(_BACKBONES)


def register_backbone(name: str) -> Callable[[_Class], _Class]:
    """Make a network available as `backbone=name` in deep methods, `load` and the command line.

    Use it as a decorator; it sets the `name` of the class. A class that is defined again, for
    example when a notebook cell runs twice, replaces the earlier one; another class with the same
    name raises a ValueError. A process that loads a model with this backbone must register the
    backbone first.

    Parameters
    ----------
    name : str
        A name without spaces, commas or colons.

    Returns
    -------
    callable
        A decorator for a subclass of `Trunk`.

    Examples
    --------
    >>> import torch
    >>> from bitprint.nets import Trunk, create_trunk, register_backbone
    >>> @register_backbone("mean-color")
    ... class MeanColor(Trunk):
    ...     out_features, preprocess = 3, torch.nn.Identity()
    ...
    ...     def forward(self, inputs):
    ...         return inputs.float().mean(dim=(1, 2))
    >>> create_trunk("mean-color", input_shape=(8, 8, 3)).describe()
    {'name': 'mean-color'}
    """
    if not isinstance(name, str) or not re.fullmatch(r"[^\s,:]+", name):
        raise ValueError(f"a backbone needs a name without spaces, commas or colons, got {name!r}")

    if name == "module":  # see `bitprint.nets.module.Module`
        raise ValueError(f"{name!r} is reserved for torch modules: choose another name")

    def register(cls: _Class) -> _Class:
        if not (isinstance(cls, type) and issubclass(cls, Trunk)):
            raise ValueError(f"a backbone must be a subclass of bitprint.nets.Trunk, got {cls!r}")
        known = _BACKBONES.get(name)
        if known is not None and _origin(known) != _origin(cls):
            raise ValueError(
                f"{cls.__name__} needs another name: {name!r} is "
                f"{known.__module__}.{known.__name__}"
            )
        if known is not cls and cls in _BACKBONES.values():
            raise ValueError(f"{cls.__name__} is already registered as {cls.name!r}")
        cls.name = name
        _BACKBONES[name] = cls
        return cls

    return register


def find_backbone(name: Any) -> type[Trunk]:
    """Return the class of a backbone, or raise a ValueError that lists all names."""
    if name not in _BACKBONES:
        raise ValueError(
            f"unknown backbone {name!r}; choose from {', '.join(_BACKBONES)}, "
            "or pass a torch module"
        )
    return _BACKBONES[name]


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


class Uninitialized(TorchFunctionMode):
    """Context in which no random weights are drawn, because weights are read next.

    On the meta device, drawing random weights would also import torch's compiler, which takes more
    than a second.

    Examples
    --------
    >>> with Uninitialized():
    ...     layer = nn.Linear(2, 3)
    >>> layer.weight.shape
    torch.Size([3, 2])
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Return the tensor unchanged instead of drawing random numbers into it."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", None) in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def he_init(network: nn.Module) -> None:
    """Draw all weights for ReLU networks (He et al., 2015): variance 2 / fan-in, biases zero."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
