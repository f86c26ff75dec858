import numpy as np
import pytest

from bitprint.data.shapes import SHAPES, draw_shapes


@pytest.fixture(scope="module")
def scenes():
    return draw_shapes(600, seed=3)


def test_form(scenes):
    assert scenes.pixels.shape == (600, 32, 32, 3)
    assert scenes.labels.shape == (600, len(SHAPES))
    assert list(scenes.label_names) == list(SHAPES)
    objects = scenes.labels.sum(axis=1)
    assert set(objects.tolist()) == {1, 2, 3}
    assert scenes.labels.sum(axis=0).min() > 0


def test_a_larger_set_starts_with_the_smaller_one(scenes):
    for count in (0, 1, 255, 256, 257):
        part = draw_shapes(count, seed=3)
        assert np.array_equal(part.pixels, scenes.pixels[:count])
        assert np.array_equal(part.labels, scenes.labels[:count])


def test_another_seed_gives_other_scenes(scenes):
    other = draw_shapes(600, seed=4)
    same = (other.pixels == scenes.pixels).all(axis=(1, 2, 3))
    assert not same.any()


def test_every_object_is_visible():
    """Each labeled object changes one quarter of the image; the others stay flat."""
    scenes = draw_shapes(200, size=64, seed=1)
    quarters = scenes.pixels.reshape(200, 2, 32, 2, 32, 3).astype(float)
    # Texture and noise change a channel by less than 46, an object by at least 80.
    spread = np.percentile(quarters, 98, axis=(2, 4)) - np.percentile(quarters, 2, axis=(2, 4))
    occupied = (spread.max(axis=3) > 85).sum(axis=(1, 2))
    assert np.array_equal(occupied, scenes.labels.sum(axis=1))


@pytest.mark.parametrize("name", SHAPES)
def test_outlines_lie_within_the_unit_circle_and_cover_something(name):
    y, x = np.mgrid[-2:2:401j, -2:2:401j]
    inside = SHAPES[name](x, y) > 0
    assert np.hypot(x, y)[inside].max() <= 1.0
    assert 0.1 < inside.sum() * 0.01**2 < np.pi


def test_shapes_differ_from_each_other():
    y, x = np.mgrid[-1:1:101j, -1:1:101j]
    masks = [outline(x, y) > 0 for outline in SHAPES.values()]
    for first in range(len(masks)):
        for second in range(first):
            assert (masks[first] ^ masks[second]).mean() > 0.05


def test_color_is_independent_of_the_label(scenes):
    """The mean color of each class equals the overall mean color, up to chance."""
    means = scenes.pixels.mean(axis=(1, 2))
    for column in scenes.labels.T:
        chosen = means[column == 1]
        error = means.std(axis=0) / np.sqrt(len(chosen))
        assert (abs(chosen.mean(axis=0) - means.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize(
    "wrong", [{"count": -1}, {"count": 1, "size": 8}, {"count": 1, "seed": -1}]
)
def test_refuses(wrong):
    with pytest.raises(ValueError, match="count >= 0, size >= 16 and seed >= 0"):
        draw_shapes(**wrong)
