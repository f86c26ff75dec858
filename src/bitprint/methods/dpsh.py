"""DPSH: deep pairwise-supervised hashing."""

from __future__ import annotations

from typing import ClassVar, Unpack

from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import sgn
from bitprint.supervision import similarity
from bitprint.training.losses import pair_loss, quantization_loss
from bitprint.training.state import State


@register_method
class DPSH(DeepHasher):
    """Deep pairwise-supervised hashing (Li, Wang and Kang, IJCAI 2016).

    ``min -sum_ij [ s_ij t_ij - log(1 + e^t_ij) ] + eta sum_i ||sgn(h_i) - h_i||^2``,
    ``t_ij = h_i . h_j / 2``, over all ordered pairs.

    Parameters
    ----------
    bits : int
        K.
    eta : float
        Weight of the quantization term, in the paper's units: the loss is the objective divided
        by batch size times N.
    **common
        As in `DeepHasher`.

    Examples
    --------
    >>> import numpy as np, bitprint as bp
    >>> hasher = bp.create("dpsh", bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dpsh"
    reference = "Li, Wang and Kang, IJCAI 2016"
    tuned: ClassVar[Tuned] = {
        "recommended few pretrained": {
            "lr": 1e-4,
            "freeze_norms": False,
            "cutmix": 0.0,
            "drop_blocks": 0.0,
        }
    }

    def __init__(
        self,
        bits: int,
        *,
        eta: float = 10.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.eta = eta

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the loss of pairs with all training images and the quantization loss."""
        hashed = outputs[:, : self.bits]
        return pairwise_parts(hashed, rows, sgn(hashed.detach()), self.eta, state)

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(eta=self.eta, zero=True)


def pairwise_parts(
    hashed: Tensor,
    rows: Tensor,
    signs: Tensor,
    eta: float | Tensor,
    state: State,
    *,
    slope: float = 1.0,
    weights: Tensor | None = None,
    kinds: Tensor | None = None,
) -> dict[str, Tensor]:
    """Update the output buffer with the batch and return the common terms of DPSH and DSDH.

    Parameters
    ----------
    hashed : Tensor, shape (n, K)
        Hash outputs of the batch.
    rows : Tensor of int64, shape (n,)
        Indices of the training images in the batch.
    signs : Tensor, shape (n, K)
        Codes in the quantization term.
    eta : float or Tensor
        Weight of the quantization term, in the paper's units.
    state : State
        Labels and the buffer "U".
    slope : float
        a in log(1 + e^(a t)) / a. With a < 1 the loss saturates at larger t. 1 in both papers.
    weights : Tensor, shape (N,), optional
        Weight of each training image in both terms; 1 in both papers.
    kinds : Tensor, shape (2,), optional
        Weights of dissimilar and of similar pairs; 1 in both papers.
    """
    buffer = state.tensors["U"]
    buffer[rows] = hashed.detach()
    similar = similarity(state.labels[rows], state.labels)
    scale = 1 / (state.batch_size * len(state))
    own = both = None
    if weights is not None:
        own = weights[rows]
        both = own, weights
    return {
        "pair": scale / slope * pair_loss(slope * hashed, buffer, similar, both, kinds),
        "quantisation": scale * eta * quantization_loss(hashed, signs, own),
    }
