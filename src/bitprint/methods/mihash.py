"""MIHash: hashing with mutual information."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, DeepHasher, Tuned
from bitprint.methods._registry import register_method
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.soft_histograms import soft_histograms
from bitprint.training.state import State
from bitprint.utils.arguments import check_whole

_LEAST = 1e-12  # smallest probability with a gradient: that of p log p is infinite at 0


@register_method
class MIHash(DeepHasher):
    """Hashing with mutual information (Cakir, He, Bargal and Sclaroff, ICCV 2017; TPAMI 2019).

    ``max mean_i I(D_i; C_i)``, ``I(D; C) = H(D) - H(D | C)``, over the images of a batch.

    D_i is the Hamming distance of another image of the batch to image i, and C_i is whether the two
    are similar. The mutual information is large if the distance tells whether an image is similar:
    if the histograms of distances to similar and to dissimilar images do not overlap. These
    histograms are relaxed, see `bitprint.training.soft_histograms`. The objective has no weights
    and no margin.

    Parameters
    ----------
    bits : int
        K.
    bins : int, optional
        Intervals of the histograms, from 1 to K. By default K: a bin for each Hamming distance.
    **common
        As in `DeepHasher`.

    Notes
    -----
    Mutual information is measured in bits. As in the authors' release: histograms with K intervals,
    and batches of 256 images with rate 0.001 for the hash layer, a hundredth of it for the network,
    and momentum 0.9, for 100 epochs. Our choices: tanh(h), where the release has tanh(h / 2); a
    cosine schedule, where the release halves the rate after half of the epochs.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = MIHash(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "mihash"
    title = "MIHash"
    reference = "Cakir, He, Bargal and Sclaroff, ICCV 2017"
    default_training: ClassVar[Training] = Training(
        epochs=100, batch_size=256, lr=1e-3, trunk_lr=1e-5, schedule="cosine", momentum=0.9
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(self, bits: int, *, bins: int | None = None, **common: Unpack[Common]) -> None:
        super().__init__(bits, **common)
        self.bins = bins

    def prepare(self, state: State) -> None:
        """Do nothing: the histograms are those of a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the negative mutual information, a mean over the images of the batch."""
        labels = state.labels[rows]
        histograms = soft_histograms(outputs, similarity(labels, labels), self.bins)
        return {"information": -mutual_information(*histograms).sum() / state.batch_size}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_bins(self.bins, self.bits)


def mutual_information(similar: Tensor, dissimilar: Tensor) -> Tensor:
    """Return the mutual information of distance and similarity in bits, shape (n,).

    Parameters
    ----------
    similar, dissimilar : Tensor, shape (n, bins + 1)
        Histograms of the distances to similar and to dissimilar images.

    Examples
    --------
    >>> histograms = torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [1.0, 1.0]])
    >>> mutual_information(*histograms).tolist()
    [1.0, 0.0]
    """
    count = (similar + dissimilar).sum(dim=1)
    total = _entropy(similar + dissimilar)
    for each in (similar, dissimilar):
        total = total - each.sum(dim=1) / count.clamp(min=1) * _entropy(each)
    return total


def _entropy(histograms: Tensor) -> Tensor:
    """Return the entropy of each histogram in bits; 0 if it is empty."""
    count = histograms.sum(dim=1, keepdim=True)
    shares = histograms / count.clamp(min=_LEAST)
    entropy: Tensor = torch.special.entr(shares.clamp(min=_LEAST)).sum(dim=1)
    return entropy / math.log(2)


def check_bins(bins: int | None, bits: int) -> None:
    """Raise a ValueError unless `bins` is None or an integer from 1 to `bits`."""
    if bins is not None and check_whole("bins", bins, 1) > bits:
        raise ValueError(f"bins must be at most the number of bits, {bits}, got {bins}")
