from itertools import product

import dsdh_reference as reference
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bitprint.methods.discrete import dcc, ridge, sgn

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(autouse=True, scope="module", params=DEVICES)
def device(request):
    """Run each test on all devices; there is a separate kernel for GPUs."""
    with torch.device(request.param):
        yield request.param


def random_problem(seed, count=40, bits=6, classes=4, ratio=0.1):
    """Return codes, classifier and linear term as in DSDH; rows are samples."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    targets = np.eye(classes)[labels]
    # Codes correlated with the classes, so that the label term couples the bits.
    codes = rng.choice([-1.0, 1.0], (classes, bits))[labels]
    codes[rng.random(codes.shape) < 0.2] *= -1
    classifier = np.linalg.solve(codes.T @ codes + 0.1 * np.eye(bits), codes.T @ targets)
    pull = targets @ classifier.T + ratio * rng.standard_normal((count, bits))
    return codes, classifier, pull


def descend(codes, classifier, pull, sweeps=10):
    tensors = (torch.tensor(np.array(part, float)) for part in (codes, classifier, pull))
    return dcc(*tensors, sweeps=sweeps).numpy(force=True)


def values(codes, classifier, pull):
    """Return the objective of each sample by its definition."""
    return ((codes @ classifier) ** 2).sum(axis=1) - 2 * (codes * pull).sum(axis=1)


# ---- ridge


@pytest.mark.parametrize(("mu", "nu"), [(1.0, 0.1), (0.3, 5.0), (20.0, 1e-3)])
def test_ridge_is_where_the_gradient_vanishes(mu, nu):
    rng = np.random.default_rng(0)
    B, Y = rng.choice([-1.0, 1.0], (30, 6)), np.eye(4)[rng.integers(4, size=30)]
    W = ridge(torch.from_numpy(B), torch.from_numpy(Y), nu / mu).numpy()
    gradient = -2 * mu * B.T @ (Y - B @ W) + 2 * nu * W
    assert np.abs(gradient).max() < 1e-10
    assert W.shape == (6, 4)


def test_ridge_minimizes_its_objective():
    rng = np.random.default_rng(1)
    B, Y = rng.choice([-1.0, 1.0], (12, 3)), rng.random((12, 2))
    W = ridge(torch.from_numpy(B), torch.from_numpy(Y), 0.7).numpy()

    def loss(W):
        return (
            sum(float(((y - b @ W) ** 2).sum()) for b, y in zip(B, Y, strict=True))
            + 0.7 * (W**2).sum()
        )

    assert np.abs(reference.finite_differences(loss, W)).max() < 1e-8


@pytest.mark.parametrize("shape", [(30, 6), (5, 12)])
def test_ridge_equals_its_dual_form(shape):
    rng = np.random.default_rng(2)
    B, Y = rng.standard_normal(shape), rng.standard_normal((shape[0], 3))
    dual = B.T @ np.linalg.solve(B @ B.T + 0.5 * np.eye(shape[0]), Y)
    primal = ridge(torch.from_numpy(B), torch.from_numpy(Y), 0.5).numpy()
    np.testing.assert_allclose(primal, dual, rtol=1e-9, atol=1e-12)


# ---- coordinate descent

small_whole_numbers = st.integers(-4, 4).map(float)


@st.composite
def whole_number_problems(draw):
    """Integer problems: float64 is exact and zero arguments are common."""
    count, bits, classes = draw(st.integers(1, 5)), draw(st.integers(1, 7)), draw(st.integers(1, 4))
    codes = arrays.arrays(float, (count, bits), elements=st.sampled_from([-1.0, 1.0]))
    classifier = arrays.arrays(float, (bits, classes), elements=small_whole_numbers)
    pull = arrays.arrays(float, (count, bits), elements=st.integers(-20, 20).map(float))
    return draw(codes), draw(classifier), draw(pull)


@settings(max_examples=150, deadline=None)
@given(whole_number_problems())
def test_the_objective_never_increases_sweep_by_sweep(problem):
    codes, classifier, pull = problem
    before = values(codes, classifier, pull)
    for sweeps in range(1, 8):
        found = descend(codes, classifier, pull, sweeps)
        after = values(found, classifier, pull)
        assert set(np.unique(found)) <= {-1.0, 1.0}
        assert np.all(after <= before)
        before = after


@settings(max_examples=150, deadline=None)
@given(whole_number_problems())
def test_no_single_flip_helps_at_the_end(problem):
    codes, classifier, pull = problem
    found = descend(codes, classifier, pull, sweeps=1000)
    at_rest = values(found, classifier, pull)
    for k in range(codes.shape[1]):
        flipped = found.copy()
        flipped[:, k] *= -1
        assert np.all(values(flipped, classifier, pull) >= at_rest)


@settings(max_examples=100, deadline=None)
@given(whole_number_problems(), st.integers(1, 4))
def test_equals_equation_18_in_columns(problem, sweeps):
    codes, classifier, pull = problem
    expected = reference.descend(codes.T, classifier, pull.T, sweeps).T
    np.testing.assert_array_equal(descend(codes, classifier, pull, sweeps), expected)


@pytest.mark.parametrize("ratio", [1e-3, 0.1, 1.0, 55.0])
@pytest.mark.parametrize("start", ["random", "zeros"])
def test_equals_equation_18_on_real_numbers(ratio, start):
    codes, classifier, pull = random_problem(3, count=60, bits=9, classes=5, ratio=ratio)
    if start == "zeros":
        codes = np.zeros_like(codes)
    for sweeps in (1, 2, 10):
        expected = reference.descend(codes.T, classifier, pull.T, sweeps).T
        np.testing.assert_array_equal(descend(codes, classifier, pull, sweeps), expected)


@pytest.mark.parametrize("bits", [1, 33, 64, 100])
def test_equals_equation_18_at_any_length(bits):
    codes, classifier, pull = random_problem(8, count=30, bits=bits, classes=5)
    expected = reference.descend(codes.T, classifier, pull.T, 10).T
    np.testing.assert_array_equal(descend(codes, classifier, pull), expected)


def optimal_share(ratio):
    """Return the number of samples with the best of all 2^K codes."""
    shares = []
    for seed in range(5):
        codes, classifier, pull = random_problem(seed, count=200, bits=8, classes=6, ratio=ratio)
        cube = np.array(list(product([-1.0, 1.0], repeat=8)))
        best = [values(cube, classifier, row[None]).min() for row in pull]
        found = values(descend(codes, classifier, pull, sweeps=100), classifier, pull)
        assert np.all(found >= np.array(best) - 1e-12)
        shares.append(np.mean(found <= np.array(best) + 1e-9))
    return np.mean(shares)


def test_often_optimal_when_labels_dominate():
    assert optimal_share(ratio=1e-5) >= 0.7


def test_usually_optimal_when_outputs_dominate():
    assert optimal_share(ratio=10.0) >= 0.99


def test_a_bit_whose_argument_is_zero_keeps_its_value():
    classifier = np.zeros((3, 2))
    pull = np.array([[0.0, -1.0, 0.0]])
    for bit in (-1.0, 1.0):
        found = descend([[bit, 1.0, -bit]], classifier, pull)
        np.testing.assert_array_equal(found, [[bit, -1.0, -bit]])


def test_zero_by_coupled_bits_keeps_its_value_too():
    # q_1 - b_2 (w_2 . w_1) = 2 - 1 * 2 = 0 for the first bit, and 9 for the second.
    for bit in (-1.0, 1.0):
        found = descend([[bit, 1.0]], [[1.0], [2.0]], [[2.0, 9.0]], sweeps=1)
        np.testing.assert_array_equal(found, [[bit, 1.0]])


def test_zeros_remain_only_for_zero_arguments():
    _, classifier, pull = random_problem(4)
    found = descend(np.zeros_like(pull), classifier, pull)
    assert set(np.unique(found)) == {-1.0, 1.0}
    # The first bit of the first sweep does not depend on other bits.
    first = descend(np.zeros_like(pull), classifier, pull, sweeps=1)
    np.testing.assert_array_equal(first[:, 0], np.where(pull[:, 0] >= 0, 1, -1))


def test_input_is_left_alone_and_dtype_and_device_are_kept():
    problem = [torch.tensor(part) for part in random_problem(5)]
    for dtype in (torch.float32, torch.float64):
        codes, classifier, pull = (part.to(dtype) for part in problem)
        copies = codes.clone(), classifier.clone(), pull.clone()
        found = dcc(codes, classifier, pull)
        assert not torch.equal(found, codes)
        for part, copy in zip((codes, classifier, pull), copies, strict=True):
            assert torch.equal(part, copy)
        assert found.dtype == dtype
        assert found.device == codes.device
        assert found.shape == codes.shape


def test_samples_are_independent_of_each_other_and_threads():
    codes, classifier, pull = random_problem(6, count=10_000)
    usual = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = descend(codes, classifier, pull)
        torch.set_num_threads(2)
        np.testing.assert_array_equal(descend(codes, classifier, pull), one)
    finally:
        torch.set_num_threads(usual)
    some = [0, 4095, 4096, 5000, 9999]
    np.testing.assert_array_equal(descend(codes[some], classifier, pull[some]), one[some])


def test_trace_identity_of_the_step():
    """mu ||Y - W'B||^2 + eta ||B - H||^2 = mu (||W'B||^2 - 2 tr(B'P)) + const."""
    rng = np.random.default_rng(7)
    Y, H, W = (
        np.eye(3)[rng.integers(3, size=20)].T,
        rng.standard_normal((5, 20)),
        rng.random((5, 3)),
    )
    mu, eta = 0.7, 2.3
    P = W @ Y + eta / mu * H
    differences = []
    for _ in range(10):
        B = rng.choice([-1.0, 1.0], (5, 20))
        fit = sum(((Y[:, i] - W.T @ B[:, i]) ** 2).sum() for i in range(20))
        pull = sum(((B[:, i] - H[:, i]) ** 2).sum() for i in range(20))
        differences.append(mu * fit + eta * pull - mu * reference.discrete_objective(B, W, P))
    assert np.ptp(differences) < 1e-10


def test_sgn_has_two_symbols():
    values = torch.tensor([-1e-30, -0.0, 0.0, 2.0])
    assert sgn(values).tolist() == [-1.0, 1.0, 1.0, 1.0]
