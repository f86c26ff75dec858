"""Digits: the 1,797 handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from bitprint.data.images import ImageSet


def load_digits() -> ImageSet:
    """Load scikit-learn's digits as grey RGB images of 8 x 8 pixels.

    Examples
    --------
    >>> digits = load_digits()
    >>> len(digits), digits.size, digits.label_names[digits.labels[3]]
    (1797, (8, 8), '3')
    """
    from sklearn import datasets  # takes a second to import

    digits = datasets.load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return ImageSet(
        np.repeat(grey[..., None], 3, axis=3),
        labels=digits.target,
        label_names=[str(digit) for digit in range(10)],
        name="digits",
        protocol="general",
        backbone="small",
        mirrored_alike=False,
    )
