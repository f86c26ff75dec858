import itertools

import pytest
import torch

from bitprint.training.augment import augment

KINDS = ["flip", "shift", "flip+shift"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_images(count, height, width, seed=0):
    return torch.randint(
        0, 256, (count, height, width, 3), dtype=torch.uint8, generator=seeded(seed)
    )


def moved(image, down, right, mirrored):
    """One transformed image; the nearest pixel fills what lies outside."""
    height, width, _ = image.shape
    rows = [min(max(row + down, 0), height - 1) for row in range(height)]
    columns = [min(max(column + right, 0), width - 1) for column in range(width)]
    if mirrored:
        columns = [width - 1 - column for column in columns]
    return image[rows][:, columns]


def legal(image, kind):
    """Every result that `kind` allows, by what was done."""
    down = image.shape[0] // 8 if "shift" in kind else 0
    right = image.shape[1] // 8 if "shift" in kind else 0
    mirrors = (False, True) if "flip" in kind else (False,)
    changes = itertools.product(range(-down, down + 1), range(-right, right + 1), mirrors)
    return {change: moved(image, *change) for change in changes}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("height", "width"), [(16, 24), (9, 31), (8, 8)])
def test_each_result_is_one_legal_change_and_each_change_occurs(kind, height, width):
    image = random_images(1, height, width)[0]
    allowed = legal(image, kind)
    results = augment(image.expand(60 * len(allowed), -1, -1, -1), kind, seeded())
    assert results.dtype == torch.uint8
    assert results.shape == (60 * len(allowed), height, width, 3)
    counts = [(results == change).flatten(1).all(dim=1).sum().item() for change in allowed.values()]
    assert sum(counts) == len(results)  # random pixels: no two changes look the same
    assert min(counts) > 0


def test_images_of_a_batch_change_independently():
    images = random_images(64, 16, 16)
    results = augment(images, "flip+shift", seeded())
    done = []
    for image, result in zip(images, results, strict=True):
        done += [
            change for change, look in legal(image, "flip+shift").items() if result.equal(look)
        ]
    assert len(done) == 64
    assert len(set(done)) > 20


def test_flip_mirrors_left_and_right():
    images = random_images(200, 5, 7)
    results = augment(images, "flip", seeded())
    same = (results == images).flatten(1).all(dim=1)
    mirrored = (results == images.flip(2)).flatten(1).all(dim=1)
    assert torch.all(same ^ mirrored)
    # Two hundred fair coins: four deviations of seven each.
    assert 72 <= mirrored.sum() <= 128


def test_images_below_eight_pixels_are_too_small_to_shift():
    images = random_images(20, 7, 7)
    assert augment(images, "shift", seeded()).equal(images)


@pytest.mark.parametrize("kind", KINDS)
def test_the_generator_decides(kind):
    images = random_images(50, 16, 16)
    assert augment(images, kind, seeded(1)).equal(augment(images, kind, seeded(1)))
    assert not augment(images, kind, seeded(1)).equal(augment(images, kind, seeded(2)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_itself_is_left_alone(kind):
    images = random_images(50, 16, 16)
    before = images.clone()
    augment(images, kind, seeded())
    assert images.equal(before)


def test_none_draws_nothing():
    images = random_images(3, 8, 8)
    generator = seeded()
    before = generator.get_state()
    assert augment(images, "none", generator) is images
    assert generator.get_state().equal(before)
