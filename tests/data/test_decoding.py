import io
import struct
import warnings

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from bitprint.data import decoding, formats
from bitprint.data.decoded import decode_files
from bitprint.data.decoding import decode_ahead, decode_image, decode_thumbnail

KINDS = ["PNG", "BMP", "TIFF", "GIF", "JPEG", "WEBP", "AVIF", "HEIF"]


def encoded(image, kind="PNG", **options):
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"Pillow cannot write {kind} here")
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_formats(kind):
    image = Image.new("RGB", (20, 10), (200, 100, 50))
    pixels = decode_image(encoded(image, kind), 8)
    assert pixels.shape == (8, 8, 3)
    assert pixels.dtype == np.uint8
    assert abs(pixels.astype(int) - (200, 100, 50)).max() <= 4


def test_same_size_is_lossless():
    original = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    assert np.array_equal(decode_image(encoded(Image.fromarray(original)), 16), original)


def test_resizing_is_bicubic():
    original = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8))
    expected = np.asarray(original.resize((16, 16), Image.Resampling.BICUBIC))
    assert np.array_equal(decode_image(encoded(original), 16), expected)


@pytest.mark.parametrize("kind", ["JPEG", "AVIF", "HEIF"])
def test_camera_orientation(kind):
    """Orientation 6: the stored image must be rotated right by 90 degrees."""
    stored = Image.new("RGB", (32, 32), "black")
    stored.paste("white", (0, 0, 32, 16))
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = decode_image(encoded(stored, kind, exif=exif.tobytes(), quality=95), 32)
    assert pixels[:, 20:].min() > 240
    assert pixels[:, :12].max() < 15


def test_transparency_becomes_white():
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    half = Image.new("LA", (8, 8), (0, 128))
    assert (decode_image(encoded(clear), 4) == 255).all()
    assert (decode_image(encoded(half), 4) == 127).all()


def test_transparent_palette_becomes_white():
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    assert (decode_image(encoded(palette), 4) == (10, 200, 30)).all()
    assert (decode_image(encoded(palette, transparency=1), 4) == 255).all()


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    file = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode_image(file, 4) == (255, 0, 0)).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_gray(kind):
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    pixels = decode_image(encoded(Image.fromarray(ramp), kind), 16)
    assert np.array_equal(pixels[..., 0].ravel(), np.arange(256))


def test_float_gray():
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    pixels = decode_image(encoded(Image.fromarray(ramp), "TIFF"), 16)
    assert np.array_equal(pixels[..., 1].ravel(), np.arange(256))


@pytest.mark.parametrize("mode", ["1", "L", "CMYK", "P"])
def test_other_modes(mode):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    white = Image.new("RGB", (8, 8), "white").convert(mode)
    assert (decode_image(encoded(white, kind), 4) == 255).all()


def test_unreadable_files_are_named(tmp_path):
    text = tmp_path / "note.png"
    text.write_text("not an image")
    with pytest.raises(ValueError, match=r"note\.png: not a readable image"):
        decode_image(text, 8)
    with pytest.raises(FileNotFoundError, match=r"gone\.png: no such image file"):
        decode_image(tmp_path / "gone.png", 8)
    with pytest.raises(ValueError, match="must be >= 1"):
        decode_image(text, 0)


def test_heic_without_pillow_heif_suggests_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "OTHER_SUFFIXES", formats.OTHER_SUFFIXES | {".heic"})
    (tmp_path / "a.HEIC").write_bytes(b"not an image")
    with pytest.raises(
        ValueError, match=r"unsupported format; to read \.heic: pip install pillow-heif"
    ):
        decode_image(tmp_path / "a.HEIC", 8)
    [(_, reason)] = decode_files(tmp_path, ["a.HEIC"], 8)[2]
    assert reason.endswith("pip install pillow-heif")


