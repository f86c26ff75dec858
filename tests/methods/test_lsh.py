import numpy as np
import pytest

import bitprint as bp

ANGLES = [0.1, 0.5, 1.0, np.pi / 2, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("angle", ANGLES)
def test_bits_differ_in_proportion_to_the_angle(angle):
    """P[h(x) != h(y)] = angle / pi, within three standard deviations of 20,000 coins."""
    bits = 20_000
    rng = np.random.default_rng(1)
    plane, _ = np.linalg.qr(rng.standard_normal((30, 2)))
    pair = np.stack([plane[:, 0], np.cos(angle) * plane[:, 0] + np.sin(angle) * plane[:, 1]])
    codes = bp.create("lsh", bits=bits, centre=False).fit(pair).encode(pair)
    share = codes.hamming(codes)[0, 1] / bits
    p = angle / np.pi
    assert abs(share - p) < 3 * np.sqrt(p * (1 - p) / bits)


def test_centring_measures_angles_at_the_mean():
    rng = np.random.default_rng(2)
    far = 50 + rng.standard_normal((200, 16))
    away = bp.create("lsh", bits=256, centre=False).fit(far).encode(far)
    centred = bp.create("lsh", bits=256).fit(far).encode(far)
    assert away.hamming(away).mean() < 10  # all in nearly the same direction from the origin
    assert 115 < centred.hamming(centred).mean() < 135
    moved = bp.create("lsh", bits=256).fit(far - 50).encode(far - 50)
    assert np.mean(moved.signs() != centred.signs()) < 1e-3  # equal except for rounding


def test_scale_does_not_matter_without_centring():
    features = np.random.default_rng(3).standard_normal((50, 8)).astype(np.float32)
    hasher = bp.create("lsh", bits=64, centre=False).fit(features)
    assert hasher.encode(features) == hasher.encode(2 * features)
    assert hasher.encode(features) != hasher.encode(-features)


def test_longer_codes_begin_with_shorter_ones():
    features = np.random.default_rng(4).standard_normal((50, 8))
    codes = {
        bits: bp.create("lsh", bits=bits, seed=7).fit(features).encode(features)
        for bits in (12, 64)
    }
    np.testing.assert_array_equal(codes[12].signs(), codes[64].signs()[:, :12])


def test_seed_decides():
    features = np.random.default_rng(5).standard_normal((50, 8))
    same, again, other = (
        bp.create("lsh", bits=12, seed=seed).fit(features).encode(features) for seed in (1, 1, 2)
    )
    assert same == again
    assert same != other


def test_twelve_bits_by_hand():
    features = np.random.default_rng(6).standard_normal((9, 5)).astype(np.float32)
    hasher = bp.create("lsh", bits=12).fit(features)
    codes = hasher.encode(features)
    assert codes.bits == 12
    assert codes.packed.shape == (9, 2)
    assert hasher.projections_.shape == (5, 12)
    mean = features.astype(float).mean(axis=0)
    for row, signs in zip(features, codes.signs(), strict=True):
        for k in range(12):
            value = sum((row[d] - mean[d]) * float(hasher.projections_[d, k]) for d in range(5))
            assert signs[k] == (1 if value >= 0 else -1)


def test_projections_are_standard_normal():
    hasher = bp.create("lsh", bits=1000).fit(np.eye(100))
    entries = hasher.projections_.ravel()
    # 100,000 draws: four standard deviations of mean, variance and fourth moment.
    assert abs(entries.mean()) < 4 / np.sqrt(1e5)
    assert abs(entries.var() - 1) < 4 * np.sqrt(2 / 1e5)
    assert abs((entries**4).mean() - 3) < 4 * np.sqrt(96 / 1e5)


def test_images_are_read_as_pixels():
    pixels = np.random.default_rng(8).integers(0, 256, (6, 4, 4, 3), np.uint8)
    by_images = bp.create("lsh", bits=32).fit(bp.ImageSet(pixels)).encode(bp.ImageSet(pixels))
    flat = pixels.reshape(6, -1) / np.float32(255)
    assert by_images == bp.create("lsh", bits=32).fit(flat).encode(flat)
