"""VDSH: a deep network on feature vectors, trained layer by layer with auxiliary variables."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import ridge
from bitprint.supervision import class_matrix
from bitprint.utils.devices import pick_device

_STEPS = 5  # gradient steps on the outputs of a layer per iteration
_GROWTH = 1.1  # factor of gamma per iteration of "admm", as the problem is not convex
_LEAST = 1e-8  # smallest ridge per row for well-posed regressions


@register_method
class VDSH(FeatureHasher):
    """Very deep supervised hashing (Zhang, Chen and Saligrama, CVPR 2016), reconstructed.

    Labels are regressed on the hash layer of a ReLU network. Each layer has auxiliary outputs Z_m,
    one row per training row. A penalty ties them to the outputs of the layer for the auxiliary
    outputs below it (Z_0 are the features; the codes are not constrained to be binary)::

        min  1/2 ||Y - Z_M W||^2  +  gamma/2 sum_m ||Z_m - f_m(Z_{m-1} T_m)||^2
             + N weight/2 (||W||^2 + sum_m ||T_m||^2)

    over W, all weights T_m and all Z_m. Each layer depends on its two neighbors only, so no
    gradient passes through the whole network.

    As in the paper: vectors as input, this objective, auxiliary outputs for each layer, and codes
    by thresholding; the paper uses up to 64 layers of 1024 nodes. The following parts are our
    choices, because the paper was not available: a linear hash layer (f_M), biases (the last row of
    T_m), centered labels and standardized features. An iteration updates the layers from the last
    to the first. Each update minimizes an upper bound that equals the objective at the current
    point: exactly for W, T_m and Z_M, by gradient steps for the other Z_m. With the default size,
    5,000 rows take well under a minute on one core.

    Parameters
    ----------
    bits : int
        K.
    layers : int
        Hidden layers below the hash layer, M - 1.
    width : int
        Nodes per hidden layer.
    solver : {"bcd", "admm"}
        "bcd" is block coordinate descent on the objective, which never increases. "admm" adds
        scaled dual variables to the residuals ``Z_m - f_m(Z_{m-1} T_m)``, so that they converge
        to zero.
    threshold : {"zero", "median"}
        Threshold of the outputs: zero, or the median over the training rows, so that each bit is
        set for half of the rows.
    gamma : float
        Weight of the penalty between auxiliary outputs and network outputs.
    weight : float
        Weight decay per training row.
    iterations : int
        Number of iterations.
    device : str
        "auto" selects a GPU if there is one.
    seed : int
        Seed of the initial weights.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((40, 3))
    >>> side = (features[:, 0] > 0).astype(int)
    >>> codes = VDSH(bits=8, width=16).fit(features, side).encode(features)
    >>> distances = codes.hamming(codes)
    >>> same = side[:, None] == side
    >>> bool(distances[same].mean() < distances[~same].mean() / 2)
    True
    """

    name = "vdsh"
    supervision = "labels"
    reference = "Zhang, Chen and Saligrama, CVPR 2016"

    def __init__(
        self,
        bits: int,
        *,
        layers: int = 2,
        width: int = 256,
        solver: Literal["bcd", "admm"] = "bcd",
        threshold: Literal["zero", "median"] = "zero",
        gamma: float = 1e-3,
        weight: float = 1e-4,
        iterations: int = 30,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.layers = layers
        self.width = width
        self.solver = solver
        self.threshold = threshold
        self.gamma = gamma
        self.weight = weight
        self.iterations = iterations
        self.device = device
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        assert labels is not None
        self._check_options()
        device = pick_device(self.device)
        rows = features.astype(float)
        self.mean_ = rows.mean(axis=0)
        deviations = rows.std(axis=0)
        self.scale_ = np.where(deviations > 0, deviations, 1.0)
        inputs = torch.from_numpy((rows - self.mean_) / self.scale_).to(device)
        targets = torch.from_numpy(class_matrix(labels)).to(inputs)
        weights, classifier = random_start(self._widths(), targets.shape[1], int(self.seed))
        network = Auxiliary(
            inputs,
            targets - targets.mean(dim=0),
            [layer.to(device) for layer in weights],
            classifier.to(device),
            gamma=self.gamma,
            decay=self.weight * len(rows),
        )
        for _ in range(self.iterations):
            network.update()
            if self.solver == "admm":
                network.update_duals()
        self.weights_ = torch.cat([layer.flatten() for layer in network.weights]).cpu().numpy()
        self.thresholds_ = np.zeros(self.bits)
        if self.threshold == "median":
            medians = np.median(self._project(features).astype(float), axis=0)
            # Rounding must not move a row at the median below the threshold.
            self.thresholds_ = medians - 1e-6 * np.abs(medians)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        inputs = torch.from_numpy((features - self.mean_) / self.scale_)
        outputs = forward(inputs, self._layers())[-1].numpy() - self.thresholds_
        return np.asarray(outputs, np.float32)

    def _widths(self) -> list[int]:
        return [self.n_features_in_, *[self.width] * self.layers, self.bits]

    def _layers(self) -> list[Tensor]:
        """Return T_1 to T_M from the saved vector."""
        shapes = [(before + 1, after) for before, after in pairwise(self._widths())]
        parts = torch.from_numpy(self.weights_).split([a * b for a, b in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _check_options(self) -> None:
        if self.solver not in ("bcd", "admm"):
            raise ValueError(f"vdsh: solver must be bcd or admm, got {self.solver!r}")
        if self.threshold not in ("zero", "median"):
            raise ValueError(f"vdsh: threshold must be zero or median, got {self.threshold!r}")
        if self.layers < 0:
            raise ValueError(f"vdsh: layers must be at least 0, got {self.layers}")
        for option in ("width", "iterations"):
            if getattr(self, option) < 1:
                raise ValueError(f"vdsh: {option} must be at least 1, got {getattr(self, option)}")
        for option in ("gamma", "weight"):
            if not getattr(self, option) > 0:
                raise ValueError(f"vdsh: {option} must be positive, got {getattr(self, option)}")


def random_start(widths: list[int], classes: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """Return initial weights T_m, shape (n_{m-1} + 1, n_m), and W, shape (K, c).

    Hidden layers have He's variance, so that outputs keep their scale, and zero biases. The hash
    layer is zero and W is random, so the first codes depend on the labels only. The codes would
    keep a random component of the hash layer in all directions that the labels do not determine.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

    weights = []
    for before, after in pairwise(widths[:-1]):
        layer = (2 / before) ** 0.5 * normal(before + 1, after)
        layer[-1] = 0
        weights.append(layer)
    bits = widths[-1]
    weights.append(torch.zeros(widths[-2] + 1, bits, dtype=torch.float64))
    return weights, normal(bits, classes) / bits


