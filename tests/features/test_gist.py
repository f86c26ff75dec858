import numpy as np
import pytest
import torch
from gist_reference import reference_gist
from torch.nn import functional

from bitprint.data.images import ImageSet
from bitprint.features import gist

ROUNDING = 1e-5
"""Tolerance for float32; features reach about 0.5."""


def textures(count, side, seed=0):
    """Images with structure at all scales: noise smoothed by boxes of growing size."""
    rng = np.random.default_rng(seed)
    images = np.empty((count, side, side, 3), np.uint8)
    for image in images:
        noise = rng.random((side, side, 3))
        for _ in range(rng.integers(0, 6)):
            noise = (noise + np.roll(noise, 1, axis=0) + np.roll(noise, 1, axis=1)) / 3
        noise -= noise.min()
        image[:] = 255 * noise / noise.max()
    return images


def grating(degrees, frequency, side):
    """A wave; frequency in cycles per pixel, angle from the x axis towards positive y."""
    y, x = np.mgrid[:side, :side]
    along = x * np.cos(np.radians(degrees)) + y * np.sin(np.radians(degrees))
    wave = 127.5 + 100 * np.cos(2 * np.pi * frequency * along)
    return np.repeat(np.rint(wave).astype(np.uint8)[:, :, None], 3, axis=2)


def blocks(features):
    """(N, 512) -> (N, scale, orientation, row, column)."""
    return features.reshape(-1, 4, 8, 4, 4).transpose(0, 1, 2, 4, 3)


@pytest.mark.parametrize("side", [32, 50, 8, 13, 4])
def test_equals_the_recipe_step_by_step(side):
    """Even and odd sizes, cells of unequal size, and images smaller than their padding."""
    images = textures(5, side)
    features = gist(images)
    assert features.shape == (5, 512)
    assert features.dtype == np.float32
    assert (features >= 0).all()
    expected = np.array([reference_gist(image) for image in images])
    assert expected.max() > 0.1
    np.testing.assert_allclose(features, expected, rtol=0, atol=ROUNDING)


def bilinear(gray, size):
    """Resize pixel by pixel, with pixel centers at halves and a repeated border."""
    result = np.empty((size, size))
    places = [np.clip((i + 0.5) * len(gray) / size - 0.5, 0, len(gray) - 1) for i in range(size)]
    for i, y in enumerate(places):
        for j, x in enumerate(places):
            top, left = int(y), int(x)
            bottom, right = min(top + 1, len(gray) - 1), min(left + 1, len(gray) - 1)
            upper = gray[top, left] + (x - left) * (gray[top, right] - gray[top, left])
            lower = gray[bottom, left] + (x - left) * (gray[bottom, right] - gray[bottom, left])
            result[i, j] = upper + (y - top) * (lower - upper)
    return result


def test_a_size_resizes_bilinearly_first():
    images = textures(2, 20)
    grays = images.astype(np.float64).mean(axis=3)
    expected = np.array([reference_gist(bilinear(gray, 48)) for gray in grays])
    np.testing.assert_allclose(gist(images, size=48), expected, rtol=0, atol=ROUNDING)
    assert np.abs(expected - gist(images)).max() > 100 * ROUNDING


def test_a_smaller_size_averages():
    """Antialiased, as in the preprocessing of networks."""
    images = textures(2, 50)
    gray = torch.from_numpy(images).double().mean(dim=3)
    shrunk = functional.interpolate(gray[:, None], (24, 24), mode="bilinear", antialias=True)
    expected = np.array([reference_gist(image.numpy()) for image in shrunk[:, 0]])
    np.testing.assert_allclose(gist(images, size=24), expected, rtol=0, atol=ROUNDING)


def test_oblong_images_need_a_size():
    images = textures(2, 40)[:, :30]
    assert gist(images, size=32).shape == (2, 512)
    with pytest.raises(ValueError, match="square images, got 30 x 40; set size"):
        gist(images)


