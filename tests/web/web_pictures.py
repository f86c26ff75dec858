"""Image files in memory."""

import io

import numpy as np
from PIL import Image


def as_file(pixels, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def noise(height=30, width=40, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
