"""Recipes: the settings of a deep method for all options that are not given.

There are three. "recommended" trains a method as well as we know how. "paper" keeps the loss and
the weights of the method's paper and trains all methods with one budget, so that the rows of a
table can be compared. "original" repeats the training of the method's authors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from bitprint.data.feed import item_shape
from bitprint.data.images import ImageSet
from bitprint.data.inputs import Source
from bitprint.nets import backbone_kind, skips_blocks

if TYPE_CHECKING:
    from bitprint.methods._deep import DeepHasher

RECIPES = ("recommended", "paper", "original")

DEFAULT_BACKBONE = "efficientnet-lite0"
_SMALLEST_SIDE = 16  # pixels; smaller images get the small network

_FEW = 20_000  # images, between the 5,000 and the 50,000 of the paper's two settings

_RECOMMENDED: dict[str, Any] = {
    "batch_size": 128,
    "optimizer": "adamw",
    "lr": 1e-3,
    "trunk_lr": 3e-4,
    "schedule": "cosine",
    "weight_decay": 0.01,
    "augment": "flip+shift",
}
_AVERAGED = {"average": 0.99, "mirror": True}
_GENTLE = {"freeze_norms": True, "cutmix": 0.5}
_PRETRAINED_RATE = 1e-4  # of the hash layer, unless the method has its own
_EPOCHS_WITH_MANY = 10
_VIEWS = 200_000  # images in all epochs together: 40 epochs of 5,000
_FEWEST_EPOCHS, _MOST_EPOCHS = 40, 300
_NARROWEST, _WIDEST, _MOST_WEIGHTS = 512, 2048, 2**24  # of a network over features

_PAPER: dict[str, Any] = {"optimizer": "adamw", "schedule": "cosine", "augment": "flip+shift"}
_PAPER_BY_KIND: dict[str, dict[str, Any]] = {
    "pretrained": {"lr": _PRETRAINED_RATE, "trunk_lr": 3e-4, "weight_decay": 0.01},
    "scratch": {"lr": 1e-3, "weight_decay": 0.05},
}
_PAPER_EPOCHS = {"pretrained": (20, 6), "scratch": (100, 20)}  # few images, many images


@dataclass(frozen=True)
class Items:
    """What a recipe depends on besides the method: the training items.

    Parameters
    ----------
    shape : tuple of int
        Shape of one item: (height, width, 3) or (d,).
    count : int
        How many there are.
    backbone : str, optional
        The network that the image set suggests.
    mirrored_alike : bool
        Whether a mirrored image means the same.
    """

    shape: tuple[int, ...]
    count: int
    backbone: str | None = None
    mirrored_alike: bool = True

    @classmethod
    def of(cls, source: Source) -> Self:
        """Describe an image set or an array of features."""
        if isinstance(source, ImageSet):
            return cls(item_shape(source), len(source), source.backbone, source.mirrored_alike)
        return cls(item_shape(source), len(source))


def check_recipe(name: str) -> str:
    """Return the name of a recipe, or raise a ValueError.

    Examples
    --------
    >>> check_recipe("recomended")
    Traceback (most recent call last):
    ValueError: recipe must be recommended, paper or original, got 'recomended'
    """
    if name not in RECIPES:
        raise ValueError(f"recipe must be recommended, paper or original, got {name!r}")
    return name


def choose_backbone(hasher: DeepHasher, items: Items) -> Any:
    """Return the backbone of a hasher for these items: its own choice, or what "auto" stands for.

    Examples
    --------
    >>> from bitprint.methods import create
    >>> photos, digits = Items((256, 256, 3), 100), Items((8, 8, 3), 1797)
    >>> choose_backbone(create("dsdh", 12), photos), choose_backbone(create("dsdh", 12), digits)
    ('efficientnet-lite0', 'small')
    >>> choose_backbone(create("ninh", 12), photos)
    'nin-small:600'
    >>> choose_backbone(create("dsdh", 12), Items((1280,), 5000))
    'mlp:2048'
    """
    if hasher.backbone != "auto":
        return hasher.backbone
    if len(items.shape) == 1:
        return f"mlp:{_width(items.shape[0])}" if hasher.recipe == "recommended" else "mlp"
    if min(items.shape[:2]) < _SMALLEST_SIDE:
        return "small"
    return hasher.own_backbone() or items.backbone or DEFAULT_BACKBONE


def recipe_options(
    cls: type[DeepHasher], recipe: str, backbone: Any, items: Items
) -> dict[str, Any]:
    """Options of a method by a recipe: fields of `Training`, and its own.

    A method that names its own `default_training` and no `tuned` options is trained by the former
    under every recipe.

    Parameters
    ----------
    cls : type of DeepHasher
    recipe : {"recommended", "paper", "original"}
    backbone : str or Module
    items : Items

    Examples
    --------
    >>> from bitprint.methods import method
    >>> options = recipe_options(method("dsdh"), "recommended", "mlp", Items((512,), 5000))
    >>> options["mode"], options["optimizer"], options["lr"]
    ('balanced', 'adamw', 0.001)
    """
    kind = "features" if len(items.shape) == 1 else backbone_kind(backbone)
    few = items.count <= _FEW
    situation = {check_recipe(recipe), kind, "few" if few else "many"}
    if isinstance(backbone, str):
        situation.add(backbone.partition(":")[0])
    tuned: dict[str, Any] = {}
    for key, options in cls.tuned.items():
        words = set(key.split())
        if words <= situation and (recipe != "original" or "original" in words):
            tuned |= options
    views = tuned.pop("views", _VIEWS)
    own_alone = "default_training" in vars(cls) and not cls.tuned
    common: dict[str, Any] = {}
    if recipe != "original" and not own_alone:
        if recipe == "paper" and kind != "features":
            epochs = _PAPER_EPOCHS[kind][0 if few else 1]
            common = _PAPER | _PAPER_BY_KIND[kind] | {"epochs": epochs}
        else:
            common = _recommended(backbone, kind, items.count, views)
        if not items.mirrored_alike:
            common = _without_mirroring(common)
    return asdict(cls.default_training) | common | tuned


def settle(hasher: DeepHasher, items: Items) -> DeepHasher:
    """Return a copy of a hasher in which every option has its value for these items.

    Options that are given stay. Then come the fields of its `training`, if that is given, and
    then the recipe.

    Examples
    --------
    >>> from bitprint.methods import create
    >>> settled = settle(create("dsdh", bits=48, epochs=3), Items((256, 256, 3), 5000))
    >>> settled.mode, settled.backbone, settled.training.epochs, settled.training.lr
    ('balanced', 'efficientnet-lite0', 3, 0.001)
    """
    from copy import copy

    settled = copy(hasher)
    settled.backbone = choose_backbone(hasher, items)
    options = recipe_options(type(hasher), hasher.recipe, settled.backbone, items)
    settled.training = hasher._training(options)
    for name in options.keys() - asdict(settled.training).keys():
        if getattr(hasher, name) is None:
            setattr(settled, name, options[name])
    return settled


def _recommended(backbone: Any, kind: str, images: int, views: int) -> dict[str, Any]:
    """Training that any deep method does well with.

    A pretrained network with few images is kept close to what it knows; with many it may learn.
    The fewer images there are, the more often each is seen.
    """
    if kind == "features":  # a random start; with too many steps it overfits
        steps = -(-max(images, 1) // _RECOMMENDED["batch_size"])  # per epoch
        epochs = min(150, max(20, 2000 // steps))
        return _RECOMMENDED | {"epochs": epochs, "trunk_lr": 1e-3, "augment": "none"}
    epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, views // max(images, 1)))
    if kind == "scratch":
        return _RECOMMENDED | {"epochs": epochs}
    pretrained = _RECOMMENDED | _AVERAGED
    if images > _FEW:
        return pretrained | {"epochs": _EPOCHS_WITH_MANY, "lr": _PRETRAINED_RATE}
    blocks = {"drop_blocks": 0.2} if skips_blocks(backbone) else {}
    return pretrained | _GENTLE | blocks | {"epochs": epochs}


def _width(inputs: int) -> int:
    """Width of the hidden layer over features of this length.

    With 512 units a network cannot tell hundreds of classes apart. Long features, such as the
    pixels of large images, get fewer units, so that the network stays small.
    """
    return min(_WIDEST, max(_NARROWEST, _MOST_WEIGHTS // inputs))


def _without_mirroring(options: dict[str, Any]) -> dict[str, Any]:
    changes = [change for change in options.get("augment", "none").split("+") if change != "flip"]
    return options | {"augment": "+".join(changes) or "none", "mirror": False}