def forward(inputs: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """Return the outputs of each layer, (N, n_m): ReLU layers, then the linear hash layer."""
    outputs = []
    for m, layer in enumerate(weights, 1):
        inputs = torch.addmm(layer[-1], inputs, layer[:-1])
        if m < len(weights):
            inputs = inputs.relu()
        outputs.append(inputs)
    return outputs


class Auxiliary:
    """The objective of VDSH with its variables and their updates.

    Hidden outputs satisfy Z >= 0, like ReLU outputs. Let p be the current preactivation of a node,
    and ``t = z`` if the node is active, else ``t = p``. For z >= 0 the loss of the node,
    ``(z - relu(p'))^2 / 2``, is at most ``(p' - t)^2 / 2`` plus a constant, with equality at
    ``p' = p``. A regression on t instead of z therefore never increases the objective.

    Parameters
    ----------
    inputs : Tensor, shape (N, d)
        Z_0.
    targets : Tensor, shape (N, c)
        Y.
    weights : list of Tensor, shape (n_{m-1} + 1, n_m)
        Initial T_1 to T_M.
    classifier : Tensor, shape (K, c)
        Initial W.
    gamma, decay : float
        Weights of the penalty between layers and of the weight decay.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: list[Tensor],
        classifier: Tensor,
        *,
        gamma: float,
        decay: float,
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.weights = list(weights)
        self.classifier = classifier
        self.gamma = gamma
        self.decay = decay
        self.outputs = forward(inputs, weights)
        self.duals = [torch.zeros_like(outputs) for outputs in self.outputs]

    def update(self) -> None:
        """Update the outputs and weights of each layer, from last to first, and then W."""
        last = len(self.weights) - 1
        self._improve_hash_outputs()
        self._improve_weights(last)
        for m in reversed(range(last)):
            self._improve_outputs(m)
            self._improve_weights(m)
        self.classifier = ridge(self.outputs[-1], self.targets, self.decay)

    def update_duals(self) -> None:
        """Add the residuals to the dual variables and increase gamma by 10%, up to a bound.

        The stored duals are scaled by 1 / gamma, so they are divided by the growth of gamma.
        """
        growth = _GROWTH if self.decay > _LEAST * self.gamma * len(self.inputs) else 1.0
        self.gamma *= growth
        for dual, residual in zip(self.duals, self.residuals(), strict=True):
            dual.add_(residual).div_(growth)

    def residuals(self) -> list[Tensor]:
        """Return ``Z_m - f_m(Z_{m-1} T_m)`` of each layer, (N, n_m)."""
        return [self.outputs[m] - self._reached(m) for m in range(len(self.weights))]

    def objective(self) -> float:
        """Return the objective that "bcd" minimizes."""
        errors = (self.targets - self.outputs[-1] @ self.classifier).square().sum()
        ties = torch.stack([residual.square().sum() for residual in self.residuals()]).sum()
        sizes = torch.stack([w.square().sum() for w in [self.classifier, *self.weights]]).sum()
        return float(errors + self.gamma * ties + self.decay * sizes) / 2

    def _improve_hash_outputs(self) -> None:
        """Update Z_M in closed form."""
        system = self.classifier @ self.classifier.t()
        system.diagonal().add_(self.gamma)
        tied = self._reached(len(self.weights) - 1) - self.duals[-1]
        pull = self.targets @ self.classifier.t() + self.gamma * tied
        self.outputs[-1] = torch.linalg.solve(system, pull, left=False)

    def _improve_outputs(self, m: int) -> None:
        """Update hidden outputs by projected gradient steps of length 1 / curvature, Z >= 0."""
        above = self.weights[m + 1][:-1]
        tied = self._reached(m) - self.duals[m]
        curvature = 1 + torch.linalg.matrix_norm(above, 2).square()
        for _ in range(_STEPS):
            preactivations, goals = self._goals(m + 1)
            slope = self.outputs[m] - tied + (preactivations - goals) @ above.t()
            self.outputs[m] = (self.outputs[m] - slope / curvature).relu()

    def _improve_weights(self, m: int) -> None:
        """Update T_m by ridge regression of the goals on the outputs below."""
        _, goals = self._goals(m)
        below = self._below(m)
        below = torch.cat([below, below.new_ones(len(below), 1)], dim=1)
        self.weights[m] = ridge(below, goals, self.decay / self.gamma)

    def _goals(self, m: int) -> tuple[Tensor, Tensor]:
        """Return the preactivations p of a layer and their targets t."""
        preactivations = self._preactivations(m)
        goals = self.outputs[m] + self.duals[m]
        if m < len(self.weights) - 1:
            goals = torch.where(preactivations > 0, goals, preactivations)
        return preactivations, goals

    def _reached(self, m: int) -> Tensor:
        """Return the outputs of a layer for the auxiliary outputs below it."""
        preactivations = self._preactivations(m)
        return preactivations.relu() if m < len(self.weights) - 1 else preactivations

    def _preactivations(self, m: int) -> Tensor:
        return torch.addmm(self.weights[m][-1], self._below(m), self.weights[m][:-1])

    def _below(self, m: int) -> Tensor:
        return self.outputs[m - 1] if m else self.inputs
