"""Training: optimizer, schedule and augmentation of a deep method."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from bitprint.training.augment import check_augment
from bitprint.utils.arguments import plain


@dataclass(frozen=True)
class Training:
    """Optimizer, schedule and augmentation of one training run.

    The defaults follow the DSDH authors' release: plain SGD with one learning rate for all layers,
    which falls from 1e-2 to 1e-6 on a logarithmic scale, and no augmentation.

    Parameters
    ----------
    epochs : int
        Passes over the training set.
    batch_size : int
        Images per step.
    optimizer : {"sgd", "adamw"}
        Optimizer.
    lr : float
        Highest learning rate of the hash layer.
    trunk_lr : float, optional
        Highest learning rate of the backbone; `lr` by default. With 0 only the head is trained.
    schedule : {"log", "cosine", "constant"}
        "log" decreases by four orders of magnitude, epoch by epoch. "cosine" warms up over the
        first tenth of the steps and then falls to zero, step by step.
    momentum : float
        Momentum of SGD.
    weight_decay : float
        Weight decay, also of biases (as in the authors' release).
    augment : str
        "none", or some of "flip", "shift", "colour" and "erase" joined by plus signs: random
        changes of the images, see `bitprint.training.augment`.
    standardize : bool
        Whether feature vectors are standardized by the mean and the standard deviation of each
        feature of the training set; for the backbone "mlp".
    noise : float
        Standard deviation of Gaussian noise that is added to feature vectors in training, after
        standardization; for the backbone "mlp".
    cutmix : float
        Share of the batches to which CutMix is applied: each image receives a box of another image
        and both labels, weighted by area. See `bitprint.training.cutmix`.
    drop_blocks : float
        Share of the residual blocks that an image skips in training (stochastic depth), see
        `bitprint.nets.stochastic_depth`. Only for EfficientNet-Lite backbones.
    average : float
        Decay of an exponential moving average of the weights, which replaces them after training:
        0.99 averages over about 100 steps. 0 turns averaging off.
    freeze_norms : bool
        Keep batch norms of the backbone in evaluation mode: they normalize by the pretrained
        running statistics and do not update them. For pretrained networks and few images.
    mirror : bool
        Encode an image by the mean of the outputs for it and for its mirror image.
    per_class : int, optional
        Number of consecutive images of one class: with 10, a batch of 100 contains 10 classes. At
        most half of the batch size, so that a batch has at least two classes. By default the order
        is random. In both cases every image occurs once per epoch.
    precision : {"auto", "float32", "bfloat16"}
        Precision of the backbone; "auto" is bfloat16 on a GPU. Hash layer and loss use float32.

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
    standardize: bool = False
    noise: float = 0.0
    cutmix: float = 0.0
    drop_blocks: float = 0.0
    average: float = 0.0
    freeze_norms: bool = False
    mirror: bool = False
    per_class: int | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    def __post_init__(self) -> None:
        for field in fields(self):  # options are stored as JSON, which has no NumPy types
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        for name in ("epochs", "batch_size", "per_class"):
            count = getattr(self, name)
            if name == "per_class" and count is None:
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {count!r}")
        for name in _RATES:
            rate = getattr(self, name)
            if name == "trunk_lr" and rate is None:
                continue
            if not isinstance(rate, int | float) or not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"{name} must be a finite number >= 0, got {rate!r}")
        if self.cutmix > 1:
            raise ValueError(f"cutmix must be <= 1, got {self.cutmix!r}")
        for name in ("average", "drop_blocks"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be < 1, got {getattr(self, name)!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )

        check_augment(self.augment)

    def rate(self, epoch: int, progress: float) -> float:
        """Return the learning rate of the hash layer."""
        return self.lr * self._share(epoch, progress)

    def trunk_rate(self, epoch: int, progress: float) -> float:
        """Return the learning rate of the backbone."""
        highest = self.lr if self.trunk_lr is None else self.trunk_lr
        return highest * self._share(epoch, progress)

    def _share(self, epoch: int, progress: float) -> float:
        """Return the factor on the highest learning rate.

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


_RATES = ("lr", "trunk_lr", "momentum", "weight_decay", "noise", "cutmix", "drop_blocks", "average")
_CHOICES = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("log", "cosine", "constant"),
    "precision": ("auto", "float32", "bfloat16"),
}
