"""Image files to pixels: one file, or many at once into memory or a memory-mapped cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bitprint.data.home import data_home

Progress = Callable[[int, int], None]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

_BICUBIC = Image.Resampling.BICUBIC
_IN_MEMORY = 2**30
_CHUNK = 512
_CACHE_VERSION = 1


def decode_image(source: str | os.PathLike[str] | IO[bytes], size: int) -> NDArray[np.uint8]:
    """Decode one image file to size x size RGB pixels.

    The first frame counts, the camera's orientation is respected, transparent parts become white
    and 16-bit grey is brought to 8 bits. The aspect ratio is not kept: images are resized straight
    to a square (bicubic).

    Parameters
    ----------
    source : path or binary file
        JPEG, PNG, WebP, GIF, BMP or TIFF.
    size : int
        Height and width of the result.

    Returns
    -------
    ndarray of uint8, shape (size, size, 3)

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 128).save(file, "PNG")
    >>> decode_image(file, 8)[0, 0].tolist()
    [128, 128, 128]
    """
    return _decode(source, size, lambda image: image.resize((size, size), _BICUBIC))


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
    size: int,
    resize: Callable[[Image.Image], Image.Image],
) -> NDArray[np.uint8]:
    if size < 1:
        raise ValueError(f"images are decoded to a size of at least 1 pixel, got {size}")
    name = source if isinstance(source, str | os.PathLike) else "image"
    try:
        with Image.open(source, formats=FORMATS) as image:
            # JPEG alone can decode to a fraction of its size: several times faster on photographs.
            image.draft(None, (2 * size, 2 * size))
            return np.array(resize(_to_rgb(ImageOps.exif_transpose(image))))
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: no such image file") from None
    except Exception as error:  # A damaged file makes Pillow raise errors of almost any kind.
        raise ValueError(f"{name}: not a readable image ({_reason(error)})") from error


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


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "no format that is read here"
    return f"{type(error).__name__}: {error}"


def decode_files(
    root: Path,
    names: Sequence[str],
    size: int,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[tuple[str, str]]]:
    """Decode many files with all cores, in memory or once into a memory-mapped cache.

    Parameters
    ----------
    root : Path
        The folder that `names` are relative to.
    names : sequence of str
        M file names.
    size : int
        Height and width of every image.
    cache : path, optional
        A folder for the decoded images. They are used again while names, sizes and dates of the
        files stay the same, and replaced when not. By default images of up to 1 GiB in all stay
        in memory, and larger sets are cached in the folder "decoded" of `data_home`.
    progress : callable, optional
        Called with how many files are done, and M.

    Returns
    -------
    pixels : ndarray of uint8, shape (M, size, size, 3)
    rows : ndarray of int64, shape (N,)
        The rows of `pixels` whose files could be read.
    skipped : list of (str, str)
        The names of the others, each with the reason.
    """
    shape = (len(names), size, size, 3)
    if cache is None and np.prod(shape, dtype=np.int64) <= _IN_MEMORY:
        pixels = np.zeros(shape, np.uint8)
        skipped = _decode_into(pixels, root, names, progress)
    else:
        folder = data_home() / "decoded" if cache is None else Path(cache)
        pixels, skipped = _cached(folder, root, names, shape, progress)
    lost = {name for name, _ in skipped}
    rows = np.array([row for row, name in enumerate(names) if name not in lost], np.int64)
    return pixels, rows, skipped


def _decode_into(
    pixels: NDArray[np.uint8], root: Path, names: Sequence[str], progress: Progress | None
) -> list[tuple[str, str]]:
    """Fill `pixels` row by row and return the files that could not be read, with the reasons."""
    size = pixels.shape[1]

    def decode(row: int) -> str | None:
        found = _try_decode(root / names[row], size)
        if isinstance(found, str):
            return found
        pixels[row] = found
        return None

    skipped = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # In chunks, so that an interrupted program waits for little, and a million files are
        # never a million waiting jobs.
        for start in range(0, len(names), _CHUNK):
            chunk = range(start, min(start + _CHUNK, len(names)))
            for row, reason in zip(chunk, pool.map(decode, chunk), strict=True):
                if reason is not None:
                    skipped.append((names[row], reason))
                if progress is not None:
                    progress(row + 1, len(names))
    return skipped


def _try_decode(path: str | os.PathLike[str], size: int) -> NDArray[np.uint8] | str:
    """Return the pixels of a file, or why it has none."""
    try:
        return decode_image(path, size)
    except FileNotFoundError:
        return "no such file"
    except ValueError as error:
        return _reason(error.__cause__) if isinstance(error.__cause__, Exception) else str(error)


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
            waiting.append((rows, [pool.submit(_try_decode, paths[row], size) for row in rows]))
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


def _cached(
    folder: Path,
    root: Path,
    names: Sequence[str],
    shape: tuple[int, int, int, int],
    progress: Progress | None,
) -> tuple[NDArray[np.uint8], list[tuple[str, str]]]:
    """Return what `_decode_into` gives, from the cache when it holds the same listing."""
    listing = _listing_digest(root, names, shape[1])
    place = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]
    stem = f"{place}-{shape[1]}"
    pixels_file = folder / f"{stem}-{listing}.npy"
    skipped_file = folder / f"{stem}-{listing}.json"
    if not pixels_file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(folder, int(np.prod(shape, dtype=np.int64)))
        partial = folder / f"{stem}-{listing}.{os.getpid()}.partial"
        try:
            pixels = np.lib.format.open_memmap(partial, "w+", np.uint8, shape)
            skipped = _decode_into(pixels, root, names, progress)
            pixels.flush()
            del pixels
            skipped_file.write_text(json.dumps(skipped), "utf-8")
            partial.replace(pixels_file)  # Last: the cache is whole as soon as this file exists.
        finally:
            partial.unlink(missing_ok=True)
        _remove_outdated(folder, stem, listing)
    elif progress is not None:
        progress(len(names), len(names))
    return _read_cache(pixels_file, skipped_file, shape)


def _read_cache(
    pixels_file: Path, skipped_file: Path, shape: tuple[int, ...]
) -> tuple[NDArray[np.uint8], list[tuple[str, str]]]:
    try:
        pixels = np.load(pixels_file, mmap_mode="r")
        skipped = [
            (str(name), str(why)) for name, why in json.loads(skipped_file.read_text("utf-8"))
        ]
        if pixels.shape != shape or pixels.dtype != np.uint8:
            raise ValueError(f"it holds {pixels.dtype} of shape {pixels.shape}")
    except Exception as error:  # damaged bytes make NumPy raise almost anything
        raise ValueError(
            f"{pixels_file}: the cache of decoded images is damaged ({error}); delete this file"
        ) from error
    return pixels, skipped


def _listing_digest(root: Path, names: Sequence[str], size: int) -> str:
    digest = hashlib.sha256(repr((_CACHE_VERSION, size)).encode())
    for name in names:
        try:
            facts = (root / name).stat()
            digest.update(repr((name, facts.st_size, facts.st_mtime_ns)).encode())
        except OSError:
            digest.update(repr((name, None)).encode())
    return digest.hexdigest()[:16]


def _check_space(folder: Path, needed: int) -> None:
    # A memory-mapped file that finds the disk full kills the process without a word.
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{folder}: the decoded images take {needed / 2**30:.1f} GiB and only "
            f"{free / 2**30:.1f} GiB are free; choose another cache folder or a smaller size"
        )


def _remove_outdated(folder: Path, stem: str, listing: str) -> None:
    for suffix in ("npy", "json"):
        for file in folder.glob(f"{stem}-*.{suffix}"):
            if file.stem != f"{stem}-{listing}":
                file.unlink(missing_ok=True)
