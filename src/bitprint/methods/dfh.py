"""DFH: deep Fisher hashing."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import sgn
from bitprint.supervision import similarity
from bitprint.training.losses import quantization_loss
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.utils.arguments import check_whole

_RATE = 0.03  # of the steps on the centers in the authors' release


@register_method
class DFH(DeepHasher):
    """Deep Fisher hashing (Li, Pei, Zha and van Gemert, BMVC 2019).

    Pairs with a margin, and codes that are pushed towards the center of their class::

        min  mean_ij [ s_ij log(1 + e^(m - t_ij)) + (1 - s_ij) log(1 + e^(m + t_ij)) ]
             + eta mean_ik (b_ik - h_ik)^2,       t_ij = h_i . h_j / 2
        b_i = sgn(mu sum_c y_ic sgn(v_c) + h_i)

    The pairs are those of a batch with all training images, which are represented by their last
    outputs. The centers v_c of the classes are near the codes of their images, far from each other
    and near signs (Fisher's discriminant in Hamming space)::

        min  mean_ik (sum_c y_ic v_ck - b_ik)^2 + mean_cd (v_c . v_d - K (2 [c = d] - 1))^2
             + mean_ck (v_ck - sgn(v_ck))^2

    Before the step on the network, each batch makes gradient steps on its centers.

    Parameters
    ----------
    bits : int
        K.
    margin : float
        m.
    mu : float
        Push towards the centers.
    eta : float
        Weight of the quantization term; 0.5 in the authors' release.
    center_steps : int
        Gradient steps on the centers for each batch; 200 in the authors' release.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the authors' release: the objective, mu, eta, the steps on the centers, all weights of 1,
    centers that start at zero, and 150 epochs of batches of 128 images with rate 0.01 and momentum
    0.9. The margin is 0 there; a margin of 1 is that of a common reimplementation. Our choices: a
    logarithmic schedule, where the release divides the rate by ten every 50 epochs; the length of a
    step on the centers is at most 0.03, as in the first 150 steps of the release, and is smaller
    where the objective has a large curvature (few classes, long codes), so that it never rises.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DFH(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dfh"
    reference = "Li, Pei, Zha and van Gemert, BMVC 2019"
    default_training: ClassVar[Training] = Training(
        epochs=150, lr=1e-2, momentum=0.9, augment="flip+shift"
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(
        self,
        bits: int,
        *,
        margin: float = 1.0,
        mu: float = 1.0,
        eta: float = 0.5,
        center_steps: int = 200,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.margin = margin
        self.mu = mu
        self.eta = eta
        self.center_steps = center_steps

    def prepare(self, state: State) -> None:
        """Create U, the last outputs of all images, and V, the centers of the classes."""
        super().prepare(state)
        state.tensors["V"] = torch.zeros(state.classes.shape[1], self.bits).to(state.classes)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Update the buffers; return the loss of pairs with a margin and the quantization loss."""
        buffer, centers, classes = state.tensors["U"], state.tensors["V"], state.classes[rows]
        buffer[rows] = outputs.detach()
        codes = sgn(self.mu * (classes @ centers.sign()) + outputs.detach()).to(outputs.dtype)
        state.tensors["V"] = descend_centers(centers, classes, codes, self.center_steps)
        similar = similarity(state.labels[rows], state.labels)
        products = torch.where(similar, -0.5, 0.5) * (outputs @ buffer.t())
        pairs = functional.softplus(self.margin + products).sum() / len(state)
        quantisation = self.eta * quantization_loss(outputs, codes) / self.bits
        return {
            "pair": pairs / state.batch_size,
            "quantisation": quantisation / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(margin=self.margin, mu=self.mu, eta=self.eta, zero=True)
        check_whole("center_steps", self.center_steps, 0)


@torch.no_grad()
def descend_centers(centers: Tensor, classes: Tensor, codes: Tensor, steps: int) -> Tensor:
    """Return the centers after gradient steps on their objective, see `center_objective`.

    Parameters
    ----------
    centers : Tensor, shape (c, K)
        V; not modified.
    classes : Tensor, shape (n, c)
        Y of a batch.
    codes : Tensor, shape (n, K)
        B of the batch.
    steps : int

    Examples
    --------
    >>> centers, classes, codes = torch.zeros(2, 4), torch.eye(2), torch.ones(2, 4)
    >>> codes[1, 2:] = -1
    >>> after = descend_centers(centers, classes, codes, 200)
    >>> bool(center_objective(after, classes, codes) < center_objective(centers, classes, codes))
    True
    """
    count, bits = centers.shape
    within, between, signs = 2 / codes.numel(), 4 / count**2, 2 / centers.numel()
    gram = classes.t() @ classes
    # At most the inverse of a bound of the curvature, where V'V has no eigenvalue above 2 K.
    curvature = between * bits * (count + 6) + within * gram.sum() + signs
    rate = (1 / curvature).clamp(max=_RATE)
    identity = torch.eye(count).to(centers)
    constant = within * gram + signs * identity - between * bits * (2 * identity - 1)
    pull = within * (classes.t() @ codes)
    for _ in range(steps):
        linear = torch.addmm(constant, centers, centers.t(), alpha=between)
        gradient = linear @ centers - pull - signs * sgn(centers)
        centers = centers - rate * gradient
    return centers


def center_objective(centers: Tensor, classes: Tensor, codes: Tensor) -> Tensor:
    """Return the objective of the centers for a batch, which `descend_centers` decreases."""
    count, bits = centers.shape
    apart = bits * (2 * torch.eye(count).to(centers) - 1)
    within = (classes @ centers - codes).square().mean()
    between = (centers @ centers.t() - apart).square().mean()
    return within + between + (centers - sgn(centers)).square().mean()
