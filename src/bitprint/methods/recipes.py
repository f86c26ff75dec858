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
_IMAGES_SEEN = 200_000  # in all epochs together: 40 epochs of 5,000
_FEWEST_EPOCHS, _MOST_EPOCHS = 40, 300
_FEATURES: dict[str, Any] = {"trunk_lr": 1e-3, "augment": "none", "weight_decay": 0.3}
_NOISY: dict[str, Any] = {"standardize": True, "noise": 0.5}
_FEWEST_STEPS, _MOST_STEPS = 4000, 8000  # over features
_NARROWEST, _WIDEST, _MOST_WEIGHTS = 512, 2048, 2**20  # of a network over features

_FROZEN: dict[str, Any] = {"trunk_lr": 0.0, "freeze_norms": True, "drop_blocks": 0.0}
_WHOLE: dict[str, Any] = {"trunk_lr": None, "freeze_norms": False}
_UNSUPERVISED: dict[str, Any] = {"cutmix": 0.0}  # it mixes labels
_MORE_AUGMENTATION = "+colour"  # position alone hardly distinguishes two views of an image

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
    'mlp:819'
    """
    if hasher.backbone != "auto":
        return hasher.backbone
    if len(items.shape) == 1 and hasher.frozen:
        return "mlp:0"  # random layers would only blur the features
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
    images_seen = tuned.pop("images_seen", _IMAGES_SEEN)
    own_alone = "default_training" in vars(cls) and not cls.tuned
    common: dict[str, Any] = {}
    if recipe != "original" and not own_alone:
        if recipe == "paper" and kind != "features":
            epochs = _PAPER_EPOCHS[kind][0 if few else 1]
            common = _PAPER | _PAPER_BY_KIND[kind] | {"epochs": epochs}
        else:
            common = _recommended(backbone, kind, items.count, images_seen)
        if cls.views > 1 and kind != "features":
            common["augment"] += _MORE_AUGMENTATION
        if not items.mirrored_alike:
            common = _without_mirroring(common)
        if cls.supervision == "none":
            common |= _UNSUPERVISED
        if cls.frozen:
            common = _WHOLE | common if kind == "scratch" else common | _FROZEN
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


def _recommended(backbone: Any, kind: str, images: int, images_seen: int) -> dict[str, Any]:
    """Training that any deep method does well with.

    A pretrained network with few images is kept close to what it knows; with many it may learn.
    The fewer images there are, the more often each is seen.
    """
    if kind == "features":  # a random start; with too many steps it overfits
        own = _FEATURES | {"epochs": _epochs_over_features(images)}
        return _RECOMMENDED | own | (_NOISY if _is_mlp(backbone) else {})
    epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, images_seen // max(images, 1)))
    if kind == "scratch":
        return _RECOMMENDED | {"epochs": epochs}
    pretrained = _RECOMMENDED | _AVERAGED
    if images > _FEW:
        return pretrained | {"epochs": _EPOCHS_WITH_MANY, "lr": _PRETRAINED_RATE}
    blocks = {"drop_blocks": 0.2} if skips_blocks(backbone) else {}
    return pretrained | _GENTLE | blocks | {"epochs": epochs}


def _epochs_over_features(images: int) -> int:
    """Return the number of epochs of a network over features, which begins with random weights.

    It needs 4,000 steps to learn hundreds of classes, and 160 epochs where that is more, but at
    most 8,000 steps: they take about two minutes on one core.
    """
    steps = -(-max(images, 1) // int(_RECOMMENDED["batch_size"]))  # per epoch
    wanted = min(_MOST_STEPS, max(_FEWEST_STEPS, 160 * steps))
    return min(1000, max(20, wanted // steps))


def _is_mlp(backbone: Any) -> bool:
    return isinstance(backbone, str) and backbone.partition(":")[0] == "mlp"


def _width(inputs: int) -> int:
    """Return the width of the hidden layer over features of this length.

    With 512 units a network cannot tell hundreds of classes apart. The longer the features, the
    fewer units: about a million weights in all.
    """
    return min(_WIDEST, max(_NARROWEST, _MOST_WEIGHTS // inputs))


def _without_mirroring(options: dict[str, Any]) -> dict[str, Any]:
    changes = [change for change in options.get("augment", "none").split("+") if change != "flip"]
    return options | {"augment": "+".join(changes) or "none", "mirror": False}
