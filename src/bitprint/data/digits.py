"""Digits: the 1,797 handwritten digits of scikit-learn."""

from __future__ import annotations

import numpy as np

from bitprint.data.images import ImageSet


def load_digits() -> ImageSet:
    """Load scikit-learn's digits as gray RGB images of 8 x 8 pixels.

    Examples
    --------
    >>> digits = load_digits()
    >>> len(digits), digits.size, digits.label_names[digits.labels[3]]
    (1797, (8, 8), '3')
    """
    from sklearn import datasets  # slow to import

    digits = datasets.load_digits()
    gray = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return ImageSet(
        np.repeat(gray[..., None], 3, axis=3),
        labels=digits.target,
        label_names=[str(digit) for digit in range(10)],
        name="digits",
        protocol="general",
        backbone="small",
        mirrored_alike=False,
    )
