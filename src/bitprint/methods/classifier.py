"""Classifier: the honest baseline, an ordinary classifier whose answer is the code."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import DeepHasher, gaussian_linear
from bitprint.methods.dlbhc import DLBHC
from bitprint.training.losses import classification_loss
from bitprint.training.state import State


class Classifier(DeepHasher):
    """A plain classifier; the code of an image is the class it is taken for.

    Where queries and database are of the classes that were trained on, a code that says nothing
    but the predicted class beat the supervised hashing of its time (Sablayrolles, Douze, Usunier
    and Jegou, ICASSP 2017). What a method can do beyond that shows on classes that it has never
    seen: see `bitprint.data.protocols_unseen`.

    Parameters
    ----------
    bits : int
        K. The code is one-hot where K is at least the number of classes; bits beyond that number
        stay off. Shorter codes are the class number in binary, and those below log2 of the number
        of classes keep its last K digits, so that classes share codes.

    Notes
    -----
    All further options are those of `DeepHasher`.

    Trained as `DLBHC`, from which it differs in the code alone. The authors encode the classes of
    the training images as they are known; here they are predicted like all others. Images with
    several labels get the code of the one that is likeliest.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = Classifier(bits=3).fit(np.eye(3), [0, 1, 2])
    >>> (hasher.encode(np.eye(3)).signs() == 1).sum(axis=1).tolist()
    [1, 1, 1]
    """

    name = "classifier"
    reference = "Sablayrolles, Douze, Usunier and Jegou, ICASSP 2017"
    default_training = DLBHC.default_training
    tuned = DLBHC.tuned

    def make_head(self, features: int, classes: int) -> nn.Module:
        """K outputs of -1 and +1, the code of the likeliest class, then one output per class."""
        return CodedClasses(features, self.bits, classes)

    def prepare(self, state: State) -> None:
        """Nothing is kept: every image is judged by itself."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Cross-entropy of the classifier."""
        entropy = classification_loss(outputs[:, self.bits :], rows, state)
        return {"classification": entropy / state.batch_size}


class CodedClasses(nn.Module):
    """A linear classifier, and the code of the class that it names.

    Parameters
    ----------
    features : int
        Width of the trunk.
    bits, classes : int
        K and c.
    """

    codes: Tensor

    def __init__(self, features: int, bits: int, classes: int) -> None:
        super().__init__()
        self.classifier = gaussian_linear(features, classes)
        self.register_buffer("codes", class_codes(classes, bits), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """(n, features) -> (n, K + c)."""
        logits = self.classifier(features)
        return torch.cat([self.codes[logits.argmax(dim=1)], logits], dim=1)


def class_codes(classes: int, bits: int) -> Tensor:
    """Codes of the classes as -1 and +1, shape (c, K): one-hot if they fit, else in binary.

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
