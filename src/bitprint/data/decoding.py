"""Decode image files to pixels: one file, or many files in batches."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import PurePath
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from bitprint.data.decoding_limits import (
    ON_DISK,
    DecodingLimits,
    MemoryBudget,
    TooLargeError,
    check_image,
)
from bitprint.data.formats import FORMATS, install_hint

Progress = Callable[[int, int], None]
Size = int | tuple[int, int]
"""Height and width of an image; one number for a square."""

_BICUBIC = Image.Resampling.BICUBIC
_MOST_PIXELS = 500_000_000
"""Largest JPEG file."""
_STRIP = 1 << 18
"""Pixels that are converted to RGB at a time."""
_MEMORY = MemoryBudget(ON_DISK.bytes)
"""Bounds the memory of all threads, however many there are."""
_TO_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transpose operations that undo each EXIF orientation."""


def decode_image(
    source: str | os.PathLike[str] | IO[bytes], size: Size, limits: DecodingLimits = ON_DISK
) -> NDArray[np.uint8]:
    """Decode one image file to RGB pixels of the given size.

    Only the first frame is read. The EXIF orientation is applied, transparent parts become white,
    and 16-bit gray becomes 8-bit gray. Images are resized to `size` (bicubic) without keeping the
    aspect ratio; a JPEG file is first decoded to the smallest of 1/1, 1/2, 1/4 and 1/8 that is not
    smaller. Files with more pixels than Pillow's limit of 179 million raise a ValueError,
    except JPEG files of up to 500 million pixels, and so do files that exceed `limits`.

    Threads wait while the images that others decode would take more than 3 GiB together with this
    one, estimated from the headers.

    Parameters
    ----------
    source : path or binary file
        JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or, if pillow-heif is installed, HEIC.
    size : int or (int, int)
        Height and width of the result; one number for a square.
    limits : DecodingLimits, optional
        By default 65,535 pixels per side and 3 GiB of memory for decoding.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 128).save(file, "PNG")
    >>> decode_image(file, 8)[0, 0].tolist()
    [128, 128, 128]
    """
    height, width = sides(size)

    def resize(image: Image.Image) -> Image.Image:
        return image.resize((width, height), _BICUBIC)

    return _decode(source, size, resize, limits, at_least=1)


def convert_image(image: Image.Image, size: Size | None = None) -> NDArray[np.uint8]:
    """Convert a Pillow image to RGB pixels, as `decode_image` does for a file.

    Parameters
    ----------
    image : PIL.Image.Image
        An image of any mode. A JPEG file that is open but not decoded yet is decoded by
        `decode_image`, so that the result is the same as for its path.
    size : int or (int, int), optional
        Height and width of the result; by default the size of the image.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)

    Examples
    --------
    >>> convert_image(Image.new("L", (40, 30), 128)).shape
    (30, 40, 3)
    """
    file = _undecoded_file(image)
    if size is not None and file is not None:
        file.seek(0)
        return decode_image(file, size)
    height, width = sides(size or image.size[::-1])
    try:
        if isinstance(image, ImageFile):  # it may not be decoded yet
            check_image(image, ON_DISK, max(height, width))
        image.load()
        rgb = _turned(_to_rgb(image), _find_turn(image))
    except Exception as error:  # Pillow raises many types for damaged files
        raise ValueError(f"not a readable image ({_reason(error, 'image')})") from error
    return np.array(rgb if size is None else rgb.resize((width, height), _BICUBIC))


def _undecoded_file(image: Image.Image) -> IO[bytes] | None:
    """Return the file of a JPEG image that is open and not decoded yet."""
    if not isinstance(image, JpegImageFile) or not image.tile:
        return None
    file = image.fp
    return None if file is None or file.closed else file


