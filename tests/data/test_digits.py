import numpy as np
from sklearn import datasets

from bitprint.data.digits import load_digits


def test_pixels_are_the_scaled_originals_in_three_equal_channels():
    original = datasets.load_digits()
    digits = load_digits()
    assert digits.name == "digits"
    assert digits.pixels.shape == (1797, 8, 8, 3)
    for channel in range(3):
        restored = digits.pixels[..., channel] * (16.0 / 255)
        assert np.array_equal(np.rint(restored), original.images)
    assert digits.pixels.max() == 255
    assert np.array_equal(digits.labels, original.target)
    assert list(digits.label_names) == list("0123456789")
