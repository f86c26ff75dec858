"""DLBHC: deep learning of binary hash codes, a classifier with a sigmoid layer of K units."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from bitprint.methods._deep import DeepHasher, Tuned, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.training.losses import classification_loss
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class DLBHC(DeepHasher):
    """Deep learning of binary hash codes (Lin, Yang, Hsiao and Chen, CVPR workshops 2015).

    A layer of K sigmoids, ``a = sigmoid(h)``, connects the network and a softmax classifier. The
    loss is the mean classification loss of the batch. The code is ``a >= 0.5``, which is
    ``h >= 0``. No loss term makes the activations binary; see `SSDH`.

    Parameters
    ----------
    bits : int
        K.

    Notes
    -----
    All other options are those of `DeepHasher`.

    As in the paper: structure, loss, codes, and 50,000 steps of 32 images of CIFAR-10 with rate
    0.001, divided by ten after half of the steps, momentum 0.9 and ten times the rate for the
    classifier. The following parts are our choices: the sigmoid layer has the same rate as the
    classifier; the rate follows a cosine schedule; for images with several labels, each class has
    a sigmoid with cross-entropy and its log-odds as the initial offset. Without this offset, nearly
    all outputs would decrease first, which can lead to equal codes for all images. Codes are
    searched by Hamming distance only; the paper then ranks the nearest images by the features of
    the network.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DLBHC(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dlbhc"
    reference = "Lin, Yang, Hsiao and Chen, CVPR workshops 2015"
    default_training = Training(
        epochs=32,
        batch_size=32,
        lr=1e-2,
        trunk_lr=1e-3,
        schedule="cosine",
        momentum=0.9,
        augment="flip",
    )
    tuned: ClassVar[Tuned] = {"recommended few pretrained": {"lr": 1e-3}}

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with K hash outputs and class outputs computed from their sigmoids."""
        return LatentHead(features, self.bits, classes)

    def prepare(self, state: State) -> None:
        """Store the log-odds of each class if images can have several labels."""
        if state.labels.ndim == 2:
            images, count = len(state), state.classes.sum(dim=0)
            state.tensors["odds"] = torch.log((count + 0.5) / (images - count + 0.5))

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the classifier, with the log-odds as offsets."""
        logits = outputs[:, self.bits :] + state.tensors.get("odds", 0.0)
        entropy = classification_loss(logits, rows, state)
        return {"classification": entropy / state.batch_size}


class LatentHead(nn.Module):
    """A hash layer and a linear classifier on its activations.

    The classifier is initialized as in the authors' release of SSDH: weights from N(0, 0.2^2), so
    that the hash layer has a gradient from the first step, and zero biases.

    Parameters
    ----------
    features : int
        Number of backbone features.
    bits, classes : int
        K and c.
    activation : callable
        Maps hash outputs to activations, both of shape (n, K).
    """

    def __init__(
        self,
        features: int,
        bits: int,
        classes: int,
        activation: Callable[[Tensor], Tensor] = torch.sigmoid,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.latent = gaussian_linear(features, bits)
        self.classifier = nn.Linear(bits, classes)
        nn.init.normal_(self.classifier.weight, std=0.2)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, features) to (n, K + c)."""
        hashed = self.latent(features)
        return torch.cat([hashed, self.classifier(self.activation(hashed))], dim=1)
