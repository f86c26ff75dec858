"""Hash centers: distances against brute force, majorities and cosines by loops."""

import itertools
import math

import numpy as np
import pytest
import torch

from bitprint.methods.centers import (
    balanced_centers,
    choose_apart,
    class_centers,
    cosines,
    guaranteed_distance,
    hadamard_centers,
    majority,
    random_centers,
    separated_centers,
)

SIZES = [(2, 1), (3, 1), (3, 2), (2, 3), (5, 3), (4, 4), (7, 5), (10, 12), (21, 24), (100, 48)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def distances(centers):
    """Return the Hamming distances of all pairs, by loops."""
    codes = centers.tolist()
    return [
        sum(a != b for a, b in zip(some, other, strict=True))
        for some, other in itertools.combinations(codes, 2)
    ]


def best_distance(count, bits):
    """Return the largest possible least distance, by trying all sets; one code is 0."""
    codes = range(1, 2**bits)
    return max(
        min((a ^ b).bit_count() for a, b in itertools.combinations((0, *rest), 2))
        for rest in itertools.combinations(codes, count - 1)
    )


# ---- Hadamard rows, balanced codes


@pytest.mark.parametrize(("count", "bits"), [(2, 1), (4, 2), (3, 4), (10, 16), (32, 16), (100, 64)])
def test_hadamard_centers_are_half_or_all_bits_apart(count, bits):
    centers = hadamard_centers(count, bits)
    assert centers.shape == (count, bits)
    assert torch.equal(centers.abs(), torch.ones(count, bits))
    assert set(distances(centers)) <= {bits / 2, bits}
    rows = centers[:bits]
    assert torch.equal(rows @ rows.t(), bits * torch.eye(len(rows)))


@pytest.mark.parametrize(("count", "bits"), [(3, 1), (9, 4), (10, 12), (2, 24), (129, 64)])
def test_hadamard_centers_are_none_without_enough_rows(count, bits):
    assert hadamard_centers(count, bits) is None
    assert class_centers(count, bits, generator()).shape == (count, bits)


@pytest.mark.parametrize(("count", "bits"), [(10, 12), (21, 12), (10, 24), (100, 48), (7, 5)])
def test_balanced_centers_are_balanced_and_apart(count, bits):
    centers = balanced_centers(count, bits, generator())
    assert set(centers.sum(dim=1).tolist()) <= ({0.0} if bits % 2 == 0 else {-1.0, 1.0})
    assert min(distances(centers)) >= bits / 4  # the least distance that the authors of CSQ accept
    assert torch.equal(centers, balanced_centers(count, bits, generator()))
    assert not torch.equal(centers, balanced_centers(count, bits, generator(1)))


def test_balanced_centers_of_one_bit_have_both_signs():
    assert set(balanced_centers(5, 1, generator()).flatten().tolist()) == {-1.0, 1.0}


def test_choose_apart_takes_the_code_with_the_smallest_sum():
    pool = random_centers(40, 6, generator()).double()
    chosen = [pool[0].tolist()]
    for _ in range(4):
        sums = [
            sum(math.exp(-distances(torch.tensor([c, d]))[0]) for d in chosen)
            for c in pool.tolist()
        ]
        chosen.append(pool[int(np.argmin(sums))].tolist())
    assert choose_apart(pool, 5).tolist() == chosen


def test_choose_apart_repeats_codes_equally_often():
    pool = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=2)), dtype=torch.float64)
    _, counts = choose_apart(pool, 12).unique(dim=0, return_counts=True)
    assert counts.tolist() == [3, 3, 3, 3]


def test_random_centers_have_independent_fair_bits():
    centers = random_centers(200, 100, generator())
    assert set(centers.unique().tolist()) == {-1.0, 1.0}
    assert abs(centers.mean()) < 5 / math.sqrt(20_000)
    products = (centers @ centers.t()).fill_diagonal_(0) / 10  # standard normal, nearly
    assert products.square().sum() / (200 * 199) == pytest.approx(1, abs=0.05)


# ---- guaranteed distances


@pytest.mark.parametrize(("count", "bits"), SIZES)
def test_guaranteed_distance_is_the_bound_exactly(count, bits):
    def holds(distance):
        ball = sum(math.comb(bits, j) for j in range(distance))
        return (count - 1) * ball < 2**bits

    found = guaranteed_distance(count, bits)
    assert holds(found)
    assert found == bits or not holds(found + 1)


@pytest.mark.parametrize(
    ("count", "bits"), [(2, 3), (3, 3), (4, 3), (5, 3), (3, 4), (4, 4), (5, 4), (3, 5), (4, 5)]
)
def test_separated_centers_are_between_bound_and_brute_force(count, bits):
    best = best_distance(count, bits)
    assert guaranteed_distance(count, bits) <= best
    for seed in range(5):
        least = min(distances(separated_centers(count, bits, generator(seed))))
        assert guaranteed_distance(count, bits) <= least <= best


@pytest.mark.parametrize(("count", "bits"), [*SIZES, (70, 6), (10, 64), (16, 4), (200, 8)])
def test_separated_centers_keep_the_guaranteed_distance(count, bits):
    centers = separated_centers(count, bits, generator())
    start = distances(class_centers(count, bits, generator()))
    found = distances(centers)
    assert centers.abs().min() == centers.abs().max() == 1
    assert min(found) >= guaranteed_distance(count, bits)
    if min(start) >= guaranteed_distance(count, bits):  # it starts from these
        assert min(found) >= min(start)
        assert np.mean(found) >= np.mean(start)


def test_separated_centers_start_from_random_codes_if_others_are_near(monkeypatch):
    monkeypatch.setattr(
        "bitprint.methods.centers.class_centers", lambda count, bits, _: torch.ones(count, bits)
    )
    found = distances(separated_centers(10, 24, generator()))
    assert min(found) >= guaranteed_distance(10, 24) == 9
    assert np.mean(found) == pytest.approx(24 * 10 / 9 / 2, abs=0.01)  # no mean can be larger


def test_distances_of_ten_classes_are_those_of_the_page():
    """Numbers of docs/methods/mdshc.md."""
    lengths = (12, 24, 48)
    assert [guaranteed_distance(10, bits) for bits in lengths] == [4, 9, 20]
    for find in (class_centers, separated_centers):
        least = [min(distances(find(10, bits, generator()))) for bits in lengths]
        assert least == [6, 12, 24]


# ---- targets, cosines


def test_majority_of_centers_by_loops():
    rng = np.random.default_rng(0)
    classes, centers = rng.integers(0, 2, (30, 4)), rng.choice([-1.0, 1.0], (4, 5))
    classes[0] = 0
    ties = rng.choice([-1.0, 1.0], 5)
    found = majority(
        *(torch.tensor(each, dtype=torch.float64) for each in (classes, centers, ties))
    )
    tied = 0
    for i, k in itertools.product(range(30), range(5)):
        votes = sum(centers[c, k] for c in range(4) if classes[i, c])
        tied += votes == 0
        assert found[i, k] == (ties[k] if votes == 0 else math.copysign(1, votes))
    assert tied > 5


def test_cosines_by_loops_and_of_zero_outputs():
    outputs, centers = torch.randn(3, 4), random_centers(5, 4, generator())
    found = cosines(outputs, centers)
    for i, c in itertools.product(range(3), range(5)):
        expected = outputs[i] @ centers[c] / outputs[i].norm() / 2
        assert found[i, c].item() == pytest.approx(expected.item(), abs=1e-6)
    zero = torch.zeros(1, 4, requires_grad=True)
    cosines(zero, centers).sum().backward()
    assert torch.isfinite(zero.grad).all()
