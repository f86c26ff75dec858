"""Decode many image files into one array, in memory or in a memory-mapped cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitprint.data.decoding import Progress, Size, sides, try_decode
from bitprint.data.home import data_home

_IN_MEMORY = 2**30
_CHUNK = 512
_CACHE_VERSION = 2


def decode_files(
    root: Path,
    names: Sequence[str],
    size: Size,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[tuple[str, str]]]:
    """Decode many files on all cores, in memory or once into a memory-mapped cache.

    Parameters
    ----------
    root : Path
        Folder to which `names` are relative.
    names : sequence of str
        M file names.
    size : int or (int, int)
        Height and width of every image; one number for a square.
    cache : path, optional
        Folder for the decoded images. They are reused while the names, sizes and modification
        times of the files are unchanged, and replaced otherwise. By default, up to 1 GiB of
        decoded images stay in memory, and larger sets are cached in the folder "decoded" of
        `data_home`.
    progress : callable, optional
        Called with the number of files done, and M.

    Returns
    -------
    pixels : ndarray of uint8, shape (M, height, width, 3)
    rows : ndarray of int64, shape (N,)
        The rows of `pixels` whose files could be read.
    skipped : list of (str, str)
        Names of the other files, each with the reason.
    """
    shape = (len(names), *sides(size), 3)
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
    """Fill `pixels` row by row; return the files that could not be read, with the reasons."""
    size = pixels.shape[1], pixels.shape[2]

    def decode(row: int) -> str | None:
        found = try_decode(root / names[row], size)
        if isinstance(found, str):
            return found
        pixels[row] = found
        return None

    skipped = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # In chunks, so that an interrupt takes effect soon and the queue of the pool stays short.
        for start in range(0, len(names), _CHUNK):
            chunk = range(start, min(start + _CHUNK, len(names)))
            for row, reason in zip(chunk, pool.map(decode, chunk), strict=True):
                if reason is not None:
                    skipped.append((names[row], reason))
                if progress is not None:
                    progress(row + 1, len(names))
    return skipped


def _cached(
    folder: Path,
    root: Path,
    names: Sequence[str],
    shape: tuple[int, int, int, int],
    progress: Progress | None,
) -> tuple[NDArray[np.uint8], list[tuple[str, str]]]:
    """Return the result of `_decode_into`, from the cache if the listing is unchanged."""
    height, width = shape[1:3]
    listing = _listing_digest(root, names, height if height == width else (height, width))
    # Folder names can contain bytes that are not UTF-8.
    name = str(root.resolve()).encode("utf-8", "surrogatepass")
    place = hashlib.sha256(name).hexdigest()[:12]
    stem = f"{place}-{height}" if height == width else f"{place}-{height}x{width}"
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
            partial.replace(pixels_file)  # last: the cache is complete when this file exists
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
            raise ValueError(f"found {pixels.dtype} of shape {pixels.shape}")
    except Exception as error:  # NumPy raises many types for damaged files
        raise ValueError(
            f"{pixels_file}: the cache of decoded images is damaged ({error}); delete this file"
        ) from error
    return pixels, skipped


def _listing_digest(root: Path, names: Sequence[str], size: Size) -> str:
    digest = hashlib.sha256(repr((_CACHE_VERSION, size)).encode())
    for name in names:
        try:
            facts = (root / name).stat()
            digest.update(repr((name, facts.st_size, facts.st_mtime_ns)).encode())
        except OSError:
            digest.update(repr((name, None)).encode())
    return digest.hexdigest()[:16]


def _check_space(folder: Path, needed: int) -> None:
    # Writing to a memory-mapped file on a full disk kills the process without an error message.
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{folder}: the decoded images need {needed / 2**30:.1f} GiB, but only "
            f"{free / 2**30:.1f} GiB are free; choose another cache folder or a smaller size"
        )


def _remove_outdated(folder: Path, stem: str, listing: str) -> None:
    for suffix in ("npy", "json"):
        for file in folder.glob(f"{stem}-*.{suffix}"):
            if file.stem != f"{stem}-{listing}":
                file.unlink(missing_ok=True)
