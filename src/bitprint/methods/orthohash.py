"""OrthoHash: one loss, the softmax of cosines between outputs and fixed codes of the classes."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.centers import cosines, random_centers
from bitprint.nets.batch_norm import normalized_linear
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class OrthoHash(DeepHasher):
    """OrthoHash, deep hashing with a single cosine loss (Hoe et al., NeurIPS 2021).

    A batch norm after the hash layer balances the bits. Each class has a fixed code ``o_c``, and
    the cosines of an output with them are the logits of a softmax with a margin::

        min  -mean_i sum_c y_ic log softmax_c( s (cos(h_i, o_c') - m y_ic') )

    with ``y_ic = 1`` for the class of the image. A large cosine with a code also means a small
    quantization error, so no further term is needed.

    Parameters
    ----------
    bits : int
        K.
    scale : float
        s.
    margin : float
        m. The authors use 0.2, and 0.3 for CIFAR-10.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the authors' release: batch norm, loss, s, and codes of independent random bits. These are
    nearly orthogonal if K is large; rows of a Hadamard matrix are exactly orthogonal, but have a
    bit that is +1 for all classes, which the batch norm cannot produce. For an image with several
    labels, the margin is subtracted for each of them, and the loss has the weights y / sum(y). An
    image without labels has no loss. In a batch of one image, the batch norm uses its running
    statistics.

    The release uses Adam with rate 0.0001 and a tenth for the backbone, divided by ten after 80 of
    100 epochs; here the rate follows a cosine schedule.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = OrthoHash(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "orthohash"
    reference = "Hoe et al., NeurIPS 2021"
    default_training = Training(
        epochs=100,
        batch_size=256,
        optimizer="adamw",
        lr=1e-4,
        trunk_lr=1e-5,
        schedule="cosine",
        weight_decay=5e-4,
        augment="flip+colour",
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        scale: float = 8.0,
        margin: float = 0.2,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.scale = scale
        self.margin = margin

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a linear layer and a batch norm."""
        return normalized_linear(features, self.bits)

    def prepare(self, state: State) -> None:
        """Draw the code of each class."""
        generator = torch.Generator().manual_seed(int(self.seed))
        centers = random_centers(state.classes.shape[1], self.bits, generator)
        state.tensors["centers"] = centers.to(state.classes)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the cosines."""
        labels = state.classes[rows]
        logits = cosines(outputs, state.tensors["centers"]) - self.margin * labels
        shares = labels / labels.sum(dim=1, keepdim=True).clamp(min=1)
        entropy = -(shares * (self.scale * logits).log_softmax(dim=1)).sum()
        return {"classification": entropy / state.batch_size}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(scale=self.scale)
        check_weights(margin=self.margin, zero=True)
