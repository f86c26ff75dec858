"""Training: how a deep method is trained, apart from what it minimises."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from bitprint.arguments import plain
from bitprint.training.augment import check_augment


@dataclass(frozen=True)
class Training:
    """Optimiser, schedule and augmentation of one training run.

    The defaults are those of the DSDH authors' release: plain SGD with one rate for all layers,
    falling from 1e-2 to 1e-6 on a logarithmic scale, no augmentation.

    Parameters
    ----------
    epochs : int
        Passes over the training set.
    batch_size : int
        Images per step.
    optimizer : {"sgd", "adamw"}
        The update rule.
    lr : float
        Highest learning rate of the hash layer.
    trunk_lr : float, optional
        Highest learning rate of the trunk; `lr` by default.
    schedule : {"log", "cosine", "constant"}
        "log" falls by four decades, epoch by epoch; "cosine" warms up over the first tenth of the
        steps and then falls to zero, step by step.
    momentum : float
        Momentum of SGD.
    weight_decay : float
        Weight decay, on biases too (as the authors do).
    augment : str
        "none", or some of "flip", "shift", "colour" and "erase" joined by plus signs: random
        changes of the images, see `bitprint.training.augment`.
    cutmix : float
        Share of the batches whose images carry a box of another image, and count in proportion to
        its size as both: see `bitprint.training.cutmix`.
    drop_blocks : float
        Share of the residual blocks that an image skips in training, see
        `bitprint.nets.stochastic_depth`; for networks that have some: EfficientNet-Lite.
    average : float
        Where it is not 0, the network at the end is a running average of all networks on the
        way, of which this share stays at each step: 0.99 looks back over some hundred steps.
    freeze_norms : bool
        Normalise by the running averages that batch norms come with, and leave those as they are:
        for pretrained networks and few images.
    mirror : bool
        Encode an image by the mean of the outputs for it and for its mirror image.
    per_class : int, optional
        How many images of one class follow each other, so that a batch of 100 with 10 of a class
        holds ten classes; never more than half a batch, so that each has two classes at least. By
        default the order is random. Either way an epoch is every image once.
    precision : {"auto", "float32", "bfloat16"}
        Arithmetic of the trunk; "auto" is bfloat16 on a GPU. Hash layer and loss are float32.

    Examples
    --------
    >>> Training(epochs=3).rate(epoch=1, progress=0.5)
    0.0001
    >>> training = Training(lr=0.01, trunk_lr=0.001, schedule="constant")
    >>> training.rate(epoch=7, progress=0.5), training.trunk_rate(epoch=7, progress=0.5)
    (0.01, 0.001)
    """

    epochs: int = 150
    batch_size: int = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 1e-2
    trunk_lr: float | None = None
    schedule: Literal["log", "cosine", "constant"] = "log"
    momentum: float = 0.0
    weight_decay: float = 5e-4
    augment: str = "none"
    cutmix: float = 0.0
    drop_blocks: float = 0.0
    average: float = 0.0
    freeze_norms: bool = False
    mirror: bool = False
    per_class: int | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    def __post_init__(self) -> None:
        for field in fields(self):  # a model's options are written as JSON, which has no NumPy
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        for name in ("epochs", "batch_size", "per_class"):
            count = getattr(self, name)
            if name == "per_class" and count is None:
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a whole number of at least 1")
        for name in _RATES:
            rate = getattr(self, name)
            if name == "trunk_lr" and rate is None:
                continue
            if not isinstance(rate, int | float) or not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"{name} must be a finite number of at least 0, got {rate!r}")
        if self.cutmix > 1:
            raise ValueError(f"cutmix must be at most 1, got {self.cutmix!r}")
        for name in ("average", "drop_blocks"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1, got {getattr(self, name)!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )

        check_augment(self.augment)

    def rate(self, epoch: int, progress: float) -> float:
        """Learning rate of the hash layer."""
        return self.lr * self._share(epoch, progress)

    def trunk_rate(self, epoch: int, progress: float) -> float:
        """Learning rate of the trunk."""
        highest = self.lr if self.trunk_lr is None else self.trunk_lr
        return highest * self._share(epoch, progress)

    def _share(self, epoch: int, progress: float) -> float:
        """Share of the highest rate.

        Parameters
        ----------
        epoch : int
            Epochs finished.
        progress : float
            Share of all steps finished, in [0, 1).
        """
        if self.schedule == "log":
            return float(10 ** (-4 * epoch / max(1, self.epochs - 1)))
        if self.schedule == "cosine":
            warm_up = min(1.0, (progress + 1e-3) / 0.1)
            fall = 0.5 * (1 + math.cos(math.pi * max(0.0, progress - 0.1) / 0.9))
            return warm_up * fall
        return 1.0


_RATES = ("lr", "trunk_lr", "momentum", "weight_decay", "cutmix", "drop_blocks", "average")
_CHOICES = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("log", "cosine", "constant"),
    "precision": ("auto", "float32", "bfloat16"),
}
