"""Small files with many pixels are refused, or take the memory that their header announces."""

import io
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from bitprint.data import decoding, decoding_limits, load_folder
from bitprint.data.decoding import convert_image, decode_ahead, decode_image, decode_thumbnail
from bitprint.data.decoding_limits import (
    ON_DISK,
    DecodingLimits,
    MemoryBudget,
    TooLargeError,
    check_image,
)
from bitprint.data.formats import FORMATS
from bitprint.data.untrusted import upload_limits
from fuzz.bombs import (
    HONEST,
    HOSTILE,
    measure,
    measure_threads,
    one_tile,
    png,
    rotated,
    saved,
    webp,
)

MIB = 2**20
REFUSED_ON_DISK = {"PNG, tall", "PNG, wide", "WebP, 268 million pixels", "ICO"}
REFUSED_AS_UPLOADS = REFUSED_ON_DISK | {
    "PNG, long and narrow",
    "WebP",
    "TIFF, large tile",
    "AVIF",
    "AVIF with another header",
}
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")


def written(folder, files, *arguments):
    """Write the files in formats that can be written here; return their paths by name."""
    paths = {}
    for number, name in enumerate(files):
        if name.split()[0] not in {"AVIF", "HEIF"} - set(FORMATS):
            paths[name] = folder / str(number)
            paths[name].write_bytes(files[name](*arguments))
    return paths


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return written(tmp_path_factory.mktemp("hostile"), HOSTILE)


def check_all(paths, upload, refused, most):
    """Check that the files take bounded memory and time, and which are refused."""
    found = dict(zip(paths, measure(paths.values(), upload), strict=True))
    assert {name for name in found if found[name].outcome != "decoded"} == refused & found.keys()
    for name, measured in found.items():
        assert measured.growth < (16 * MIB if name in refused else most), name
        assert measured.seconds < 120, name
        assert "\n" not in measured.outcome


@linux
def test_hostile_uploads_take_bounded_memory_and_time(hostile):
    check_all(hostile, True, REFUSED_AS_UPLOADS, upload_limits(64_000_000).bytes)


@linux
def test_hostile_files_take_bounded_memory_and_time(hostile):
    """Of those that are refused as uploads; the others take the same as them."""
    paths = {name: hostile[name] for name in hostile.keys() & REFUSED_AS_UPLOADS}
    check_all(paths, False, REFUSED_ON_DISK, 1100 * MIB)


@linux
def test_estimates_are_upper_bounds_in_all_formats(tmp_path):
    paths = written(tmp_path, HONEST, 1600)
    for name, measured in zip(paths, measure(paths.values()), strict=True):
        assert measured.outcome == "decoded"
        # Half of what the estimate adds to every image, which is large beside these.
        assert measured.growth < measured.estimate - 8 * MIB, name


def with_size(width, height, **options):
    """Return a JPEG file of a given size according to its header, not decoded yet."""
    data = bytearray(saved("JPEG", "RGB", 64, 64, **options))
    frame = re.search(rb"\xff[\xc0\xc2]\x00\x11\x08", data).end()
    data[frame : frame + 4] = height.to_bytes(2) + width.to_bytes(2)
    image = JpegImageFile(io.BytesIO(data))
    image.draft(None, (512, 512))
    return image


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(20_000, 10_000), (25_000, 20_000), (65_000, 7_600)])
def test_large_jpeg_files_are_within_the_limits(size, progressive):
    image = with_size(*size, progressive=progressive, subsampling=0)
    assert check_image(image, ON_DISK, 256) <= ON_DISK.bytes


@pytest.mark.parametrize("kind", [0, 2, 4, 6])
def test_a_png_at_pillows_limit_is_within_the_limits(kind):
    with Image.open(io.BytesIO(png(17_800, 10_000, kind, rows=0))) as image:
        assert check_image(image, ON_DISK, 256) < ON_DISK.bytes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png(1, 70_000), "1 x 70000 pixels, more than 65,535 on one side"),
        (png(70_000, 1), "70000 x 1 pixels, more than 65,535 on one side"),
        (one_tile(64, 64, 2**15), r"decoding 64 x 64 pixels takes 4,\d\d\d MiB, more than 3,072"),
    ],
)
def test_too_large_files_are_named_with_the_reason(tmp_path, data, reason):
    path = tmp_path / "a.png"
    path.write_bytes(data)
    for decode in (decode_image, decode_thumbnail):
        with pytest.raises(ValueError, match=rf"a\.png: .*too large: {reason}; resize it\)$"):
            decode(path, 8)
    [batch] = decode_ahead([path], 8)
    assert re.fullmatch(f"too large: {reason}; resize it", batch.skipped[0])


