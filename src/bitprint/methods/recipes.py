"""Settings that we recommend, beside the authors' own that are the defaults of a method."""

from __future__ import annotations

from typing import Any

RECIPES: dict[str, dict[str, Any]] = {
    # Strengths that do not depend on the number of images, and an optimiser that suits pretrained
    # networks: see DSDH on CIFAR-10 in `results/`.
    "dsdh": {
        "mode": "balanced",
        "epochs": 40,
        "optimizer": "adamw",
        "lr": 1e-3,
        "trunk_lr": 3e-4,
        "schedule": "cosine",
        "weight_decay": 0.01,
        "augment": "flip+shift",
    }
}
"""Options of `bitprint.create` for training the network of a method on one's own images."""

RECIPES_ON_FEATURES: dict[str, dict[str, Any]] = {
    # A small network that begins at random: cheap, and in need of more steps at a higher rate.
    "dsdh": RECIPES["dsdh"] | {"epochs": 150, "trunk_lr": 1e-3, "augment": "none"}
}
"""The same for a small network on features."""
