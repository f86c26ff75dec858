"""Image files to pixels: one of them, or many, each batch while the last is being used."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import PurePath
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from bitprint.data.formats import FORMATS, advice

Progress = Callable[[int, int], None]
Size = int | tuple[int, int]
"""Height and width of an image; one number for a square."""

_BICUBIC = Image.Resampling.BICUBIC
_MOST_PIXELS = 500_000_000
"""Of a JPEG file; a progressive one takes up to 6 bytes for each."""
_TO_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each orientation that a camera may note."""


def decode_image(source: str | os.PathLike[str] | IO[bytes], size: Size) -> NDArray[np.uint8]:
    """Decode one image file to RGB pixels of the given size.

    Only the first frame is read. The orientation in the EXIF data is applied, transparent parts
    become white, and 16-bit gray becomes 8-bit gray. The aspect ratio is not kept: images are
    resized straight to `size` (bicubic). Files with more pixels than Pillow's limit, 179 million,
    are refused, except JPEG files of up to 500 million pixels.

    Parameters
    ----------
    source : path or binary file
        JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or, where pillow-heif is installed, HEIC.
    size : int or (int, int)
        Height and width of the result: one number for a square.

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
    return _decode(source, size, lambda image: image.resize((width, height), _BICUBIC))


def convert_image(image: Image.Image, size: Size | None = None) -> NDArray[np.uint8]:
    """Convert a Pillow image to RGB pixels, as `decode_image` does for a file.

    Parameters
    ----------
    image : PIL.Image.Image
        Of any mode. A JPEG file that was opened but not decoded yet is decoded by `decode_image`,
        so that its pixels equal those of its path.
    size : int or (int, int), optional
        Height and width of the result; by default those of the image.

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
    try:
        pixels = np.array(_to_rgb(_upright(image)))
    except Exception as error:  # A damaged file makes Pillow raise errors of almost any kind.
        raise ValueError(f"not a readable image ({_reason(error, 'image')})") from error
    return pixels if size is None else resize_pixels(pixels, size)


def _undecoded_file(image: Image.Image) -> IO[bytes] | None:
    """Return the file of a JPEG that is open and not decoded yet."""
    if not isinstance(image, JpegImageFile) or not image.tile:
        return None
    file = image.fp
    return None if file is None or file.closed else file


def resize_pixels(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Resize one image (height, width, 3), as `decode_image` does; itself if it has that size.

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
    """Height and width: twice the same number for a square.

    Examples
    --------
    >>> sides(256), sides((30, 40))
    ((256, 256), (30, 40))
    """
    return (size, size) if isinstance(size, int | np.integer) else size


def decode_thumbnail(source: str | os.PathLike[str] | IO[bytes], size: int) -> NDArray[np.uint8]:
    """Decode one image file to RGB pixels of its own aspect, neither side longer than `size`.

    Everything else is as in `decode_image`; a smaller image keeps its size.

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

    return _decode(source, size, shrink)


def _decode(
    source: str | os.PathLike[str] | IO[bytes],
    size: Size,
    resize: Callable[[Image.Image], Image.Image],
) -> NDArray[np.uint8]:
    height, width = sides(size)
    if min(height, width) < 1:
        raise ValueError(f"images are decoded to a size of at least 1 pixel, got {size}")
    name = source if isinstance(source, str | os.PathLike) else "image"
    try:
        with _open(source) as image:
            # JPEG alone can decode to a fraction of its size: several times faster on photographs.
            image.draft(None, (2 * width, 2 * height))
            image.load()
            return np.array(resize(_to_rgb(_upright(image))))
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: no such image file") from None
    except Exception as error:  # A damaged file makes Pillow raise errors of almost any kind.
        raise ValueError(f"{name}: not a readable image ({_reason(error, name)})") from error


def _open(source: str | os.PathLike[str] | IO[bytes]) -> Image.Image:
    try:
        return Image.open(source, formats=FORMATS)
    except Image.DecompressionBombError:
        # A large photograph of one's own is cheap to decode to a fraction; bytes that somebody
        # sent have Pillow's limit.
        if not isinstance(source, str | os.PathLike):
            raise
        large = _open_jpeg(source)
        if large is None:
            raise
        return large


def _open_jpeg(path: str | os.PathLike[str]) -> Image.Image | None:
    """Open a JPEG of at most `_MOST_PIXELS`, which may be more than Pillow's own limit."""
    try:
        image = JpegImageFile(path)
    except SyntaxError:  # what Pillow's readers raise for other formats
        return None
    if image.width * image.height <= _MOST_PIXELS:
        return image
    image.close()
    return None


def _upright(image: Image.Image) -> Image.Image:
    # ImageOps.exif_transpose writes all of the EXIF anew, and fails on tags that are no good.
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # The pixels may be sound where what is said about them is not.
        return image
    turn = _TO_UPRIGHT.get(orientation)
    return image if turn is None else image.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image, np.float64), 0, 65535) / 257
        return Image.fromarray(np.rint(grey).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        grey = np.nan_to_num(np.asarray(image, np.float64))
        grey = np.clip(grey * 255 if grey.max() <= 1 else grey, 0, 255)
        return Image.fromarray(np.rint(grey).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def _reason(error: Exception, name: str | os.PathLike[str]) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"no format that is read here{advice([PurePath(name).suffix.lower()])}"
    return f"{type(error).__name__}: {error}"


def try_decode(path: str | os.PathLike[str], size: Size) -> NDArray[np.uint8] | str:
    """Return the pixels of a file, or why it has none."""
    try:
        return decode_image(path, size)
    except FileNotFoundError:
        return "no such file"
    except ValueError as error:
        cause = error.__cause__
        return _reason(cause, path) if isinstance(cause, Exception) else str(error)


class Batch(NamedTuple):
    """Some files, decoded."""

    rows: list[int]
    """Which of the files these are, of those that could be read."""
    pixels: NDArray[np.uint8]
    """Shape (len(rows), size, size, 3)."""
    skipped: dict[int, str]
    """The others, each with the reason."""


def decode_ahead(
    paths: Sequence[str | os.PathLike[str]], size: int, batch_size: int = 64
) -> Iterator[Batch]:
    """Decode files batch by batch with all cores, the next batch while the last is being used.

    Parameters
    ----------
    paths : sequence of paths
    size : int
        Height and width of every image, see `decode_image`.
    batch_size : int
        How many files a batch covers.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for grey in (0, 128, 255):
    ...         Image.new("L", (40, 30), grey).save(f"{folder}/{grey}.png")
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
