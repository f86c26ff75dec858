"""Uploads are decoded like other files, or refused with one sentence."""

import io
import struct
import time
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from web_pictures import as_file, noise

from bitprint.data.decoding import decode_image
from bitprint.data.formats import FORMATS
from bitprint.data.untrusted import _check_scans, decode_stored, decode_upload, find_format
from fuzz.bombs import png

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def with_many_scans(times, between=b""):
    """Return a progressive JPEG whose last scan is repeated."""
    data = as_file(noise(), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + (data[last:-2] + between) * times + data[-2:]


@pytest.mark.parametrize("kind", KINDS)
def test_decode_upload_of_each_format(kind):
    data = as_file(noise(), kind)
    assert find_format(io.BytesIO(data), 10_000) == kind
    expected = decode_image(io.BytesIO(data), 8)
    assert np.array_equal(decode_upload(data, 8, most_pixels=1200), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_over_the_limit_is_refused_whatever_its_format(kind):
    with pytest.raises(ValueError, match="40 x 30 pixels"):
        decode_upload(as_file(noise(), kind), 8, most_pixels=1199)


@pytest.mark.parametrize(
    "data",
    [
        png(2**31 - 1, 2**31 - 1, rows=0),
        png(100_000, 100_000, rows=33),
        png(20_000, 20_000, rows=0),
        as_file(noise(), "BMP")[:18] + struct.pack("<ii", 60_000, 60_000) + bytes(60),
    ],
)
def test_enormous_dimensions_are_refused_before_anything_is_decoded(data, monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("pixels were decoded"))
    with pytest.raises(ValueError, match="photo"):
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
    """Test restart markers, stuffed and fill bytes, and unusual comment segments."""
    decode_upload(with_many_scans(5, between), 8, 10_000)
    with pytest.raises(ValueError, match="scans"):
        decode_upload(with_many_scans(200, between), 8, 10_000)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_data_after_a_jpeg_is_ignored(options):
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
def test_counting_scans_of_hostile_files_is_fast(filling):
    data = (b"\xff\xd8" + filling * 2**23)[: 2**24]
    started = time.thread_time()
    with suppress(ValueError):
        _check_scans(data)
    assert time.thread_time() - started < 2


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_avif_and_heif_are_served_but_not_accepted(kind):
    if kind not in FORMATS:
        pytest.skip(f"{kind} cannot be read here")
    data = as_file(noise(), kind)
    with pytest.raises(ValueError, match="send JPEG, PNG, WEBP, GIF, BMP or TIFF"):
        decode_upload(data, 8, most_pixels=10_000)
    assert find_format(io.BytesIO(data), 10_000) == kind
    assert decode_stored(io.BytesIO(data), 20, 10_000).shape == (15, 20, 3)


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
    "PNG without data": png(40, 30, rows=0),
    "zero width": png(0, 30, rows=0),
    "PPM": b"P6 4 4 255 " + bytes(48),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_decode_upload_of_invalid_files_raises(name):
    with pytest.raises(ValueError, match="photo") as caught:
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
