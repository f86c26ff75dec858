import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from web_pictures import as_file, noise

from bitprint.data.decoding import decode_thumbnail
from bitprint.web.pictures import Thumbnails, open_inside


@pytest.fixture
def places(tmp_path):
    """Create a root with an image, a secret file outside, and links between them."""
    root, outside = tmp_path / "root", tmp_path / "root-secret"
    root.mkdir()
    outside.mkdir()
    (root / "a.png").write_bytes(as_file(noise()))
    (outside / "secret.png").write_bytes(as_file(noise()))
    (root / "link.png").symlink_to(outside / "secret.png")
    (root / "linked").symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    (root / "inner.png").symlink_to(root / "a.png")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("name", ["a.png", "inner.png", "../root/a.png", "./a.png", "a.png/"])
def test_files_inside_the_roots_open(places, name):
    with open_inside(f"{places}/{name}", [places]) as file:
        assert file.read() == (places / "a.png").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "../root-secret/secret.png",
        "link.png",
        "linked/secret.png",
        "linked/../../etc/passwd",
        "../../../../../../../../etc/passwd",
        "a.png/..",
        "a.png\0.txt",
        "",
        ".",
        "loop",
        "pipe",
        "missing.png",
        "\u2024\u2024/root-secret/secret.png",
        "%2e%2e/root-secret/secret.png",
        "x" * 5000,
    ],
)
def test_nothing_else_opens(places, name):
    with pytest.raises(FileNotFoundError, match="no such photo"):
        open_inside(f"{places}/{name}", [places])


def test_without_roots_nothing_opens(places):
    with pytest.raises(FileNotFoundError):
        open_inside(str(places / "a.png"), [])


def thumbnail_of(thumbnails, path):
    with Path(path).open("rb") as file:
        return thumbnails.get(file)


def test_a_thumbnail_is_small_upright_and_without_notes(tmp_path):
    pixels = np.zeros((400, 800, 3), np.uint8)
    pixels[:, :400] = 255  # white left half
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    exif[0x010E] = "secret note"
    (tmp_path / "a.jpg").write_bytes(as_file(pixels, "JPEG", exif=exif))
    data = thumbnail_of(Thumbnails(decode_thumbnail), tmp_path / "a.jpg")
    assert b"secret note" not in data
    small = Image.open(io.BytesIO(data))
    assert (small.format, small.size) == ("JPEG", (160, 320))
    assert np.asarray(small)[20].min() > 200
    assert np.asarray(small)[-20].max() < 50


def test_thumbnails_are_made_once_until_the_file_changes(tmp_path, monkeypatch):
    made = []
    make = Thumbnails._make
    monkeypatch.setattr(Thumbnails, "_make", lambda self, f: made.append(1) or make(self, f))
    path = tmp_path / "a.png"
    path.write_bytes(as_file(noise(seed=1)))
    thumbnails = Thumbnails(decode_thumbnail)
    first = thumbnail_of(thumbnails, path)
    assert thumbnail_of(thumbnails, path) == first
    assert len(made) == 1
    path.write_bytes(as_file(noise(31, 40, seed=2)))
    assert thumbnail_of(thumbnails, path) != first
    assert len(made) == 2


def test_the_least_recently_used_thumbnails_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(Thumbnails, "_make", lambda self, file: file.read())
    files = []
    for number in range(4):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(bytes([number]) * 40)
    thumbnails = Thumbnails(decode_thumbnail, most_bytes=100)
    for number in (0, 1, 0, 2):  # 1 is the least recently used one
        thumbnail_of(thumbnails, files[number])
    assert [data[0] for data in thumbnails._kept.values()] == [0, 2]
    assert thumbnails._bytes == 80
    (tmp_path / "large").write_bytes(bytes(500))
    assert thumbnail_of(thumbnails, tmp_path / "large") == bytes(500)
    assert thumbnails._bytes == sum(map(len, thumbnails._kept.values())) <= 100
