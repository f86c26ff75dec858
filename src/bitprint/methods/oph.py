"""OPH: linear codes that preserve the ranking of images by similarity."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bitprint.data.inputs import Data
from bitprint.methods._base import FeatureHasher
from bitprint.methods._orders import (
    LabelOrder,
    MetricOrder,
    Order,
    distances,
    draw_rows,
    misplaced,
    ordinal_loss,
    place,
)
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import sgn
from bitprint.methods.pca import principal_components, scores

_BATCH = 128  # rows per step, compared with `partners` other rows
_STEPS = 40  # steps per epoch


@register_method
class OPH(FeatureHasher):
    """Order preserving hashing (Wang, Wang, Yu & Li, ACM Multimedia 2013), reconstructed.

    For each image, all other images are assigned to ordered categories in two ways: by true
    similarity and by Hamming distance. The two categories should be equal; each image with
    different categories adds 2 to the loss.

    This implementation keeps the essential parts of the method: this loss, and linear functions
    ``sgn(w . x - t)`` learned with a relaxed sign. The following parts are our choices, because the
    paper does not specify them or was not available: the relaxation ``u = tanh(X W - t)`` with
    distances ``(K - u_i . u_j) / 2``; a logistic loss ``log(1 + exp(-/+ tau (b_m - D)))`` for each
    boundary b_m between categories, with tau increasing from 1 to 4; a term for balanced bits; Adam
    on sampled rows, initialized with randomly rotated principal components and medians as
    thresholds; and the boundaries described under `order`.

    Parameters
    ----------
    bits : int
        K.
    order : {"labels", "metric"}
        True similarity. "labels": the number of shared labels, with a boundary of K / (4 r)
        between r - 1 and r shared labels. "metric": Euclidean distance, with one category per
        Hamming distance; the size of a category is its average size for the current codes. This
        option uses no labels.
    epochs : int
        Number of epochs of 40 steps with 128 random rows each; 0 keeps the initial codes.
    partners : int
        Number of other random rows that a row is compared with in a step.
    balance : float
        rho, the weight of the squared means of the relaxed bits. Without this term, unbalanced
        orders can lead to constant bits.
    rate : float
        Learning rate.
    seed : int

    Attributes
    ----------
    weights_, mean_, thresholds_ : ndarray of float32, shapes (d, K), (d,) and (K,)
        The output is ``(x - mean) W - t``.
    history_ : list of dict
        For each epoch: mean relaxed loss per pair, and fraction of pairs in the wrong category.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((40, 4))
    >>> features[20:] += 6
    >>> OPH(8, epochs=2).fit(features, [0] * 20 + [1] * 20).encode(features)
    Codes(40 x 8 bits)
    """

    name = "oph"
    supervision = "labels"
    reference = "Wang et al., ACM Multimedia 2013"

    def __init__(
        self,
        bits: int,
        *,
        order: Literal["labels", "metric"] = "labels",
        epochs: int = 20,
        partners: int = 1000,
        balance: float = 1.0,
        rate: float = 3e-3,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.order = order
        self.epochs = epochs
        self.partners = partners
        self.balance = balance
        self.rate = rate
        self.seed = seed

    def _check_labels(self, data: Data, labels: ArrayLike | None, count: int) -> NDArray | None:
        return None if self.order == "metric" else super()._check_labels(data, labels, count)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        self._check_options(len(features))
        rng = np.random.default_rng(self.seed)
        mean, weights = rotated_components(features, self.bits, rng)
        rows = features - mean
        size = float(np.sqrt(np.mean(np.square(rows)))) or 1.0
        X = torch.from_numpy((rows / size).astype(np.float32))
        W = torch.from_numpy((weights * size).astype(np.float32))
        t = (X @ W).median(dim=0).values
        order = MetricOrder(X, self.bits) if labels is None else LabelOrder(labels, self.bits)
        self._optimize(X, order, W.requires_grad_(), t.requires_grad_(), rng)
        self.mean_ = mean.astype(np.float32)
        self.weights_ = (W.detach().numpy() / size).astype(np.float32)
        self.thresholds_ = t.detach().numpy()

    def _optimize(
        self, X: Tensor, order: Order, W: Tensor, t: Tensor, rng: np.random.Generator
    ) -> None:
        adam = torch.optim.Adam([W, t], lr=self.rate)
        self.history_: list[dict[str, float]] = []
        for epoch in range(self.epochs):
            order.resize(sgn(X @ W.detach() - t.detach()), rng)
            sharpness = 1 + 3 * epoch / max(1, self.epochs - 1)
            loss = wrong = 0.0
            for _ in range(_STEPS):
                some, others = draw_rows(len(X), _BATCH, self.partners, rng)
                outputs, other_outputs = X[some] @ W - t, X[others] @ W - t
                categories = order.categories(some, others)
                relaxed = self._loss(outputs, other_outputs, categories, order, sharpness)
                adam.zero_grad()
                relaxed.backward()
                adam.step()
                loss += relaxed.item() / _STEPS
                hard = distances(sgn(outputs), sgn(other_outputs))
                wrong += misplaced(categories, place(hard, order.boundaries)) / _STEPS
            self.history_.append({"loss": loss, "misplaced": wrong})

    def _loss(
        self,
        outputs: Tensor,
        other_outputs: Tensor,
        categories: Tensor,
        order: Order,
        sharpness: float,
    ) -> Tensor:
        u, v = torch.tanh(outputs), torch.tanh(other_outputs)
        alignment = ordinal_loss(distances(u, v), categories, order.boundaries, sharpness)
        return alignment + self.balance * torch.cat([u, v]).mean(dim=0).square().sum()

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = (features - self.mean_) @ self.weights_ - self.thresholds_
        return outputs

    def _check_options(self, count: int) -> None:
        if self.order not in ("labels", "metric"):
            raise ValueError(f"order must be labels or metric, got {self.order!r}")
        if self.epochs < 0 or self.partners < 1:
            raise ValueError("epochs must be at least 0 and partners at least 1")
        if count < 2:
            raise ValueError("oph needs at least 2 training items")


def rotated_components(
    features: NDArray[np.float32], bits: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (d,) and randomly rotated principal directions (d, K) with unit variance.

    If there are more bits than features, the additional bits are random mixtures as well.
    """
    mean, components = principal_components(features, min(bits, features.shape[1]))
    mixture = np.linalg.qr(rng.standard_normal((bits, components.shape[1]))).Q.T
    weights = components @ mixture
    spread = scores(features, mean, weights).std(axis=0)
    return mean, np.divide(weights, spread, out=np.zeros_like(weights), where=spread > 0)
