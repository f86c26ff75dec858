"""ADSH: asymmetric deep supervised hashing, a network for queries and free codes for the images."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.data.feed import Feed
from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import dcc, sgn
from bitprint.methods.dsdh import pair_weights
from bitprint.nets.network import HashNetwork
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.utils.arguments import check_whole

_ROWS = 4096  # images per block of the similarity matrix


@register_method
class ADSH(DeepHasher):
    """Asymmetric deep supervised hashing (Jiang and Li, AAAI 2018).

    The network encodes queries only; the codes ``v_j`` of the training images are variables::

        min  sum_(i in Omega, j) (z_i . v_j - K s_ij)^2 + gamma sum_(i in Omega) ||v_i - z_i||^2,
             z = tanh(h),   v_j in {-1, +1}^K

    ``s_ij`` is 1 for similar images and ``-r`` for others, where r is the number of similar pairs
    over that of dissimilar pairs. The network is trained on a random sample Omega of the images.
    Then V is solved one bit at a time, each in closed form, with the outputs for Omega, and the
    next sample follows.

    Parameters
    ----------
    bits : int
        K.
    gamma : float
        Weight of the second term.
    samples : int
        Number of images in Omega, at most all.
    **common
        As in `DeepHasher`.

    Attributes
    ----------
    codes_ : ndarray of int8, shape (N, K)
        V, the codes of the training images, -1 and +1. They are not saved with the model.

    Notes
    -----
    `encode` returns the codes of the network for any image, so that queries and images which were
    not in the training set can be compared. The authors search for queries among the training
    images and use `codes_` for these: ``bp.Codes.from_signs(hasher.codes_ > 0)``.

    As published: the objective, the values of s, one pass over the bits of V, samples of 2,000
    images and gamma = 200. The loss is the objective divided by batch size times N, as in the
    release. The release trains three times on each sample; here every image is seen once per
    epoch, and each `samples` images in a row are a sample. V starts from zero, as in the release,
    so the first sample only decreases the outputs.

    `metrics.csv` contains the share of bits in which V differs from the network (`changed_bits`).

    Examples
    --------
    >>> import numpy as np
    >>> hasher = ADSH(bits=12, epochs=2, lr=0.1).fit(np.eye(6), [0, 0, 0, 1, 1, 1])
    >>> hasher.encode(np.eye(6)), hasher.codes_.shape
    (Codes(6 x 12 bits), (6, 12))
    """

    name = "adsh"
    reference = "Jiang and Li, AAAI 2018"
    default_training = Training(epochs=60, batch_size=64, lr=1e-3)
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        gamma: float = 200.0,
        samples: int = 2000,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.gamma = gamma
        self.samples = samples

    def prepare(self, state: State) -> None:
        """Create U, the last z of all images, V, their codes, and the members of Omega."""
        super().prepare(state)
        device = state.device
        kinds = pair_weights(state.labels)
        state.tensors["dissimilar"] = -kinds[0] / kinds[1]
        state.tensors["V"] = torch.zeros_like(state.tensors["U"])
        state.tensors["sampled"] = torch.zeros(len(state), dtype=torch.bool, device=device)
        state.tensors["count"] = torch.zeros((), dtype=torch.int64, device=device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return both terms for the batch, and solve for V when the sample is complete."""
        hashed, codes = torch.tanh(outputs), state.tensors["V"]
        goals = self.bits * signed_similarity(rows, state)
        scale = 1 / (state.batch_size * len(state))
        parts = {
            "pair": scale * (hashed @ codes.t() - goals).square().sum(),
            "quantisation": scale * self.gamma * (codes[rows] - hashed).square().sum(),
        }
        state.tensors["U"][rows] = hashed.detach()
        state.tensors["sampled"][rows] = True
        state.tensors["count"] += len(rows)
        if int(state.tensors["count"]) >= min(self.samples, len(state)):
            self._solve(state)
        return parts

    def after_epoch(self, state: State) -> dict[str, float]:
        """Return the share of bits in which V differs from the network."""
        changed = state.tensors["V"] != sgn(state.tensors["U"])
        return {"changed_bits": float(changed.float().mean())}

    def finish(self, net: HashNetwork, state: State, feed: Feed) -> None:
        """Set `codes_`."""
        self.codes_ = sgn(state.tensors["V"]).to(torch.int8).cpu().numpy()

    def _solve(self, state: State) -> None:
        """Solve for V, one bit after the other, with the outputs of the sample."""
        outputs, sampled = state.tensors["U"], state.tensors["sampled"]
        members = sampled.nonzero()[:, 0]
        sample = outputs[members]
        pull = self.gamma * outputs * sampled[:, None]
        for rows in torch.arange(len(state), device=state.device).split(_ROWS):
            pull[rows] += self.bits * signed_similarity(rows, state, members) @ sample
        state.tensors["V"] = dcc(state.tensors["V"], sample.t(), pull, sweeps=1)
        state.tensors["sampled"] = torch.zeros_like(sampled)
        state.tensors["count"] = torch.zeros_like(state.tensors["count"])

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(gamma=self.gamma, zero=True)
        check_whole("samples", self.samples, 1)


def signed_similarity(rows: Tensor, state: State, others: Tensor | None = None) -> Tensor:
    """Return s of a batch and other images (by default all), shape (n, m): 1, or -r if dissimilar.

    Parameters
    ----------
    rows, others : Tensor of int64
        Indices of training images.
    state : State
        Labels and -r, "dissimilar".
    """
    second = state.labels if others is None else state.labels[others]
    return torch.where(similarity(state.labels[rows], second), 1.0, state.tensors["dissimilar"])
