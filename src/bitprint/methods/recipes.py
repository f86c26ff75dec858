"""Settings that we recommend, beside the authors' own that are the defaults of a method."""

from __future__ import annotations

from typing import Any

_USUAL: dict[str, Any] = {
    "batch_size": 128,
    "optimizer": "adamw",
    "lr": 1e-3,
    "trunk_lr": 3e-4,
    "schedule": "cosine",
    "weight_decay": 0.01,
    "augment": "flip+shift",
}
_STEADY = {"average": 0.99, "mirror": True}
# Keeps what a pretrained network knows while it learns from few images.
_GENTLE = {"freeze_norms": True, "cutmix": 0.5}
_MOST_OF_FEW = 20_000  # a guess between the 5,000 and the 50,000 of the two settings
_EPOCHS_WITH_MANY = 10
_VIEWS = 200_000  # of images, in all epochs: as many as 40 epochs of 5,000 have
_FEWEST_EPOCHS, _MOST_EPOCHS = 40, 300
_FROM_SCRATCH = ("small", "cnnh", "nin", "nin-small")


def recipe(method: str, backbone: str, images: int = 5000) -> dict[str, Any]:
    """Options of `bitprint.create` for one's own images, where we know better than the authors.

    What each part of it brings is in `results/README.md`.

    Parameters
    ----------
    method : str
        Name of a method; for all but DSDH the result is empty.
    backbone : str
        Name of its network, "mlp" for features.
    images : int
        How many there are to learn from.

    Examples
    --------
    >>> recipe("dsdh", "efficientnet-lite0")["mode"], recipe("itq", "mlp")
    ('balanced', {})
    """
    return {"mode": "balanced", **training_recipe(backbone, images)} if method == "dsdh" else {}


def training_recipe(backbone: str, images: int = 5000) -> dict[str, Any]:
    """The part of the recipe that any deep method can be trained by.

    With few images a pretrained network is kept close to what it knows; with many it may learn.
    The fewer there are, the more often each is seen.

    Examples
    --------
    >>> training_recipe("efficientnet-lite0")["drop_blocks"], training_recipe("small")["epochs"]
    (0.2, 40)
    >>> [training_recipe("small", images)["epochs"] for images in (100, 1000, 10_000)]
    [300, 200, 40]
    """
    name = backbone.partition(":")[0]
    if name == "mlp":  # begins at random; with too many steps it learns the images by heart
        steps = -(-max(images, 1) // _USUAL["batch_size"])  # per epoch
        epochs = min(150, max(20, 2000 // steps))
        return _USUAL | {"epochs": epochs, "trunk_lr": 1e-3, "augment": "none"}
    epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, _VIEWS // max(images, 1)))
    if name in _FROM_SCRATCH:
        return _USUAL | {"epochs": epochs}
    if images > _MOST_OF_FEW:
        return _USUAL | _STEADY | {"epochs": _EPOCHS_WITH_MANY}
    blocks = {"drop_blocks": 0.2} if name.startswith("efficientnet-lite") else {}
    return _USUAL | _STEADY | _GENTLE | blocks | {"epochs": epochs}
