import os

import pytest
from PIL import Image

from bitprint.data import draw_shapes
from bitprint.methods import create
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder

SCENES = draw_shapes(40, size=16)


@pytest.fixture(scope="session")
def encoder():
    """Return a cheap encoder: ITQ on the pixels of 16 x 16 images."""
    return Encoder(create("itq", bits=32).fit(SCENES))


@pytest.fixture
def album(tmp_path):
    """Create a folder of 12 images: 4 at the top and 4 in each of two sub-folders."""
    root = tmp_path / "album"
    for number, pixels in enumerate(SCENES.pixels[:12]):
        folder = root / ["", "cats", "dogs"][number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
        os.utime(folder / f"{number:02d}.png", ns=(0, 10**18 + number))
    return root


@pytest.fixture
def photos(encoder, tmp_path):
    with Photos.create(tmp_path / "photos.bp", encoder) as photos:
        yield photos
