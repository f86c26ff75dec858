import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance

from bitprint.data import draw_shapes
from bitprint.photos import likeness
from bitprint.photos.likeness import ALIKE, SIDE, differences, reduce_pixels, reduce_stream


def reduced(*images):
    """Reduce images of any size for comparison."""
    return reduce_pixels(np.stack([np.asarray(image.resize((SIDE, SIDE))) for image in images]))


def difference(one, other):
    return float(differences(reduced(one, other), np.array([0]), np.array([1]))[0])


def brute_force(one, other):
    """Compute the difference with plain loops."""
    levels = []
    for pixels in (one, other):
        values = pixels.astype(float) - pixels.mean()
        levels.append(128 + 40 * values / np.sqrt((values**2).mean() + 16))
    levels = [np.clip(np.rint(values), 0, 255) for values in levels]
    means = []
    for mine, theirs in (levels, levels[::-1]):
        total = 0.0
        for y in range(SIDE):
            for x in range(SIDE):
                around = theirs[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                lowest, highest = around.min(axis=(0, 1)), around.max(axis=(0, 1))
                cell = mine[y, x]
                total += np.maximum(0, np.maximum(cell - highest, lowest - cell)).sum()
        means.append(total / levels[0].size / 40)
    return max(means)


def test_differences_are_those_of_the_definition():
    pixels = draw_shapes(6, size=SIDE).pixels
    found = reduce_pixels(pixels)
    one, other = np.triu_indices(6, 1)
    expected = [brute_force(pixels[i], pixels[j]) for i, j in zip(one, other, strict=True)]
    assert differences(found, one, other) == pytest.approx(expected)
    assert differences(found, other, one) == pytest.approx(expected)
    assert min(expected) > ALIKE


def test_differences_do_not_depend_on_batches():
    found = reduce_pixels(draw_shapes(40, size=SIDE).pixels)
    one, other = np.triu_indices(40, 1)
    whole = differences(found, one, other)
    assert len(whole) == 780
    assert whole[-1:].tolist() == differences(found, one[-1:], other[-1:]).tolist()


def box(image):
    marked = image.copy()
    ImageDraw.Draw(marked).rectangle((72, 87, 92, 92), fill="white")
    return marked


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.resize((48, 48)),
        lambda image: ImageEnhance.Brightness(image).enhance(1.15),
        lambda image: ImageEnhance.Contrast(image).enhance(0.8),
        lambda image: image.crop((3, 3, 93, 93)),
        lambda image: image.crop((0, 5, 92, 96)),
        box,
    ],
    ids=["half", "brighter", "flatter", "cropped", "cropped at two sides", "marked"],
)
def test_copies_are_alike(change):
    for pixels in draw_shapes(10, size=96).pixels:
        image = Image.fromarray(pixels)
        assert difference(image, change(image)) <= ALIKE


def test_a_mirrored_picture_is_another():
    image = Image.fromarray(draw_shapes(1, size=96).pixels[0])
    assert difference(image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)) > ALIKE


def test_noise_does_not_make_plain_pictures_differ():
    rng = np.random.default_rng(0)
    plain = [
        Image.fromarray(rng.integers(120, 124, (SIDE, SIDE, 3), dtype=np.uint8)) for _ in range(2)
    ]
    assert difference(*plain) <= ALIKE
    assert difference(plain[0], Image.fromarray(draw_shapes(1, size=SIDE).pixels[0])) > ALIKE


@pytest.mark.parametrize(
    ("one", "other"),
    [("black", "#0a0a0a"), ("#3c3c3c", "white"), ("#c80000", "#640000"), ("#604040", "#406040")],
)
def test_uniform_images_of_different_colors_differ(one, other):
    plain = [Image.new("RGB", (SIDE, SIDE), color) for color in (one, other)]
    assert difference(*plain) > ALIKE
    assert difference(plain[0], plain[0]) == 0


@pytest.mark.parametrize("color", ["black", "#3c3c3c", "#c80000", "white"])
def test_plain_pictures_are_alike_however_they_were_saved(color):
    plain, file = Image.new("RGB", (320, 240), color), io.BytesIO()
    plain.save(file, "JPEG", quality=30)
    assert difference(plain, Image.open(file)) <= ALIKE


def test_mean_color_of_nonuniform_images_is_ignored():
    faint = draw_shapes(10, size=SIDE).pixels // 4
    found = reduce_pixels(np.concatenate([faint, faint + 60]))
    assert not found.uniform.any()
    assert np.all(differences(found, np.arange(10), np.arange(10, 20)) == 0)


def test_different_colors_differ():
    grey = np.tile(np.linspace(40, 200, SIDE, dtype=np.uint8), (SIDE, 1))
    red, blue = (np.zeros((SIDE, SIDE, 3), np.uint8) for _ in range(2))
    red[..., 0] = blue[..., 2] = grey
    assert difference(Image.fromarray(red), Image.fromarray(blue)) > ALIKE


@pytest.mark.parametrize("in_memory", [0, 2**26])
def test_a_stream_is_reduced_as_all_images_at_once(monkeypatch, in_memory):
    """One image fewer than announced, in batches of three; also in a temporary file."""
    monkeypatch.setattr(likeness, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(likeness, "_IMAGES", 3)
    images = draw_shapes(8, size=SIDE).pixels
    stream, whole = reduce_stream(iter(images), 9), reduce_pixels(images)
    assert isinstance(stream.levels, np.memmap) == (in_memory == 0)
    for one, other in zip(stream, whole, strict=True):
        np.testing.assert_array_equal(one, other)
    first, second = np.triu_indices(8, 1)
    np.testing.assert_array_equal(
        differences(stream, first, second), differences(whole, first, second)
    )


def test_a_stream_without_images():
    assert len(reduce_stream(iter([]), 0).levels) == 0


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("turns", range(4))
def test_turned_and_mirrored_copies_are_alike(mirrored, turns):
    coarse = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), np.uint8)
    one, other = (np.asarray(Image.fromarray(pixels).resize((96, 96))) for pixels in coarse)
    change = one[:, ::-1] if mirrored else one
    found = reduced(*map(Image.fromarray, (one, np.rot90(change, turns), other)))
    upright = differences(found, np.array([0, 0]), np.array([1, 2]))
    turned = differences(found, np.array([0, 0]), np.array([1, 2]), turned=True)
    same = not mirrored and turns == 0
    assert (upright[0] <= ALIKE) == same
    assert same or turned[0] <= ALIKE
    assert upright[1] > ALIKE
    assert turned[1] > ALIKE
