"""DTSH: triplets from the buffer and from the batch, against plain loops."""

import math

import dsdh_reference as reference
import numpy as np
import pytest
import torch
import triplet_cases as cases
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bitprint.methods.dtsh import DTSH, partners

both_kinds = pytest.mark.parametrize(
    "labels", [cases.ONE, cases.SEVERAL], ids=["one label", "several labels"]
)
both_modes = pytest.mark.parametrize("triplets", ["buffer", "batch"])
ALL = torch.arange(8)
RELEASE = 5000


@pytest.fixture
def float64():
    """Use a float64 buffer, for an exact comparison with NumPy."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def state_with_buffer(hasher, labels, batch_size=8):
    state = cases.make_state(labels, batch_size)
    hasher.prepare(state)
    state.tensors["U"] = cases.random_outputs(len(labels), hasher.bits, seed=5)
    return state


def with_one_choice(bits=4):
    """Return a hasher and a state with one positive and one negative for each of two queries."""
    labels = np.array([0, 1, 0, 1])
    hasher = DTSH(bits, positives=2, negatives=3, margin=0.7, eta=1.3)
    return hasher, state_with_buffer(hasher, labels), torch.tensor([1, 0]), {0: (2, 3), 1: (3, 2)}


# ---- candidates

some_labels = st.one_of(
    arrays.arrays(np.int64, 9, elements=st.integers(0, 3)),
    arrays.arrays(np.float32, (9, 3), elements=st.sampled_from([0.0, 1.0])),
)


@given(labels=some_labels, batch=st.permutations(range(9)), size=st.integers(1, 9))
def test_partners_are_outside_of_the_batch_and_of_the_right_kind(labels, batch, size):
    rows = batch[:size]
    similar, dissimilar = partners(torch.tensor(rows), torch.from_numpy(labels))
    shared = reference.share_a_label(labels)
    for place, q in enumerate(rows):
        for j in range(9):
            free = j != q if size == 9 else j not in rows
            assert similar[place, j] == (free and shared[q, j] == 1)
            assert dissimilar[place, j] == (free and shared[q, j] == 0)


# ---- the loss


def test_triplets_of_the_buffer_by_loops(float64):
    hasher, state, rows, choice = with_one_choice()
    U, outputs = state.tensors["U"].numpy().copy(), cases.random_outputs(2, 4)
    parts = hasher.loss(outputs, rows, state)
    triplet = quantisation = 0.0
    for h, q in zip(outputs.numpy(), rows.tolist(), strict=True):
        p, n = choice[q]
        t = float(h @ U[p]) / 2 - float(h @ U[n]) / 2 - 0.7
        triplet += 2 * 3 * -math.log(reference.sigmoid(t))
        quantisation += sum(((1.0 if value >= 0 else -1.0) - value) ** 2 for value in h)
    scale = 2 / (8 * RELEASE)
    assert parts["triplet"].item() == pytest.approx(scale * triplet, rel=1e-12)
    assert parts["quantisation"].item() == pytest.approx(scale * 1.3 * quantisation, rel=1e-12)


def test_gradient_of_a_query_is_that_of_the_release(float64):
    """The gradient step of the release: (sum (1 - A)(u_p - u_n) - 4 eta (u - sgn u)) / (b N)."""
    hasher, state, rows, choice = with_one_choice()
    U, outputs = state.tensors["U"].numpy().copy(), cases.random_outputs(2, 4).requires_grad_()
    sum(hasher.loss(outputs, rows, state).values()).backward()
    for place, q in enumerate(rows.tolist()):
        h, (p, n) = outputs[place].detach().numpy(), choice[q]
        a = reference.sigmoid(float(h @ (U[p] - U[n])) / 2 - 0.7)
        step = 2 * 3 * (1 - a) * (U[p] - U[n]) - 4 * 1.3 * (h - np.where(h >= 0, 1, -1))
        np.testing.assert_allclose(outputs.grad[place], -step / (8 * RELEASE), rtol=1e-10)


@both_kinds
def test_triplets_of_the_batch_by_loops(labels, float64):
    hasher = DTSH(5, triplets="batch", positives=2, negatives=7)
    outputs = cases.random_outputs(8, 5)
    parts = hasher.loss(outputs, ALL, state_with_buffer(hasher, labels, batch_size=16))
    H = outputs.numpy()
    terms = {}
    for q, p, n in cases.triplets_of(labels):
        t = float(H[q] @ H[p]) / 2 - float(H[q] @ H[n]) / 2 - 5 / 2
        terms.setdefault(q, []).append(reference.log1p_exp(-t))
    # Each query has the weight of the number of drawn triplets.
    expected = 2 / (16 * RELEASE) * 2 * 7 * sum(sum(t) / len(t) for t in terms.values())
    assert parts["triplet"].item() == pytest.approx(expected, rel=1e-12)


@both_kinds
@both_modes
def test_gradient_by_finite_differences(labels, triplets, float64):
    hasher = DTSH(4, triplets=triplets, positives=3, negatives=5, eta=0.8)
    state = state_with_buffer(hasher, labels)
    rows = torch.tensor([5, 0, 1, 4])
    found, expected = cases.gradient_and_differences(
        hasher, state, rows, cases.random_outputs(4, 4)
    )
    np.testing.assert_allclose(8 * RELEASE * found, 8 * RELEASE * expected, rtol=1e-5, atol=1e-5)
    assert np.abs(8 * RELEASE * found).max() > 1


@both_kinds
@both_modes
def test_outputs_of_zero_and_the_margin_of_half_the_bits(labels, triplets, float64):
    hasher = DTSH(6, triplets=triplets)
    state = cases.make_state(labels)
    hasher.prepare(state)
    loss = hasher.loss(torch.zeros(8, 6), ALL, state)["triplet"].item()
    queries = {q for q, _, _ in cases.triplets_of(labels)}
    expected = 2 / (8 * RELEASE) * 50 * 450 * len(queries) * math.log(1 + math.exp(3))
    assert loss == pytest.approx(expected, rel=1e-12)


@both_modes
def test_satisfied_margin_has_zero_loss(triplets):
    signs = torch.tensor([[1.0] * 12, [-1.0] * 12])[torch.tensor([0, 0, 1, 1, 0, 1])]
    labels = np.array([0, 0, 1, 1, 0, 1])
    hasher = DTSH(12, triplets=triplets)
    state = cases.make_state(labels)
    hasher.prepare(state)
    # t_qp - t_qn - margin is 12 * 16 - 6
    assert hasher.loss(4 * signs, torch.arange(6), state)["triplet"] == 0
    assert hasher.loss(signs, torch.arange(6), state)["quantisation"] == 0
    assert hasher.loss(signs.roll(1, 0), torch.arange(6), state)["triplet"] > 1


def test_the_order_of_the_batch_does_not_matter(float64):
    hasher = DTSH(5, triplets="batch")
    state, outputs = state_with_buffer(hasher, cases.SEVERAL), cases.random_outputs(8, 5)
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    first = hasher.loss(outputs, ALL, state)
    torch.testing.assert_close(hasher.loss(outputs[order], order, state), first)
    hasher, state, rows, _ = with_one_choice()
    outputs = cases.random_outputs(2, 4)
    torch.testing.assert_close(
        hasher.loss(outputs.flip(0), rows.flip(0), state), hasher.loss(outputs, rows, state)
    )


@both_modes
def test_buffer_has_the_last_outputs(triplets):
    hasher = DTSH(4, triplets=triplets)
    state = state_with_buffer(hasher, cases.ONE)
    before, outputs = state.tensors["U"].clone(), cases.random_outputs(3, 4)
    hasher.loss(outputs, torch.tensor([6, 2, 3]), state)
    before[[6, 2, 3]] = outputs
    assert torch.equal(state.tensors["U"], before)


@both_modes
@pytest.mark.parametrize("labels", [[0], [1, 1, 1], [0, 1, 2], [[0, 0], [0, 0]]])
def test_no_triplets_have_no_effect(triplets, labels):
    cases.assert_nothing_to_rank(DTSH(4, triplets=triplets), labels)


# ---- training


@both_modes
def test_overfits_noise_and_saves(triplets, tmp_path, monkeypatch):
    hasher = DTSH(12, triplets=triplets, training=cases.recipe())
    assert cases.training_map(hasher) > 0.95
    cases.assert_saving_keeps_the_codes(hasher, cases.ITEMS, tmp_path, monkeypatch)


@both_modes
def test_learns_several_labels(triplets):
    labels = np.eye(4, dtype=int)[cases.CLASSES] | np.eye(4, dtype=int)[cases.CLASSES[::-1]]
    hasher = DTSH(12, triplets=triplets, positives=5, negatives=9, eta=0.2, training=cases.recipe())
    assert cases.training_map(hasher, labels) > 0.95


def test_a_batch_of_the_whole_set_draws_from_itself():
    training = cases.recipe(batch_size=64, lr=1e-2)
    hasher = DTSH(12, positives=5, negatives=9, eta=0.2, training=training)
    assert cases.training_map(hasher) > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"triplets": "all"}, "triplets must be buffer or batch, got 'all'"),
        ({"positives": 0}, "positives must be an integer"),
        ({"negatives": True}, "negatives must be an integer"),
        ({"margin": -1.0}, "margin must be a number >= 0"),
        ({"eta": math.nan}, "eta must be a number >= 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        DTSH(4, **options).fit(cases.ITEMS, cases.CLASSES)
