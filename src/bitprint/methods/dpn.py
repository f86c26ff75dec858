"""DPN: deep polarized network, random target vectors and a hinge loss for each bit."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.centers import random_centers
from bitprint.methods.discrete import sgn
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class DPN(DeepHasher):
    """Deep polarized network (Fan, Ng, Ju, Zhang and Chan, IJCAI 2020).

    Each class c has a target vector ``t_c`` in {-1, +1}^K of random bits. Each output should be at
    least m on the side of the target::

        min  mean_i sum_(c of i) sum_k max(m - h_ik t_ck, 0)

    The loss of an image is at least m times the Hamming distance of its code to the target.

    Parameters
    ----------
    bits : int
        K.
    adaptive : bool
        DPN-A: after each epoch, the target of a class becomes the majority of its polarized
        outputs, ``sgn(sum_i p(h_ik))`` with ``p(h) = sgn(h)`` for ``|h| > m`` and 0 for others.
    margin : float
        m.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As published: random targets, loss, margin and adaptive targets. As in the authors' release, an
    image with several labels has the sum of the losses for their targets, so that the majority of
    its targets decides each bit. The ternary codes of the paper are left out.

    In DPN-A, a bit of a target changes only if the sum exceeds half of the number of images of the
    class. This is our choice: in the first epochs few outputs are polarized, and targets that
    follow these soon become equal for many classes.

    The release uses SGD with rate 0.0001 and divides it by ten after half of 200 epochs; here the
    rate follows a cosine schedule. With short codes and many classes, two targets can be equal.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DPN(bits=12, adaptive=True, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dpn"
    reference = "Fan, Ng, Ju, Zhang and Chan, IJCAI 2020"
    default_training = Training(
        epochs=200,
        batch_size=256,
        lr=1e-4,
        schedule="cosine",
        momentum=0.9,
        augment="flip+shift",
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        adaptive: bool = False,
        margin: float = 1.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.adaptive = adaptive
        self.margin = margin

    def prepare(self, state: State) -> None:
        """Draw the targets; DPN-A also stores U, the last outputs of all images."""
        generator = torch.Generator().manual_seed(int(self.seed))
        targets = random_centers(state.classes.shape[1], self.bits, generator)
        state.tensors["targets"] = targets.to(state.classes)
        if self.adaptive:
            super().prepare(state)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the polarization loss of the batch."""
        if self.adaptive:
            state.tensors["U"][rows] = outputs.detach()
        classes, targets = state.classes[rows], state.tensors["targets"]
        # The number of labels of an image whose targets are +1, and -1, in each bit.
        positive = classes @ (targets > 0).to(classes)
        negative = classes @ (targets < 0).to(classes)
        losses = positive * (self.margin - outputs).relu()
        losses = losses + negative * (self.margin + outputs).relu()
        return {"polarization": losses.sum() / state.batch_size}

    def after_epoch(self, state: State) -> dict[str, float]:
        """Update the targets of DPN-A; return the share of polarized outputs."""
        if not self.adaptive:
            return {}
        outputs, targets = state.tensors["U"], state.tensors["targets"]
        polarized = torch.where(outputs.abs() > self.margin, sgn(outputs), 0.0).to(outputs)
        sums = state.classes.t() @ polarized
        clear = sums.abs() > state.classes.sum(dim=0)[:, None] / 2
        state.tensors["targets"] = torch.where(clear, sgn(sums).to(targets), targets)
        return {"polarized": float(polarized.abs().mean())}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(margin=self.margin)
