import math

import numpy as np
import pytest

from bitprint.methods.sh import SH


def reference_bits(features, bits):
    """Spectral hashing by loops: enumerate modes up to the bound, sort, one bit at a time."""
    centred = features - features.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2]
    coordinates = []
    for direction in directions[: min(bits, features.shape[1])]:
        sign = np.sign(direction[np.argmax(np.abs(direction))])
        coordinates.append(centred @ (sign * direction))
    sides = [z.max() - z.min() for z in coordinates]
    found = []
    for j, side in enumerate(sides):
        most = math.ceil((bits + 1) * side / max(sides)) - 1
        found += [((m * np.pi / side) ** 2, j, m) for m in range(1, most + 1)]
    columns = []
    for _, j, m in sorted(found)[:bits]:
        z = coordinates[j]
        columns.append(np.sin(np.pi / 2 + m * np.pi * (z - z.min()) / sides[j]) >= 0)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(("width", "bits"), [(6, 4), (6, 12), (3, 48), (1, 5)])
def test_bits_by_hand(width, bits):
    rng = np.random.default_rng(0)
    features = np.round(rng.standard_normal((150, width)) * 40 * np.linspace(3, 1, width)) + 11
    codes = SH(bits).fit(features).encode(features)
    np.testing.assert_array_equal(codes.signs() > 0, reference_bits(features, bits))


@pytest.fixture(scope="module")
def box():
    """4,000 uniform points in a box with sides 1.7 and 1."""
    return np.random.default_rng(1).random((4000, 2)) * [1.7, 1.0]


def test_modes_of_a_box(box):
    hasher = SH(8).fit(box)
    pairs = list(zip(hasher.component_.tolist(), hasher.mode_.tolist(), strict=True))
    assert pairs == [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2), (0, 4), (0, 5), (1, 3)]
    assert np.all(np.diff(hasher.frequency_) >= 0)
    np.testing.assert_allclose(hasher.frequency_[:2], [np.pi / 1.7, np.pi], rtol=0.02)


def test_first_bit_splits_the_widest_side_in_the_middle(box):
    hasher = SH(1).fit(box)
    line = np.stack([np.linspace(0, 1.7, 341), np.full(341, 0.5)], axis=1)
    first = hasher.encode(line).signs()[:, 0]
    assert np.count_nonzero(np.diff(first)) == 1
    # The estimated principal axis is slightly tilted, and so is the boundary.
    assert abs(line[np.argmax(np.diff(first) != 0), 0] - 0.85) < 0.02


def test_bits_are_balanced_and_uncorrelated(box):
    """Tolerance for 4,000 draws: four standard errors and the tilt of the estimated axes."""
    hasher = SH(8).fit(box)
    signs = hasher.encode(box).signs().astype(float)
    bound = 4 / np.sqrt(4000) + 0.02
    assert np.abs(signs.mean(axis=0)).max() < bound
    products = signs.T @ signs / 4000
    for first in range(8):
        for second in range(8):
            if hasher.component_[first] != hasher.component_[second]:
                assert abs(products[first, second]) < bound


def test_codes_outside_the_box_are_periodic():
    line = np.arange(11.0)[:, None]  # a box from 0 to 10
    hasher = SH(1).fit(line)
    outside = np.array([[-3.0], [-7.0], [14.0], [16.0], [24.0]])
    expected = np.cos(np.pi * outside / 10)
    np.testing.assert_allclose(hasher.project(outside), expected, atol=1e-6)


def test_codes_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(2)
    features = rng.standard_normal((100, 6))
    shuffled = features[rng.permutation(100)]
    codes = SH(24).fit(features).encode(features)
    assert SH(24).fit(shuffled).encode(features) == codes


def test_equal_frequencies_go_to_the_first_component():
    """Two sides of equal length; the second coordinate has a larger variance."""
    cross = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 1], [0, -1]])
    hasher = SH(6).fit(cross)
    np.testing.assert_array_equal(hasher.components_, [[0, 1], [1, 0]])
    assert hasher.component_.tolist() == [0, 1, 0, 1, 0, 1]
    assert hasher.mode_.tolist() == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("bits", [1, 5, 128])
@pytest.mark.parametrize("samples", [1, 3])
def test_features_that_are_constant_get_one_code(samples, bits):
    features = np.full((samples, 4), 0.3)
    codes = SH(bits).fit(features).encode(features)
    assert codes.bits == bits
    assert not codes.hamming(codes).any()


def test_directions_that_do_not_vary_get_no_bits():
    rng = np.random.default_rng(3)
    features = np.full((30, 5), 0.7)
    features[:, 2] = rng.random(30)
    hasher = SH(12).fit(features)
    assert hasher.component_.tolist() == [0] * 12
    assert hasher.mode_.tolist() == list(range(1, 13))


def test_fewer_samples_than_bits_and_features():
    features = np.random.default_rng(4).standard_normal((5, 20))
    codes = SH(64).fit(features).encode(features)
    assert len(np.unique(codes.packed, axis=0)) == 5
