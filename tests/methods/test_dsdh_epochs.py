"""Epochs of the training loop against an implementation in NumPy, step by step.

The network is one hidden ReLU layer and the hash layer; the reference implements SGD by hand.
"""

from itertools import chain

import dsdh_reference as reference
import numpy as np
import pytest
import torch

from bitprint.data.feed import Feed
from bitprint.methods.dpsh import DPSH
from bitprint.methods.dsdh import DSDH
from bitprint.nets.mlp import MLP
from bitprint.nets.network import HashNetwork
from bitprint.supervision import class_matrix
from bitprint.training.loop import train
from bitprint.training.plan import Training
from bitprint.training.state import State

INPUTS, HIDDEN, BITS, COUNT, BATCH, EPOCHS = 5, 7, 6, 22, 8, 3
TRAINING = Training(epochs=EPOCHS, batch_size=BATCH)
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]])
LABELS = {
    "one label": np.arange(COUNT) % 3,
    "several labels": SEVERAL[np.arange(COUNT) % len(SEVERAL)],
}


@pytest.fixture
def float64():
    """Use float64 in the tested code, for an exact comparison with NumPy."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class DoubleNet(HashNetwork):
    """The same network without the casts to float32."""

    def forward(self, items):
        return self.head(self.trunk(items))


class Recorder:
    """Forward all calls to a method and record the rows of each batch."""

    views = 1

    def __init__(self, method):
        self.method = method
        self.batches = [[]]

    def prepare(self, state):
        self.method.prepare(state)
        self.first_codes = state.tensors.get("B", torch.empty(0)).numpy().copy()

    def loss(self, outputs, rows, state):
        self.batches[-1].append(rows.tolist())
        return self.method.loss(outputs, rows, state)

    def after_epoch(self, state):
        self.batches.append([])
        return self.method.after_epoch(state)


class Reference:
    """The network and SGD by hand; samples are rows."""

    def __init__(self, net):
        hidden, head = net.trunk.layers[0], net.head
        parameters = (hidden.weight, hidden.bias, head.weight, head.bias)
        self.weights = [part.detach().numpy().copy() for part in parameters]

    def forward(self, items):
        first, first_bias, last, last_bias = self.weights
        hidden = np.maximum(items @ first.T + first_bias, 0)
        return hidden, hidden @ last.T + last_bias

    def step(self, items, hidden, gradient, rate):
        """One step of plain SGD with weight decay 5e-4 on all four arrays, biases too."""
        last = self.weights[2]
        below = (gradient @ last) * (hidden > 0)
        gradients = [below.T @ items, below.sum(axis=0), gradient.T @ hidden, gradient.sum(axis=0)]
        for weights, slope in zip(self.weights, gradients, strict=True):
            weights -= rate * (slope + 5e-4 * weights)


def run(method, labels):
    """Train with the library; return initial weights, network, records and state."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((COUNT, INPUTS))
    torch.manual_seed(1)
    net = DoubleNet(MLP(INPUTS, [HIDDEN]), torch.nn.Linear(HIDDEN, BITS))
    start = Reference(net)
    classes = class_matrix(labels)
    state = State(
        torch.from_numpy(labels if labels.ndim == 1 else classes),
        torch.from_numpy(classes).double(),
        BATCH,
    )
    recorder = Recorder(method)
    history = train(net, recorder, Feed(features, torch.device("cpu")), state, TRAINING, seed=5)
    batches = recorder.batches[:-1]
    assert [sorted(chain.from_iterable(epoch)) for epoch in batches] == [
        list(range(COUNT))
    ] * EPOCHS
    assert [[len(rows) for rows in epoch] for epoch in batches] == [[8, 8, 6]] * EPOCHS
    assert batches[0] != batches[1]
    return features, start, Reference(net), recorder, state, history


def one_sided_gradient(outputs, buffer, rows, s, codes, eta):
    """(A - S) U - 2 eta (B - U_0), over the nominal batch size and N."""
    result = np.zeros_like(outputs)
    for position, i in enumerate(rows):
        for j in range(COUNT):
            a = reference.sigmoid(0.5 * float(outputs[position] @ buffer[j]))
            result[position] += (a - s[i, j]) * buffer[j]
        result[position] -= 2 * eta * (codes[position] - outputs[position])
    return result / (BATCH * COUNT)


weights = pytest.mark.parametrize(
    ("mu", "nu", "eta"), [(1.0, 0.1, 55.0), (1.0, 0.1, 0.02), (3.0, 1.5, 0.06)]
)


def rate(epoch):
    return np.logspace(-2, -6, EPOCHS)[epoch]


def signs(values):
    return np.where(values >= 0, 1.0, -1.0)


