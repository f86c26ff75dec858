"""TALR: hashing as tie-aware learning to rank."""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, DeepHasher, Tuned
from bitprint.methods._registry import register_method
from bitprint.methods.mihash import check_bins
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.soft_histograms import soft_histograms
from bitprint.training.state import State

_GAP = 1e-4  # distance of a count from 0 and 1, where the formula is 0 / 0


@register_method
class TALR(DeepHasher):
    """Hashing as tie-aware learning to rank (He, Cakir, Bargal and Sclaroff, CVPR 2018).

    ``max mean_i AP_i``: the average precision of a ranking of the other images of a batch by their
    Hamming distance to image i.

    Images at equal distance are tied, and AP is the expectation over their orders, as in
    `bitprint.evaluate` (McSherry and Najork, ECIR 2008). That expectation is a function of the
    histograms of distances to similar and to all images. Relaxed histograms make it
    differentiable, see `bitprint.training.soft_histograms`. For codes of -1 and +1 it is the AP
    that `bitprint.evaluate` computes.

    Parameters
    ----------
    bits : int
        K.
    bins : int, optional
        Intervals of the histograms, from 1 to K. By default K: a bin for each Hamming distance.
    relaxation : {"exact", "simplified"}
        "exact": the formula of tie-aware AP, see `relaxed_precision`. "simplified": the precision
        of a bin is that of its middle rank, as in the authors' release; without ties it is exact.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The sum over the ranks in a tie contains a difference of harmonic numbers, which are defined for
    integers. The paper replaces the sum by an integral, so that the difference becomes a logarithm.
    Our choice for "exact" is the digamma function, which equals the harmonic numbers at integers.

    As in the authors' release: 50 epochs with batches of 250 images, rate 0.01 for the hash layer,
    a tenth of it for the network, and momentum 0.9. Our choice: K intervals at every length, where
    the release has K / 2 from 32 bits. An image without similar images in the batch has no AP and
    adds nothing to the loss. The paper also maximizes NDCG, which is not included.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = TALR(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "talr"
    reference = "He, Cakir, Bargal and Sclaroff, CVPR 2018"
    default_training: ClassVar[Training] = Training(
        epochs=50, batch_size=250, lr=1e-2, trunk_lr=1e-3, schedule="constant", momentum=0.9
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(
        self,
        bits: int,
        *,
        bins: int | None = None,
        relaxation: Literal["exact", "simplified"] = "exact",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.bins = bins
        self.relaxation = relaxation

    def prepare(self, state: State) -> None:
        """Do nothing: the histograms are those of a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return 1 - AP, a sum over the images with similar images in the batch."""
        labels = state.labels[rows]
        similar, dissimilar = soft_histograms(outputs, similarity(labels, labels), self.bins)
        relevant, items = similar, similar + dissimilar
        precision = _PRECISIONS[self.relaxation](relevant, items)
        total = relevant.sum(dim=1)
        found = (relevant * precision).sum(dim=1) / total.clamp(min=1)
        return {"precision": torch.where(total > 0, 1 - found, 0).sum() / state.batch_size}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_bins(self.bins, self.bits)
        if self.relaxation not in _PRECISIONS:
            raise ValueError(
                f"relaxation must be {' or '.join(_PRECISIONS)}, got {self.relaxation!r}"
            )


def relaxed_precision(relevant: Tensor, items: Tensor) -> Tensor:
    """Return the expected precision at a relevant item of each bin, shape (n, bins).

    A bin has n items, r of them relevant; before it are a items, f of them relevant. The precision
    at rank j of the bin, if the item there is relevant, is ``(f + 1 + (j - a - 1) rho) / j`` in
    expectation, with ``rho = (r - 1) / (n - 1)``. Its mean over the ranks is
    ``(f + 1) G + rho (1 - (a + 1) G)``, where G is the mean of 1 / j,
    ``(digamma(a + n + 1) - digamma(a + 1)) / n``. This is a smooth function of the four counts,
    which need not be integers. It is computed in float64, because it contains small differences.

    Parameters
    ----------
    relevant, items : Tensor, shape (n, bins)
        Histograms of distances.

    Examples
    --------
    >>> relevant, items = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    >>> relaxed_precision(relevant, items)  # ranks 2 and 3 are tied
    tensor([[1.0000, 0.8333]])
    """
    r, n = relevant.double(), items.double()
    f, a = r.cumsum(dim=1) - r, n.cumsum(dim=1) - n
    n = torch.where(n < _GAP, n + _GAP, n)
    apart = torch.where((n - 1).abs() < _GAP, n + 2 * _GAP, n)
    slope = (1 - (a + 1) * _mean_reciprocal(a, apart)) / (apart - 1)
    precision = (f + 1) * _mean_reciprocal(a, n) + (r - 1) * slope
    return precision.to(items.dtype)


def _mean_reciprocal(a: Tensor, n: Tensor) -> Tensor:
    """Return the mean of 1 / j over the ranks a + 1 .. a + n."""
    return (torch.digamma(a + n + 1) - torch.digamma(a + 1)) / n


def simplified_precision(relevant: Tensor, items: Tensor) -> Tensor:
    """Return the expected precision at the middle rank of each bin, shape (n, bins).

    Parameters
    ----------
    relevant, items : Tensor, shape (n, bins)
        Histograms of distances.

    Examples
    --------
    >>> relevant, items = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    >>> simplified_precision(relevant, items)
    tensor([[1.0000, 0.8000]])
    """
    r, n = relevant, items
    f, a = r.cumsum(dim=1) - r, n.cumsum(dim=1) - n
    return (2 * f + r + 1) / (2 * a + n + 1)


_PRECISIONS = {"exact": relaxed_precision, "simplified": simplified_precision}