def resize_pixels(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Resize one image (height, width, 3) as `decode_image` does; return it if the size matches.

    Examples
    --------
    >>> resize_pixels(np.zeros((30, 40, 3), np.uint8), (8, 16)).shape
    (8, 16, 3)
    """
    height, width = sides(size)
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((width, height), _BICUBIC))


def sides(size: Size) -> tuple[int, int]:
    """Return (height, width); one number means a square.

    Examples
    --------
    >>> sides(256), sides((30, 40))
    ((256, 256), (30, 40))
    """
    return (size, size) if isinstance(size, int | np.integer) else size


def decode_thumbnail(
    source: str | os.PathLike[str] | IO[bytes], size: int, limits: DecodingLimits = ON_DISK
) -> NDArray[np.uint8]:
    """Decode one image file to RGB pixels with both sides at most `size`, keeping the aspect ratio.

    Otherwise as `decode_image`; a smaller image keeps its size.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 128).save(file, "PNG")
    >>> decode_thumbnail(file, 20).shape
    (15, 20, 3)
    """

    def shrink(image: Image.Image) -> Image.Image:
        image.thumbnail((size, size), _BICUBIC)
        return image

    return _decode(source, size, shrink, limits, at_least=2)


def _decode(
    source: str | os.PathLike[str] | IO[bytes],
    size: Size,
    resize: Callable[[Image.Image], Image.Image],
    limits: DecodingLimits,
    at_least: int,
) -> NDArray[np.uint8]:
    """Decode a file; a JPEG to the smallest fraction with `at_least` times the size."""
    height, width = sides(size)
    if min(height, width) < 1:
        raise ValueError(f"the size of an image must be >= 1, got {size}")
    name = source if isinstance(source, str | os.PathLike) else "image"
    try:
        image, needed = _open_checked(source, (height, width), limits, at_least)
        with _MEMORY.reserve(needed):
            with image:
                image.load()
                turn = _find_turn(image)
            image = _to_rgb(image)  # frees the decoded image, if it was converted
            image = resize(_turned(image, turn))
            return np.array(image)
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: no such image file") from None
    except Exception as error:  # Pillow raises many types for damaged files
        raise ValueError(f"{name}: not a readable image ({_reason(error, name)})") from error


def _open_checked(
    source: str | os.PathLike[str] | IO[bytes],
    size: tuple[int, int],
    limits: DecodingLimits,
    at_least: int,
) -> tuple[Image.Image, int]:
    """Open a file; return the image, not decoded yet, and the memory to reserve for it."""
    height, width = size
    with ExitStack() as stack:
        image = stack.enter_context(_open(source))
        # JPEG can decode to a fraction of its size, several times faster for photographs.
        image.draft(None, (at_least * width, at_least * height))
        needed = check_image(image, limits, max(size))
        stack.pop_all()
    return image, needed


def _open(source: str | os.PathLike[str] | IO[bytes]) -> Image.Image:
    try:
        return Image.open(source, formats=FORMATS)
    except Image.DecompressionBombError:
        # Allow large local JPEG files, which decode cheaply to a fraction of their size. Uploaded
        # bytes keep Pillow's limit.
        if not isinstance(source, str | os.PathLike):
            raise
        large = _open_jpeg(source)
        if large is None:
            raise
        return large


def _open_jpeg(path: str | os.PathLike[str]) -> Image.Image | None:
    """Open a JPEG of at most `_MOST_PIXELS`, which is more than Pillow's limit; None if larger."""
    try:
        image = JpegImageFile(path)
    except SyntaxError:  # raised by Pillow's readers for other formats
        return None
    if image.width * image.height <= _MOST_PIXELS:
        return image
    image.close()
    return None


def _find_turn(image: Image.Image) -> Image.Transpose | None:
    # ImageOps.exif_transpose rewrites all EXIF data and fails on invalid tags.
    try:
        return _TO_UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # the pixels can be valid although the EXIF data are not
        return None


