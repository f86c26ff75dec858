"""DLBHC: deep learning of binary hash codes, a classifier with a narrow layer of sigmoids."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from bitprint.methods._deep import DeepHasher, Tuned, gaussian_linear
from bitprint.training.losses import classification_loss
from bitprint.training.plan import Training
from bitprint.training.state import State


class DLBHC(DeepHasher):
    """Deep learning of binary hash codes (Lin, Yang, Hsiao and Chen, CVPR workshops 2015).

    Between the network and a softmax classifier stands a layer of K sigmoids, ``a = sigmoid(h)``.
    All is trained by classification alone, as a mean over the batch; the code is ``a >= 0.5``, so
    ``h >= 0``. Nothing asks activations to be near 0 or 1: see `SSDH`, which does.

    Parameters
    ----------
    bits : int
        K.

    Notes
    -----
    All further options are those of `DeepHasher`.

    The original's: structure, loss, code, and 50,000 steps of 32 images of CIFAR-10, at rate
    0.001 divided by ten half-way, with momentum 0.9. The classifier learns ten times as fast as
    all below it. Choices here: the layer of sigmoids learns as fast as the classifier, the rate
    falls along a cosine, and images with several labels have a sigmoid and its cross-entropy for
    each class, beginning at the log-odds of the class: from zero, nearly all outputs would have to
    fall first, and the quickest way is one and the same code for all images. Codes are searched by
    Hamming distance alone: the original then sorts the nearest by the features of its network.

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
        """K hash outputs, then one output per class that is computed from their sigmoids."""
        return LatentHead(features, self.bits, classes)

    def prepare(self, state: State) -> None:
        """Keep the log-odds of each class, where images may have several."""
        if state.labels.ndim == 2:
            images, count = len(state), state.classes.sum(dim=0)
            state.tensors["odds"] = torch.log((count + 0.5) / (images - count + 0.5))

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Cross-entropy of the classifier, which knows from the start how rare each class is."""
        logits = outputs[:, self.bits :] + state.tensors.get("odds", 0.0)
        entropy = classification_loss(logits, rows, state)
        return {"classification": entropy / state.batch_size}


class LatentHead(nn.Module):
    """A hash layer, and a linear classifier on its sigmoids.

    Weights begin as in the authors' release of SSDH: N(0, 0.2^2) in the classifier, so that the
    hash layer learns from the first step on, with biases of zero.

    Parameters
    ----------
    features : int
        Width of the trunk.
    bits, classes : int
        K and c.
    """

    def __init__(self, features: int, bits: int, classes: int) -> None:
        super().__init__()
        self.latent = gaussian_linear(features, bits)
        self.classifier = nn.Linear(bits, classes)
        nn.init.normal_(self.classifier.weight, std=0.2)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, features: Tensor) -> Tensor:
        """(n, features) -> (n, K + c)."""
        hashed = self.latent(features)
        return torch.cat([hashed, self.classifier(torch.sigmoid(hashed))], dim=1)
