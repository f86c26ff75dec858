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
    """One transformed image; pixels outside repeat the nearest border pixel."""
    height, width, _ = image.shape
    rows = [min(max(row + down, 0), height - 1) for row in range(height)]
    columns = [min(max(column + right, 0), width - 1) for column in range(width)]
    if mirrored:
        columns = [width - 1 - column for column in columns]
    return image[rows][:, columns]


def legal(image, kind):
    """Every result that `kind` allows, by (down, right, mirrored)."""
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
def test_augment_does_not_modify_its_input(kind):
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


# ---- colour and erase


@pytest.mark.parametrize("kind", ["colour", "erase", "flip+shift+colour+erase"])
def test_the_same_generator_gives_the_same_changes(kind):
    images = random_images(8, 16, 16)
    before = images.clone()
    first, second = (augment(images, kind, seeded(3)) for _ in range(2))
    assert first.equal(second)
    assert first.dtype == torch.uint8
    assert not first.equal(augment(images, kind, seeded(4)))
    assert images.equal(before)


def test_colour_blends_with_black_mean_and_gray_in_order():
    images = random_images(5, 4, 6)
    results = augment(images, "colour", seeded())
    factors = 0.6 + 0.8 * torch.rand(3, 5, generator=seeded())
    for image, result, (light, contrast, saturation) in zip(
        images.double(), results, factors.t().double(), strict=True
    ):
        mean = light * sum(image.flatten().tolist()) / image.numel()
        for row, column in itertools.product(range(4), range(6)):
            pixel = [mean + contrast * (light * value - mean) for value in image[row, column]]
            gray = sum(pixel) / 3
            for channel in range(3):
                wanted = min(max(gray + saturation * (pixel[channel] - gray), 0), 255)
                assert abs(float(result[row, column, channel]) - float(wanted)) <= 0.501


def test_a_gray_image_stays_gray():
    gray = random_images(6, 8, 8)[..., :1].expand(-1, -1, -1, 3).contiguous()
    results = augment(gray, "colour", seeded())
    assert results[..., 0].equal(results[..., 1])
    assert results[..., 0].equal(results[..., 2])


@pytest.mark.parametrize(("height", "width"), [(16, 16), (9, 30), (1, 1)])
def test_erase_paints_one_box_of_half_the_size_and_leaves_the_rest(height, width):
    images = torch.full((400, height, width, 3), 7, dtype=torch.uint8)
    results = augment(images, "erase", seeded())
    painted = (results != 7).all(dim=3)
    assert ((results == 7) | (results == 128)).all()
    assert (results == 7).all(dim=3).equal(~painted)
    rows, columns = painted.any(dim=2), painted.any(dim=1)
    assert painted.equal(rows[:, :, None] & columns[:, None, :])  # a box
    for along, size in ((rows, height), (columns, width)):
        assert along.sum(dim=1).max() == size // 2
        assert (along.int().diff(dim=1).abs().sum(dim=1) <= 2).all()  # without a gap
        if size > 1:
            assert along.any(dim=0).all()  # anywhere


@pytest.mark.parametrize("kind", ["blur", "flip+", "flip+flip", "", "flip shift"])
def test_augment_with_unknown_kind_raises(kind):
    with pytest.raises(ValueError, match="augment must be none, or some of flip, shift"):
        augment(random_images(1, 4, 4), kind, seeded())