@pytest.mark.parametrize("value", [0, 77, 255])
@pytest.mark.parametrize("size", [None, 128, 45])
def test_a_constant_image_gives_zeros(value, size):
    assert not gist(np.full((2, 32, 32, 3), value, np.uint8), size=size).any()


def test_brightness_and_contrast_do_not_matter():
    dim = textures(5, 32) // 3
    np.testing.assert_allclose(gist(2 * dim + 40), gist(dim), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(gist(3 * dim), gist(dim), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("side", [32, 64])
def test_a_quarter_turn_moves_orientations_by_four_and_turns_the_grid(side):
    images = textures(20, side)
    before = blocks(gist(images))
    after = blocks(gist(np.rot90(images, axes=(1, 2))))
    expected = np.rot90(np.roll(before, 4, axis=2), axes=(3, 4))
    error = np.linalg.norm(after - expected) / np.linalg.norm(expected)
    assert error < 0.01
    unturned = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert unturned > 0.1


@pytest.mark.parametrize(("degrees", "orientation"), [(0, 0), (22.5, 7), (45, 6), (90, 4)])
@pytest.mark.parametrize("scale", range(4))
def test_a_grating_excites_its_orientation_and_scale(degrees, orientation, scale):
    frequency = 0.3 / 1.85**scale
    energies = blocks(gist(grating(degrees, frequency, 128)[None]))[0].mean(axis=(2, 3))
    assert np.unravel_index(energies.argmax(), energies.shape) == (scale, orientation)
    # The coarsest wave has 1.5 cycles in 32 pixels, and the prefilter removes most of it.
    small = blocks(gist(grating(degrees, frequency, 32)[None]))[0].mean(axis=(2, 3))
    assert small[scale].argmax() == orientation


def test_cells_have_the_documented_positions():
    """A patch of noise in row 1, column 2 of the grid."""
    image = np.zeros((1, 64, 64, 3), np.uint8)
    image[0, 20:28, 36:44] = textures(1, 8)[0]
    finest = blocks(gist(image))[0, 0].sum(axis=0)
    assert np.unravel_index(finest.argmax(), finest.shape) == (1, 2)
    assert gist(image).reshape(32, 16)[:8].sum(axis=0).argmax() == 2 * 4 + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_an_image_does_not_see_its_neighbours(threads):
    torch.set_num_threads(threads)
    images = textures(70, 16)
    together = gist(images)
    for row in (0, 33, 69):
        alone = gist(images[row : row + 1])[0]
        np.testing.assert_allclose(together[row], alone, rtol=0, atol=1e-6)
    turned = gist(images[::-1])[::-1]
    np.testing.assert_allclose(together, turned, rtol=0, atol=1e-6)


def test_a_set_is_read_by_its_rows():
    images = ImageSet(textures(9, 16)).subset([7, 2, 2])
    np.testing.assert_allclose(gist(images), gist(images.pixels[[7, 2, 2]]), rtol=0, atol=1e-6)
    assert gist(images.subset([])).shape == (0, 512)


def test_progress_counts_the_images():
    calls = []
    images = np.zeros((1000, 4, 4, 3), np.uint8)
    gist(images, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) > 1
    assert calls == sorted(set(calls))
    assert calls[-1] == (1000, 1000)


@pytest.mark.parametrize(
    ("images", "size", "message"),
    [
        (np.zeros((2, 3, 3, 3), np.uint8), None, "at least 4 x 4 pixels, got 3"),
        (np.zeros((2, 8, 8, 3), np.uint8), 0, "at least 4 x 4 pixels, got 0"),
        (np.zeros((2, 8, 8, 3), np.float32), None, "uint8"),
        (np.zeros((2, 8, 8), np.uint8), None, "shape"),
    ],
)
def test_wrong_images_raise(images, size, message):
    with pytest.raises(ValueError, match=message):
        gist(images, size=size)
