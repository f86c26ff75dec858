import numpy as np
import pytest
import torch

from bitprint.nets.preprocess import Preprocess, ToFloat


def cubic(x):
    """Keys's kernel with a = -0.5, as in MATLAB's imresize."""
    x = abs(x)
    if x <= 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    if x < 2:
        return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return 0.0


def triangle(x):
    return max(1 - abs(x), 0.0)


def resize_line(line, size, kernel):
    """Resize one line with plain loops; the kernel is stretched when the line shrinks."""
    ratio = len(line) / size
    stretch = max(ratio, 1.0)
    result = []
    for i in range(size):
        centre = (i + 0.5) * ratio
        weights = [kernel((j + 0.5 - centre) / stretch) for j in range(len(line))]
        result.append(sum(w * v for w, v in zip(weights, line, strict=True)) / sum(weights))
    return result


def resize(image, size, kernel):
    rows = np.array([resize_line(row, size, kernel) for row in image.astype(float)])
    return np.array([resize_line(column, size, kernel) for column in rows.T]).T


@pytest.mark.parametrize("size", [20, 9, 5])
@pytest.mark.parametrize(("mode", "kernel"), [("bicubic", cubic), ("bilinear", triangle)])
@pytest.mark.parametrize("content", ["ramp", "impulse", "noise"])
def test_resize_is_the_textbook_kernel(size, mode, kernel, content):
    image = np.zeros((9, 12), np.uint8)
    if content == "ramp":
        image[:] = 20 * np.arange(12)
    elif content == "impulse":
        image[4, 6] = 255
    else:
        image[:] = np.random.default_rng(0).integers(0, 256, image.shape)
    pixels = torch.from_numpy(np.repeat(image[None, ..., None], 3, axis=3))
    result = Preprocess(size, mean=0, interpolation=mode)(pixels).numpy()
    expected = resize(image, size, kernel)
    assert result.shape == (1, 3, size, size)
    for color in range(3):
        np.testing.assert_allclose(result[0, color], expected, atol=1e-3)


def test_nothing_is_clipped():
    edge = torch.zeros((1, 8, 8, 3), dtype=torch.uint8)
    edge[:, :, 4:] = 255
    result = Preprocess(32, mean=0)(edge)
    assert result.min() < -1
    assert result.max() > 256


def test_colors_keep_their_order_and_are_normalized():
    image = torch.tensor([10, 20, 40], dtype=torch.uint8).expand(2, 4, 4, 3)
    result = Preprocess(4, mean=(1, 2, 3), std=(2, 4, 8))(image)
    for color, expected in enumerate([4.5, 4.5, 37 / 8]):
        assert torch.all(result[:, color] == expected)


def test_scale_applies_before_mean_and_std():
    image = torch.randint(0, 256, (2, 6, 6, 3), dtype=torch.uint8)
    result = Preprocess(6, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), scale=1 / 255)(image)
    expected = (image.numpy() / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.25]
    np.testing.assert_allclose(result.permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)


def test_mean_image_is_subtracted_pixel_by_pixel():
    mean = torch.arange(3 * 4 * 4.0).reshape(3, 4, 4)
    image = torch.randint(0, 256, (2, 4, 4, 3), dtype=torch.uint8)
    result = Preprocess(4, mean)(image)
    assert torch.equal(result, image.permute(0, 3, 1, 2) - mean)


def test_no_size_keeps_the_size():
    image = torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8)
    assert torch.equal(Preprocess(None, mean=0)(image), image.permute(0, 3, 1, 2).float())


def test_mean_and_std_are_in_the_state_dict():
    image = torch.randint(0, 256, (2, 6, 6, 3), dtype=torch.uint8)
    first = Preprocess(4, (10, 20, 30), (2, 3, 4))
    second = Preprocess(4, 0)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(image), second(image))


def test_the_images_are_not_modified():
    image = torch.randint(0, 256, (2, 4, 4, 3), dtype=torch.uint8)
    before = image.clone()
    Preprocess(4, mean=100)(image)
    assert torch.equal(image, before)


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(2, 4, 4, 3),
        torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        torch.zeros(4, 4, 3, dtype=torch.uint8),
    ],
)
def test_images_of_another_type_or_shape_raise(images):
    with pytest.raises(ValueError, match="images must be uint8 of shape"):
        Preprocess(4, mean=0)(images)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="mean and std"):
        Preprocess(4, mean=torch.zeros(3, 5, 5))
    with pytest.raises(ValueError, match="mean and std"):
        Preprocess(None, mean=[1, 2])
    with pytest.raises(ValueError, match="interpolation"):
        Preprocess(4, mean=0, interpolation="nearest")


def test_vectors_become_float32_of_the_right_width():
    assert ToFloat(3)(torch.tensor([[1, 2, 3]])).dtype == torch.float32
    with pytest.raises(ValueError, match=r"shape \(n, 3\)"):
        ToFloat(3)(torch.zeros(2, 4))
