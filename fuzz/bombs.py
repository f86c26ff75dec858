"""Small image files that decode to many pixels, and the memory that decoding takes.

Example: `python -m fuzz.bombs` decodes every file in a new process and prints the peak memory
next to the estimate from the header.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from bitprint.data import decoding
from bitprint.data.decoding import decode_image
from bitprint.data.decoding_limits import ON_DISK, MemoryBudget, estimate_memory
from bitprint.data.formats import FORMATS
from bitprint.data.untrusted import decode_upload
from fuzz.harness import peak

_SIDE = 224
_HONEST_SIDE = 4_000
_MOST_PIXELS = 64_000_000  # default of the server


def png(width: int, height: int, kind: int = 2, depth: int = 8, rows: int = 1) -> bytes:
    """Return a PNG of a color type, with data for some rows; Pillow accepts such a file."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    row = 1 + -(-width * channels * depth // 8)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))]
    if kind == 3:
        chunks += [(b"PLTE", bytes(range(0, 768 // 3)) * 3), (b"tRNS", bytes([128] * 256))]
    chunks += [(b"IDAT", zlib.compress(bytes(row * rows))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def webp(width: int, height: int, alpha: bool = True) -> bytes:
    """Return a lossless WebP of one color; its pixels take no bits at all."""
    # Signature, width, height, alpha and version; no transform, color cache or group of codes;
    # then five codes with the symbol 0 alone.
    fields = [(0x2F, 8), (width - 1, 14), (height - 1, 14), (int(alpha), 1), (0, 6)]
    fields += [(1, 1), (0, 3)] * 5
    bits = place = 0
    for value, length in fields:
        bits |= value << place
        place += length
    data = bits.to_bytes(16, "little")
    return b"RIFF" + struct.pack("<I", 12 + len(data)) + b"WEBPVP8L" + _sized(data)


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def bmp(width: int, height: int) -> bytes:
    """Return a BMP whose run-length code skips all pixels."""
    return _bmp(width, height, 8, b"\0\2\0\xff" * (height // 255 + 1) + b"\0\1")


def slow_bmp(width: int, height: int, run: int = 255) -> bytes:
    """Return a BMP of runs of 4-bit pixels, which Pillow decodes pixel by pixel in Python."""
    row = bytes([run, 0x12]) * (width // run) + bytes([width % run, 0x12]) + b"\0\0"
    return _bmp(width, height, 4, row * height)


def _bmp(width: int, height: int, bits: int, data: bytes) -> bytes:
    start = 14 + 40 + 1024
    header = struct.pack("<IHHI", start + len(data), 0, 0, start)
    method = {8: 1, 4: 2}[bits]
    size = struct.pack("<IiiHH", 40, width, height, 1, bits)
    return (
        b"BM"
        + header
        + size
        + struct.pack("<6I", method, len(data), 0, 0, 256, 0)
        + bytes(1024)
        + data
    )


def saved(kind: str, mode: str, width: int, height: int, **options: object) -> bytes:
    """Return an image of one color in a format."""
    file = io.BytesIO()
    color = (200, 100, 50, 128)[: len(Image.new(mode, (1, 1)).getbands())]
    image = Image.new(mode, (width, height), color if len(color) > 1 else 0)
    image.save(file, kind, **options)
    return file.getvalue()


def one_tile(width: int, height: int, side: int) -> bytes:
    """Return a gray TIFF with one tile of side x side pixels."""
    data = zlib.compress(bytes(side * side), 1)
    tags = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side}
    start = 8 + 2 + 12 * (len(tags) + 2) + 4
    tags |= {324: start, 325: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


def with_another_header(side: int) -> bytes:
    """Return an AVIF of 64 x 64 pixels according to its header, but of side x side in its data."""
    data = saved("AVIF", "RGB", side, side, speed=10)
    start = data.index(b"ispe") + 8
    return data[:start] + struct.pack(">II", 64, 64) + data[start + 8 :]


def rotated(kind: str, mode: str, side: int, **options: object) -> bytes:
    """Return an image that its EXIF data rotate by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(kind, mode, side, side, exif=exif, **options)


def _frame(side: int) -> Image.Image:
    return Image.new("RGBA", (side, side), (9, 9, 9, 9))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "PNG, tall": lambda: png(1, 64_000_000),
    "PNG, wide": lambda: png(64_000_000, 1, kind=0, depth=1),
    "PNG, long and narrow": lambda: png(3, 60_000, kind=6),
    "PNG": lambda: png(5_000, 5_000, kind=6),
    "PNG, 16-bit gray": lambda: png(5_000, 5_000, kind=0, depth=16),
    "WebP": lambda: webp(8_000, 8_000),
    "WebP, 268 million pixels": lambda: webp(16_383, 16_383),
    "BMP, run lengths": lambda: bmp(5_000, 5_000),
    "BMP, slow": lambda: slow_bmp(2_000, 2_000),
    "GIF": lambda: saved("GIF", "P", 5_000, 5_000),
    "TIFF, one strip": lambda: saved(
        "TIFF", "RGBA", 5_000, 5_000, compression="zstd", tiffinfo={278: 5_000}
    ),
    "TIFF, large tile": lambda: one_tile(64, 64, 12_000),
    "TIFF, floats": lambda: saved("TIFF", "F", 5_000, 5_000, compression="zstd"),
    "TIFF, fax": lambda: saved("TIFF", "1", 5_000, 5_000, compression="group4"),
    "JPEG, progressive": lambda: saved(
        "JPEG", "CMYK", 4_000, 4_000, progressive=True, subsampling=0
    ),
    "AVIF": lambda: saved("AVIF", "RGB", 3_000, 3_000, speed=10),
    "AVIF with another header": lambda: with_another_header(3_000),
    "ICO": lambda: saved("ICO", "RGBA", 256, 256),
}
"""Files with far more pixels, or far larger sides, than bytes."""

_DEFLATE: dict[str, object] = {"compression": "tiff_adobe_deflate"}

HONEST: dict[str, Callable[[int], bytes]] = {
    "PNG, RGB": lambda side: saved("PNG", "RGB", side, side, compress_level=1),
    "PNG, RGBA": lambda side: saved("PNG", "RGBA", side, side, compress_level=1),
    "PNG, palette": lambda side: png(side, side, kind=3, rows=side),
    "PNG, 16-bit gray": lambda side: png(side, side, kind=0, depth=16, rows=side),
    "PNG, rotated": lambda side: rotated("PNG", "RGBA", side, compress_level=1),
    "JPEG": lambda side: saved("JPEG", "RGB", side, side),
    "JPEG, progressive": lambda side: saved(
        "JPEG", "RGB", side, side, progressive=True, subsampling=0
    ),
    "JPEG, CMYK": lambda side: saved("JPEG", "CMYK", side, side, progressive=True),
    "WebP, lossy": lambda side: saved("WEBP", "RGB", side, side, method=0),
    "WebP, lossy with alpha": lambda side: saved("WEBP", "RGBA", side, side, method=0),
    "WebP, lossless": lambda side: webp(side, side),
    "WebP, animated": lambda side: saved(
        "WEBP", "RGBA", side, side, method=0, save_all=True, append_images=[_frame(side)]
    ),
    "GIF": lambda side: saved("GIF", "P", side, side),
    "GIF, transparent": lambda side: saved("GIF", "P", side, side, transparency=0),
    "BMP": lambda side: saved("BMP", "RGB", side, side),
    "BMP, run lengths": lambda side: bmp(side, side),
    "TIFF, strips": lambda side: saved("TIFF", "RGB", side, side, **_DEFLATE),
    "TIFF, one strip": lambda side: saved(
        "TIFF", "RGBA", side, side, compression="lzma", tiffinfo={278: side}
    ),
    "TIFF, one tile": lambda side: one_tile(side, side, side),
    "TIFF, floats": lambda side: saved("TIFF", "F", side, side, **_DEFLATE),
    "TIFF, integers": lambda side: saved("TIFF", "I", side, side, **_DEFLATE),
    "TIFF, rotated": lambda side: rotated("TIFF", "RGBA", side, **_DEFLATE),
    "AVIF": lambda side: saved("AVIF", "RGB", side, side, speed=10),
    "AVIF with alpha": lambda side: saved(
        "AVIF", "RGBA", side, side, speed=10, subsampling="4:4:4"
    ),
    "HEIF": lambda side: saved("HEIF", "RGB", side, side, quality=10),
    "HEIF with alpha": lambda side: saved("HEIF", "RGBA", side, side, quality=10, chroma=444),
}
"""Files of a given side that decode to what their header states."""


class Measured(NamedTuple):
    """What decoding a file took."""

    estimate: int
    """Bytes, estimated from the header; 0 if the file cannot be opened."""
    growth: int
    """Bytes that the peak memory of the process was above its memory before."""
    seconds: float
    outcome: str
    """"decoded", or the reason of the refusal."""


def measure(paths: Iterable[Path], upload: bool = False) -> list[Measured]:
    """Decode files in a new process, as `index add` does or as the server does with uploads."""
    # Freed memory is returned, so that the next file is measured from the same level.
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    lines = _run(["upload" if upload else "file", *map(str, paths)], environment)
    return [Measured(*json.loads(line)) for line in lines]


def measure_threads(paths: Sequence[Path], budget: int) -> tuple[int, int]:
    """Decode files in threads with a memory budget; return the peak growth and the growth left."""
    [line] = _run(["threads", str(budget), *map(str, paths)], {})
    growth, left = json.loads(line)
    return growth, left


def _run(arguments: Sequence[str], environment: dict[str, str]) -> list[bytes]:
    """Run this module in a new process; return the lines of its output."""
    command = [sys.executable, "-m", "fuzz.bombs", *arguments]
    environment = os.environ | environment
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    return done.stdout.splitlines()


def _measure_threads_here(budget: int, names: Sequence[str]) -> tuple[int, int]:
    decoding._MEMORY = MemoryBudget(budget)
    before = peak()
    for batch in decoding.decode_ahead(names, _SIDE):
        assert not batch.skipped
    growth = peak() - before
    Path("/proc/self/clear_refs").write_text("5")
    return growth, peak() - before


def _measure_here(path: Path, upload: bool) -> Measured:
    data, estimate = path.read_bytes(), 0
    with suppress(Exception), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        image.draft(None, (2 * _SIDE, 2 * _SIDE))
        estimate = estimate_memory(image, _SIDE)
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the current memory
    before, started = peak(), time.perf_counter()
    try:
        if upload:
            decode_upload(data, _SIDE, _MOST_PIXELS)
        else:
            decode_image(path, _SIDE)
        outcome = "decoded"
    except ValueError as error:
        outcome = str(error)
    return Measured(estimate, peak() - before, time.perf_counter() - started, outcome)


def _table(title: str, files: dict[str, bytes]) -> Iterator[str]:
    """Yield the lines of a table: peak memory in MiB and seconds, as a file and as an upload."""
    yield f"\n| {title} | bytes | estimate | file: peak | seconds | upload: peak | seconds |"
    yield "|---" * 7 + "|"
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, data) in enumerate(files.items()):
            path = Path(folder) / str(number)
            path.write_bytes(data)
            both = [measure([path], upload)[0] for upload in (False, True)]
            cells = [name, f"{len(data):,}", f"{both[0].estimate / 2**20:,.0f}"]
            for found in both:
                refused = "" if found.outcome == "decoded" else ", refused"
                cells += [f"{found.growth / 2**20:,.0f}{refused}", f"{found.seconds:.1f}"]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure the given files, or print the tables."""
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        kind, *names = sys.argv[1:]
        if kind == "threads":
            print(json.dumps(_measure_threads_here(int(names[0]), names[1:])))
            return
        for name in names:
            print(json.dumps(_measure_here(Path(name), kind == "upload")))
        return
    hostile = {name: build() for name, build in HOSTILE.items()}
    honest = {name: build(_HONEST_SIDE) for name, build in HONEST.items()}
    for title, files in (("hostile file", hostile), (f"{_HONEST_SIDE:,} pixels a side", honest)):
        for line in _table(title, files):
            print(line, flush=True)
    print(f"\n{_describe_threads()}\n{_describe_process()}")


def _describe_threads() -> str:
    """Return the memory for a folder of small files with 64 and 169 million pixels."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.webp" for number in range(8)]
        for number, path in enumerate(paths):
            side = 13_000 if number % 2 else 8_000
            path.write_bytes(webp(side, side))
        growth, left = measure_threads(paths, ON_DISK.bytes)
    threads = os.cpu_count()
    return f"{threads} threads: {growth / 2**20:,.0f} MiB, {left / 2**20:,.0f} MiB left afterwards"


def _describe_process() -> str:
    """Return the time to start a process of the server, and its memory."""
    from bitprint.web.decoding import Decoders  # not in the processes that are measured above

    decoders, started = Decoders(1, _MOST_PIXELS), time.perf_counter()
    decoders.warm_up()
    seconds = time.perf_counter() - started
    [child] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    status = Path(f"/proc/{child}/smaps_rollup").read_text()
    memory = {line.split()[0]: int(line.split()[1]) / 1024 for line in status.splitlines()[1:]}
    decoders.close()
    return (
        f"decoding process: started in {seconds:.2f} s, {memory['Rss:']:.0f} MiB, "
        f"{memory['Private_Dirty:']:.0f} of them not shared"
    )


if __name__ == "__main__":
    main()
