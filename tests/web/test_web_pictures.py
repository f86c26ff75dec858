import io
import os
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from web_pictures import as_file

from bitprint.data.decoding import decode_image
from bitprint.data.formats import FORMATS
from bitprint.web.pictures import (
    Thumbnails,
    _check_scans,
    check_picture,
    decode_upload,
    open_inside,
)

KINDS = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
}


def noise(height=30, width=40, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def png_of(width, height, data=b""):
    """A PNG that announces a size, with the compressed data given."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def with_many_scans(times, between=b""):
    """A progressive JPEG whose last scan is repeated."""
    data = as_file(noise(), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + (data[last:-2] + between) * times + data[-2:]


@pytest.mark.parametrize("kind", KINDS)
def test_each_format_is_told_by_content_and_decoded_as_the_index_does(kind):
    data = as_file(noise(), kind)
    assert check_picture(io.BytesIO(data), 10_000) == KINDS[kind]
    expected = decode_image(io.BytesIO(data), 8)
    assert np.array_equal(decode_upload(data, 8, most_pixels=1200), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_over_the_limit_is_refused_whatever_its_format(kind):
    with pytest.raises(ValueError, match="40 x 30 pixels"):
        decode_upload(as_file(noise(), kind), 8, most_pixels=1199)


@pytest.mark.parametrize(
    "data",
    [
        png_of(2**31 - 1, 2**31 - 1),
        png_of(100_000, 100_000, zlib.compress(bytes(10_000_000))),
        png_of(20_000, 20_000),
        as_file(noise(), "BMP")[:18] + struct.pack("<ii", 60_000, 60_000) + bytes(60),
    ],
)
def test_enormous_dimensions_are_refused_before_anything_is_decoded(data, monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("pixels were decoded"))
    with pytest.raises(ValueError, match="picture"):
        decode_upload(data, 8, most_pixels=64_000_000)


def test_a_jpeg_of_very_many_scans_is_refused():
    assert decode_upload(with_many_scans(5), 8, 10_000).shape == (8, 8, 3)
    with pytest.raises(ValueError, match="scans"):
        decode_upload(with_many_scans(200), 8, 10_000)


@pytest.mark.parametrize(
    "between",
    [
        b"\xff\xd0",
        b"\xff\xd3\x12\x34\xff\xd7",
        b"\xff\x00",
        b"\xff",
        b"\xff\xff\xff",
        b"\xff\x01",
        b"\xff\xfe\x00\x04\xff\xd9",
        b"\xff\xe1\x00\x06\xff\xd9\xff\xd9",
        b"\xff\xfe\x00\x00",
    ],
)
def test_scans_count_whatever_lies_between_them(between):
    """Restarts, stuffed and filling bytes, notes that hold an end, a note without a length."""
    decode_upload(with_many_scans(5, between), 8, 10_000)
    with pytest.raises(ValueError, match="scans"):
        decode_upload(with_many_scans(200, between), 8, 10_000)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_a_film_behind_a_jpeg_is_not_looked_at(options):
    picture = as_file(noise(), "JPEG", **options)
    note = b"\xff\xfe" + struct.pack(">H", 60_002) + b"\xff\xda" * 30_000
    film = np.random.default_rng(0).bytes(2**20) + b"\xff\xda" * 2000 + with_many_scans(200)
    expected = decode_upload(picture, 8, 10_000)
    for data in (picture + film, picture[:2] + note + picture[2:]):
        assert np.array_equal(decode_upload(data, 8, 10_000), expected)


@pytest.mark.parametrize(
    "filling",
    [b"\xff\x00", b"\xff", b"\xff\xd0", b"\xff\xfe\x00\x02", b"\xff\xda", b"\xff\x01", b"\xff\xd8"],
)
def test_scans_of_a_hostile_file_are_counted_in_no_time(filling):
    data = (b"\xff\xd8" + filling * 2**23)[: 2**24]
    started = time.perf_counter()
    with suppress(ValueError):
        _check_scans(data)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(("kind", "name"), [("AVIF", "image/avif"), ("HEIF", "image/heic")])
def test_formats_that_may_decode_to_another_size_are_shown_but_not_taken(kind, name, tmp_path):
    if kind not in FORMATS:
        pytest.skip(f"{kind} cannot be read here")
    path = tmp_path / "picture"
    path.write_bytes(as_file(noise(), kind))
    with pytest.raises(ValueError, match="send JPEG, PNG, WEBP, GIF, BMP or TIFF"):
        decode_upload(path.read_bytes(), 8, most_pixels=10_000)
    with path.open("rb") as file:
        assert check_picture(file, 10_000) == name
        file.seek(0)
        assert Image.open(io.BytesIO(Thumbnails(10_000).get(file))).size == (40, 30)


HOSTILE = {
    "nothing": b"",
    "text": b"hello",
    "html": b"<!doctype html><script>alert(1)</script>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    "zip bomb": b"PK\x03\x04" + zlib.compress(bytes(1_000_000)),
    "gzip": b"\x1f\x8b\x08" + bytes(100),
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "pdf": b"%PDF-1.7\n",
    "header only": b"\x89PNG\r\n\x1a\n",
    "truncated PNG": as_file(noise())[:200],
    "truncated JPEG": as_file(noise(), "JPEG")[:40],
    "PNG without data": png_of(40, 30),
    "zero width": png_of(0, 30),
    "PPM": b"P6 4 4 255 " + bytes(48),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_picture_is_refused_in_one_sentence(name):
    with pytest.raises(ValueError, match="picture") as caught:
        decode_upload(HOSTILE[name], 8, most_pixels=1_000_000)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 2000),
)
def test_damaged_files_give_pixels_or_a_value_error(kind, changes, cut):
    data = bytearray(as_file(noise(12, 12), kind))
    for place, value in changes:
        data[place % len(data)] = value
    damaged = bytes(data[: max(1, len(data) - cut % len(data))])
    try:
        pixels = decode_upload(damaged, 8, most_pixels=10_000)
    except ValueError:
        return
    assert pixels.shape == (8, 8, 3)


@pytest.fixture
def places(tmp_path):
    """A root with a picture, a secret outside of it, and ways to confuse the two."""
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
    with pytest.raises(FileNotFoundError, match="no such picture"):
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
    exif[0x0112] = 6  # the camera was held so that left is up
    exif[0x010E] = "secret note"
    (tmp_path / "a.jpg").write_bytes(as_file(pixels, "JPEG", exif=exif))
    data = thumbnail_of(Thumbnails(10**6), tmp_path / "a.jpg")
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
    thumbnails = Thumbnails(10**6)
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
    thumbnails = Thumbnails(10**6, most_bytes=100)
    for number in (0, 1, 0, 2):  # 1 is the one not used for longest, and has to go
        thumbnail_of(thumbnails, files[number])
    assert [data[0] for data in thumbnails._kept.values()] == [0, 2]
    assert thumbnails._bytes == 80
    (tmp_path / "large").write_bytes(bytes(500))
    assert thumbnail_of(thumbnails, tmp_path / "large") == bytes(500)
    assert thumbnails._bytes == sum(map(len, thumbnails._kept.values())) <= 100