def _turned(image: Image.Image, turn: Image.Transpose | None) -> Image.Image:
    return image if turn is None else image.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB in strips, because some conversions take 16 bytes per pixel."""
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    convert = _convert_transparent if image.has_transparency_data else _convert
    if image.mode.startswith("I"):
        convert = _convert_integers
    elif image.mode == "F":
        convert = partial(_convert_floats, scale=255 if _largest(image) <= 1 else 1)
    strips = list(_strips(image))
    if len(strips) == 1:
        return convert(image)
    rgb = Image.new("RGB", image.size)
    for box in strips:
        rgb.paste(convert(image.crop(box)), box)
    return rgb


def _strips(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    """Yield the boxes of consecutive rows of an image."""
    width, height = image.size
    rows = max(1, _STRIP // max(1, width))
    for top in range(0, height, rows):
        yield 0, top, width, min(top + rows, height)


def _convert(image: Image.Image) -> Image.Image:
    return image.convert("RGB")


def _convert_transparent(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _convert_integers(image: Image.Image) -> Image.Image:
    gray = np.clip(np.asarray(image, np.float64), 0, 65535) / 257
    return Image.fromarray(np.rint(gray).astype(np.uint8)).convert("RGB")


def _convert_floats(image: Image.Image, scale: int) -> Image.Image:
    gray = np.clip(np.nan_to_num(np.asarray(image, np.float64)) * scale, 0, 255)
    return Image.fromarray(np.rint(gray).astype(np.uint8)).convert("RGB")


def _largest(image: Image.Image) -> float:
    """Return the largest number in an image of floats."""
    return max(
        float(np.nan_to_num(np.asarray(image.crop(box), np.float64)).max())
        for box in _strips(image)
    )


def _reason(error: Exception, name: str | os.PathLike[str]) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"unsupported format{install_hint([PurePath(name).suffix.lower()])}"
    if isinstance(error, TooLargeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def try_decode(path: str | os.PathLike[str], size: Size) -> NDArray[np.uint8] | str:
    """Return the pixels of a file, or the reason why it cannot be read."""
    try:
        return decode_image(path, size)
    except FileNotFoundError:
        return "no such file"
    except ValueError as error:
        cause = error.__cause__
        return _reason(cause, path) if isinstance(cause, Exception) else str(error)


class Batch(NamedTuple):
    """A batch of decoded files."""

    rows: list[int]
    """Positions of the files that could be read."""
    pixels: NDArray[np.uint8]
    """Shape (len(rows), size, size, 3)."""
    skipped: dict[int, str]
    """Positions of the other files, each with the reason."""


def decode_ahead(
    paths: Sequence[str | os.PathLike[str]], size: int, batch_size: int = 64
) -> Iterator[Batch]:
    """Decode files in batches on all cores; the next batch is decoded while one is in use.

    Parameters
    ----------
    paths : sequence of paths
    size : int
        Height and width of every image, see `decode_image`.
    batch_size : int
        Number of files per batch.

    Yields
    ------
    Batch

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for gray in (0, 128, 255):
    ...         Image.new("L", (40, 30), gray).save(f"{folder}/{gray}.png")
    ...     paths = [f"{folder}/{name}.png" for name in ("0", "128", "64", "255")]
    ...     for batch in decode_ahead(paths, size=8, batch_size=3):
    ...         print(batch.rows, batch.pixels.shape, batch.skipped)
    [0, 1] (2, 8, 8, 3) {2: 'no such file'}
    [3] (1, 8, 8, 3) {}
    """
    waiting: deque[tuple[range, list[Future[NDArray[np.uint8] | str]]]] = deque()
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for start in range(0, len(paths), batch_size):
            rows = range(start, min(start + batch_size, len(paths)))
            waiting.append((rows, [pool.submit(try_decode, paths[row], size) for row in rows]))
            if len(waiting) > 1:
                yield _gather(*waiting.popleft(), size)
        while waiting:
            yield _gather(*waiting.popleft(), size)
    finally:
        pool.shutdown(cancel_futures=True)


def _gather(rows: range, tasks: Sequence[Future[NDArray[np.uint8] | str]], size: int) -> Batch:
    results = {row: task.result() for row, task in zip(rows, tasks, strict=True)}
    images = {row: found for row, found in results.items() if not isinstance(found, str)}
    skipped = {row: found for row, found in results.items() if isinstance(found, str)}
    pixels = np.empty((len(images), size, size, 3), np.uint8)
    for place, image in enumerate(images.values()):
        pixels[place] = image
    return Batch(list(images), pixels, skipped)