@pytest.mark.parametrize("kind", ["JPEG", "AVIF", "HEIF"])
def test_truncated_files_are_refused(kind):
    whole = encoded(Image.effect_noise((64, 64), 90).convert("RGB"), kind).getvalue()
    for length in (10, len(whole) // 2, len(whole) - 100):
        with pytest.raises(ValueError, match="not a readable image"):
            decode_image(io.BytesIO(whole[:length]), 8)


@pytest.mark.parametrize("kind", KINDS)
def test_random_bytes_never_escape_as_another_error(kind):
    rng = np.random.default_rng(0)
    whole = np.frombuffer(
        encoded(Image.effect_noise((32, 32), 90).convert("RGB"), kind).getvalue(), np.uint8
    )
    for _ in range(40):
        broken = whole.copy()
        broken[rng.integers(0, len(whole), 8)] = rng.integers(0, 256, 8)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert decode_image(io.BytesIO(broken.tobytes()), 8).shape == (8, 8, 3)
        except ValueError as error:
            assert "not a readable image" in str(error)  # noqa: PT017


def test_large_jpeg_files_are_read_up_to_a_limit_of_their_own(tmp_path, monkeypatch):
    image = Image.new("RGB", (64, 64), "red")
    image.save(tmp_path / "large.jpg")
    image.save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert decode_image(tmp_path / "large.jpg", 8)[..., 0].min() > 250
    assert decode_thumbnail(tmp_path / "large.jpg", 8).shape == (8, 8, 3)
    for refused in (tmp_path / "large.png", io.BytesIO((tmp_path / "large.jpg").read_bytes())):
        with pytest.raises(ValueError, match="DecompressionBombError"):
            decode_image(refused, 8)
    monkeypatch.setattr(decoding, "_MOST_PIXELS", 4000)
    with pytest.raises(ValueError, match="DecompressionBombError"):
        decode_image(tmp_path / "large.jpg", 8)


def test_decompression_bombs_are_skipped(tmp_path, monkeypatch):
    Image.new("1", (64, 64)).save(tmp_path / "bomb.png")
    Image.new("1", (8, 8)).save(tmp_path / "good.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    _, rows, skipped = decode_files(tmp_path, ["bomb.png", "good.png"], 8)
    assert rows.tolist() == [1]
    assert skipped[0][0] == "bomb.png"
    assert "DecompressionBombError" in skipped[0][1]


@pytest.mark.parametrize(("size", "expected"), [(50, (25, 50)), (300, (100, 200))])
def test_thumbnails_keep_the_aspect_and_never_grow(size, expected):
    original = Image.fromarray(np.random.default_rng(0).integers(0, 256, (100, 200, 3), np.uint8))
    pixels = decode_thumbnail(encoded(original), size)
    assert pixels.shape == (*expected, 3)
    if size == 300:
        assert np.array_equal(pixels, np.asarray(original))


def test_thumbnails_are_upright():
    stored = Image.new("RGB", (64, 32), "black")
    stored.paste("white", (0, 0, 64, 16))
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = decode_thumbnail(encoded(stored, "PNG", exif=exif), 64)
    assert pixels.shape == (64, 32, 3)
    assert (pixels[:, 16:] == 255).all()
    assert (pixels[:, :16] == 0).all()


@pytest.mark.parametrize("count", [0, 1, 3, 8, 10])
def test_decoding_ahead_covers_every_file_once_in_order(tmp_path, count):
    paths = [tmp_path / f"{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        if number % 4 == 2:
            path.write_bytes(b"not an image")
        elif number % 4 != 3:
            Image.new("L", (9, 7), number).save(path)
    batches = list(decode_ahead(paths, 5, batch_size=3))
    rows = [row for batch in batches for row in batch.rows]
    assert rows == [row for row in range(count) if row % 4 < 2]
    for batch in batches:
        assert batch.pixels.shape == (len(batch.rows), 5, 5, 3)
        assert batch.pixels[:, 0, 0, 0].tolist() == batch.rows
        assert len(batch.rows) + len(batch.skipped) <= 3
    skipped = {row: reason for batch in batches for row, reason in batch.skipped.items()}
    assert sorted(skipped) == [row for row in range(count) if row % 4 >= 2]
    assert all(skipped[row] == "no such file" for row in skipped if row % 4 == 3)


def orientation_and_a_bad_resolution(orientation):
    """EXIF with an orientation, and XResolution as untyped bytes instead of a fraction."""
    tags = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    tags += struct.pack("<HHII", 0x011A, 7, 8, 8 + 2 + 2 * 12 + 4)
    start = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2)
    return start + tags + bytes(4) + struct.pack("<II", 72, 1)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("bad", [False, True])
def test_every_orientation_with_other_exif_tags(orientation, bad):
    stored = Image.new("RGB", (32, 32))
    stored.paste("red", (0, 0, 16, 16))
    stored.paste("lime", (16, 0, 32, 16))
    exif = Image.Exif()
    exif[0x0112] = orientation
    with Image.open(encoded(stored, "JPEG", exif=exif.tobytes())) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    held = orientation_and_a_bad_resolution(orientation) if bad else exif.tobytes()
    assert np.array_equal(decode_image(encoded(stored, "JPEG", exif=held), 32), expected)


def test_a_damaged_exif_does_not_hide_the_pixels():
    stored = Image.new("RGB", (32, 32), "red")
    file = encoded(stored, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert decode_image(file, 32)[..., 0].min() > 250


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_in_xmp_is_used_without_exif(kind):
    stored = Image.new("RGB", (32, 32), "black")
    stored.paste("white", (0, 0, 32, 16))
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    options = {"xmp": xmp}
    if kind == "PNG":
        text = PngInfo()
        text.add_itxt("XML:com.adobe.xmp", xmp.decode())
        options = {"pnginfo": text}
    pixels = decode_image(encoded(stored, kind, **options), 32)
    assert pixels[:, 20:].min() > 200
    assert pixels[:, :12].max() < 50


def test_an_exif_that_cannot_be_read_does_not_hide_the_pixels():
    stored = Image.effect_noise((32, 32), 90).convert("RGB")
    text = PngInfo()
    text.add_text("Raw profile type exif", "\nexif\n2\nno hex")
    file = encoded(stored, "PNG", pnginfo=text)
    with Image.open(file) as image, pytest.raises(ValueError, match="non-hexadecimal"):
        image.getexif()
    file.seek(0)
    assert np.array_equal(decode_image(file, 32), stored)


@pytest.mark.parametrize(("side", "fraction"), [(63, 1), (64, 2), (127, 2), (128, 4), (300, 8)])
def test_a_jpeg_is_decoded_to_the_smallest_sufficient_fraction(side, fraction):
    stored = np.random.default_rng(0).integers(0, 256, (side, side + 9, 3), np.uint8)
    file = encoded(Image.fromarray(stored), "JPEG")
    image = Image.open(file)
    image.draft(None, (side // fraction, side // fraction))
    assert image.width == -(-(side + 9) // fraction)
    expected = np.array(image.resize((32, 32), Image.Resampling.BICUBIC))
    file.seek(0)
    assert np.array_equal(decode_image(file, 32), expected)