@pytest.mark.parametrize("kind", LABELS)
@weights
def test_authors_mode_is_the_release_step_for_step(kind, mu, nu, eta, float64):
    labels = LABELS[kind]
    Y, s = class_matrix(labels).T.astype(float), reference.share_a_label(labels)
    features, mine, theirs, recorder, state, history = run(
        DSDH(BITS, mode="authors", mu=mu, nu=nu, eta=eta), labels
    )
    U, against_network = np.zeros((COUNT, BITS)), []
    for epoch in range(EPOCHS):
        changed = 0
        for rows in recorder.batches[epoch]:
            hidden, outputs = mine.forward(features[rows])
            U[rows] = outputs
            W = reference.solve_classifier(signs(outputs).T, Y[:, rows], nu / mu)
            P = W @ Y[:, rows] + eta / mu * outputs.T
            B = reference.descend(np.zeros_like(P), W, P, sweeps=10).T
            changed += (signs(outputs) != B).sum()
            gradient = one_sided_gradient(outputs, U, rows, s, B, eta)
            mine.step(features[rows], hidden, gradient, rate(epoch))
        against_network.append(changed / U.size)
    for expected, found in zip(mine.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(state.tensors["U"].numpy(), U, rtol=1e-11, atol=1e-13)
    assert [row["changed_bits"] for row in history] == pytest.approx(against_network)
    assert [row["lr"] for row in history] == pytest.approx(np.logspace(-2, -6, EPOCHS))
    if eta < 1:
        assert min(against_network) > 0.05  # the discrete step changes codes in this test


@pytest.mark.parametrize("kind", LABELS)
@weights
def test_paper_mode_solves_after_each_epoch(kind, mu, nu, eta, float64):
    labels = LABELS[kind]
    Y, s = class_matrix(labels).T.astype(float), reference.share_a_label(labels)
    features, mine, theirs, recorder, state, history = run(
        DSDH(BITS, mu=mu, nu=nu, eta=eta), labels
    )
    U, B = np.zeros((COUNT, BITS)), recorder.first_codes
    for epoch in range(EPOCHS):
        for rows in recorder.batches[epoch]:
            hidden, outputs = mine.forward(features[rows])
            U[rows] = outputs
            gradient = one_sided_gradient(outputs, U, rows, s, B[rows], eta)
            mine.step(features[rows], hidden, gradient, rate(epoch))
        W = reference.solve_classifier(B.T, Y, nu / mu)
        B = reference.descend(B.T, W, W @ Y + eta / mu * U.T, sweeps=10).T
    for expected, found in zip(mine.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(state.tensors["B"].numpy(), B)
    assert history[-1]["changed_bits"] == pytest.approx(np.mean(signs(U) != B))


def test_dpsh_pulls_to_the_signs_of_each_batch(float64):
    labels = LABELS["one label"]
    s = reference.share_a_label(labels)
    features, mine, theirs, recorder, _, history = run(DPSH(BITS), labels)
    U, losses = np.zeros((COUNT, BITS)), []
    for epoch in range(EPOCHS):
        parts = {"pair": 0.0, "quantisation": 0.0}
        for rows in recorder.batches[epoch]:
            hidden, outputs = mine.forward(features[rows])
            U[rows] = outputs
            for position, i in enumerate(rows):
                for j in range(COUNT):
                    t = 0.5 * float(outputs[position] @ U[j])
                    parts["pair"] += reference.log1p_exp(t) - s[i, j] * t
            parts["quantisation"] += 10 * float(((signs(outputs) - outputs) ** 2).sum())
            gradient = one_sided_gradient(outputs, U, rows, s, signs(outputs), eta=10.0)
            mine.step(features[rows], hidden, gradient, rate(epoch))
        losses.append({name: value / (BATCH * COUNT) / 3 for name, value in parts.items()})
    for expected, found in zip(mine.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    for row, expected in zip(history, losses, strict=True):
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-10)


def test_buffer_has_the_outputs_of_a_constant_network(float64):
    labels = LABELS["one label"]
    features = np.random.default_rng(0).standard_normal((COUNT, INPUTS))
    net = DoubleNet(MLP(INPUTS, [HIDDEN]), torch.nn.Linear(HIDDEN, BITS))
    state = State(torch.from_numpy(labels), torch.from_numpy(class_matrix(labels)), BATCH)
    still = Training(epochs=1, batch_size=BATCH, lr=0.0)
    train(net, DPSH(BITS), Feed(features, torch.device("cpu")), state, still)
    with torch.no_grad():
        fresh = net(torch.from_numpy(features))
    torch.testing.assert_close(state.tensors["U"], fresh, rtol=1e-12, atol=1e-14)
