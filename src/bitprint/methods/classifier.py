"""Classifier: a baseline whose code is the predicted class."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import DeepHasher, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.methods.dlbhc import DLBHC
from bitprint.training.losses import classification_loss
from bitprint.training.state import State


@register_method
class Classifier(DeepHasher):
    """A classifier; the code of an image is its predicted class.

    If queries and database contain the training classes only, codes of the predicted class
    outperformed the supervised hashing methods of 2017 (Sablayrolles, Douze, Usunier and Jegou,
    ICASSP 2017). Differences between methods show on classes that are not in the training set, see
    `bitprint.data.protocols_unseen`.

    Parameters
    ----------
    bits : int
        K. If K is at least the number of classes, the code is one-hot and unused bits are off.
        Otherwise the code is the class number in binary. If K is less than log2 of the number of
        classes, the code is the last K binary digits, so classes share codes.

    Notes
    -----
    All other options are those of `DeepHasher`.

    The training is that of `DLBHC`; only the codes differ. The authors encode the known classes of
    the training images; here they are predicted as for all other images. For images with several
    labels, the code is the most likely class.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = Classifier(bits=3).fit(np.eye(3), [0, 1, 2])
    >>> (hasher.encode(np.eye(3)).signs() == 1).sum(axis=1).tolist()
    [1, 1, 1]
    """

    name = "classifier"
    group = "baseline"
    reference = "Sablayrolles, Douze, Usunier and Jegou, ICASSP 2017"
    default_training = DLBHC.default_training
    tuned = DLBHC.tuned

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with the code of the most likely class, -1 and +1, and class outputs."""
        return CodedClasses(features, self.bits, classes)

    def prepare(self, state: State) -> None:
        """Do nothing: the loss needs no buffers."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the classifier."""
        entropy = classification_loss(outputs[:, self.bits :], rows, state)
        return {"classification": entropy / state.batch_size}


class CodedClasses(nn.Module):
    """A linear classifier and the code of its predicted class.

    Parameters
    ----------
    features : int
        Number of backbone features.
    bits, classes : int
        K and c.
    """

    codes: Tensor

    def __init__(self, features: int, bits: int, classes: int) -> None:
        super().__init__()
        self.classifier = gaussian_linear(features, classes)
        self.register_buffer("codes", class_codes(classes, bits), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, features) to (n, K + c)."""
        logits = self.classifier(features)
        return torch.cat([self.codes[logits.argmax(dim=1)], logits], dim=1)


def class_codes(classes: int, bits: int) -> Tensor:
    """Return the codes of the classes as -1 and +1, shape (c, K): one-hot if K >= c, else binary.

    Examples
    --------
    >>> class_codes(2, 3).tolist()
    [[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]]
    >>> class_codes(4, 2).tolist()
    [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    """
    numbers = torch.arange(classes)
    if bits >= classes:
        digits = functional.one_hot(numbers, bits)
    else:
        places = torch.arange(bits - 1, -1, -1)
        digits = numbers[:, None] >> places & 1
    return 2.0 * digits - 1