def test_too_large_files_of_a_folder_are_skipped(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(png(1, 70_000))
    images = load_folder(tmp_path, size=8)
    assert images.ids.tolist() == ["a.png"]
    [(name, reason)] = images.skipped
    assert (name, reason[:10]) == ("b.png", "too large:")


def test_an_open_image_that_is_too_large_is_refused():
    with (
        Image.open(io.BytesIO(png(1, 70_000))) as image,
        pytest.raises(ValueError, match="too large: 1 x 70000 pixels"),
    ):
        convert_image(image, 8)


def test_limits_can_be_given():
    data = io.BytesIO(png(30, 20, rows=20))
    assert decode_image(data, 8, DecodingLimits(30, 2**25)).shape == (8, 8, 3)
    with pytest.raises(ValueError, match="more than 29 on one side"):
        decode_image(data, 8, DecodingLimits(29, 2**25))
    with pytest.raises(ValueError, match="takes 16 MiB, more than 8"):
        decode_thumbnail(data, 8, DecodingLimits(30, 2**23))


def test_avif_reserves_all_memory_because_its_header_may_lie():
    if "AVIF" not in FORMATS:
        pytest.skip("AVIF cannot be read here")
    with Image.open(io.BytesIO(saved("AVIF", "RGB", 16, 16))) as image:
        assert check_image(image, DecodingLimits(16, 2**30), 8) == 2**30
        with pytest.raises(TooLargeError):
            check_image(image, DecodingLimits(16, 2**20), 8)


# The memory of several threads


def test_a_budget_lets_parts_wait_until_they_fit():
    budget, begun, ended = MemoryBudget(10), threading.Event(), []

    def work():
        begun.set()
        with budget.reserve(6):
            ended.append("second")

    with budget.reserve(5):
        thread = threading.Thread(target=work)
        thread.start()
        assert begun.wait(120)
        with budget.reserve(5):  # there is room for this part, but not for 6
            ended.append("first")
    thread.join(120)
    assert ended == ["first", "second"]


def test_a_budget_is_free_again_after_errors_and_large_parts():
    budget = MemoryBudget(10)
    for _ in range(2):
        with pytest.raises(KeyError), budget.reserve(1000):
            raise KeyError
    with budget.reserve(4), budget.reserve(6):
        pass


def test_memory_of_large_parts_is_returned_before_it_is_free(monkeypatch):
    budget, returned = MemoryBudget(2**30), []
    monkeypatch.setattr(decoding_limits, "_return_memory", lambda: returned.append(budget._free))
    for part in (2**20, 2**26):
        with budget.reserve(part):
            pass
    assert returned == [2**30 - 2**26]


@linux
def test_memory_is_returned_to_the_system():
    """Freed blocks below one that is in use stay with the process otherwise."""
    blocks = [bytes(65_536) for _ in range(2000)]
    before = memory()
    del blocks[:-1]
    decoding_limits._return_memory()
    assert before - memory() > 100 * MIB


def memory():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@linux
@pytest.mark.skipif(os.cpu_count() == 1, reason="needs several threads")
def test_threads_take_no_more_memory_than_the_budget(tmp_path):
    paths = [tmp_path / f"{number}.webp" for number in range(4)]
    for path in paths:
        path.write_bytes(webp(3500, 3500))  # one takes 190 MiB
    growth, left = measure_threads(paths, 256 * MIB)
    assert growth < 256 * MIB
    assert left < 64 * MIB


def test_threads_share_one_budget(tmp_path, monkeypatch):
    parts = []

    class Recorded(MemoryBudget):
        def reserve(self, part):
            parts.append(part)
            return super().reserve(part)

    monkeypatch.setattr(decoding, "_MEMORY", Recorded(1))
    Image.new("L", (40, 30)).save(tmp_path / "a.png")
    [batch] = decode_ahead([tmp_path / "a.png"] * 5, 8)
    assert batch.rows == [0, 1, 2, 3, 4]
    with Image.open(tmp_path / "a.png") as image:
        assert parts == [check_image(image, ON_DISK, 8)] * 5


# Conversion in strips


MODES = {"GIF": ["P"], "PNG": ["1", "L", "LA", "RGBA", "I;16"], "JPEG": ["CMYK"]}
MODES["TIFF"] = ["I;16B", "I", "F", "CMYK", "YCbCr"]


@pytest.mark.parametrize(("mode", "kind"), [(mode, kind) for kind in MODES for mode in MODES[kind]])
@pytest.mark.parametrize("transparent", [False, True])
def test_strips_give_the_same_pixels(mode, kind, transparent, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (50, 40, 4), np.uint8)
    if mode in ("I;16", "I;16B", "I"):
        image = Image.fromarray(noise[..., 0].astype(np.uint16) * 200)
        image = image.convert("I") if mode == "I" else image
    elif mode == "F":
        image = Image.fromarray((noise[..., 0] / 255).astype(np.float32))
    else:
        image = Image.fromarray(noise[..., :3]).convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(noise[..., 3]))
    options = {"transparency": 7} if transparent and mode in ("L", "P") else {}
    file = io.BytesIO()
    image.save(file, kind, **options)
    expected = decode_image(file, (50, 40))
    monkeypatch.setattr(decoding, "_STRIP", 130)
    assert np.array_equal(decode_image(file, (50, 40)), expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_an_open_image_is_turned_once(kind):
    noise = Image.effect_noise((40, 30), 90)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    noise.save(file, kind, exif=exif)
    with Image.open(file) as image:
        assert np.array_equal(convert_image(image, 20), decode_image(file, 20))
    assert decode_thumbnail(io.BytesIO(rotated(kind, "L", 16)), 8).shape == (8, 8, 3)
