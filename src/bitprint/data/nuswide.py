"""NUS-WIDE: the images with at least one of its 21 most frequent concepts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitprint.data.decoded import decode_files
from bitprint.data.decoding import Progress
from bitprint.data.home import data_home
from bitprint.data.images import ImageSet

IMAGE_LIST = "ImageList/Imagelist.txt"
CONCEPTS = "Groundtruth/AllLabels"
IMAGE_FOLDERS = ("Flickr", "images")


def load_nuswide(
    root: str | os.PathLike[str] | None = None,
    *,
    size: int = 256,
    concepts: int = 21,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """Load the images of NUS-WIDE that have at least one of the most frequent concepts.

    The folder must have the official layout: `ImageList/Imagelist.txt`, one
    `Groundtruth/AllLabels/Labels_<concept>.txt` per concept, and the images in `Flickr/` or
    `images/`. In the full set 195,834 of 269,648 images are selected.

    Parameters
    ----------
    root : path, optional
        The folder; "nuswide" in `data_home` by default.
    size : int
        Height and width to which the images are resized.
    concepts : int
        Number of the most frequent concepts.
    cache : path, optional
        Folder for the decoded images, see `bitprint.data.decoded.decode_files`. At 256 pixels the
        full set needs 36 GiB.
    progress : callable, optional
        Called with the number of files done, and the number of files.

    Returns
    -------
    ImageSet
        In the order of the official list, with labels (N, concepts), the most frequent concept
        first. `skipped` lists images that are missing or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as name:
    ...     root = Path(name)
    ...     for folder in ("ImageList", "Groundtruth/AllLabels", "images"):
    ...         (root / folder).mkdir(parents=True)
    ...     _ = (root / IMAGE_LIST).write_text(os.linesep.join(["a/1.jpg", "b/2.jpg", "b/3.jpg"]))
    ...     _ = (root / CONCEPTS / "Labels_lake.txt").write_text("0 1 0")
    ...     _ = (root / CONCEPTS / "Labels_sky.txt").write_text("1 1 0")
    ...     for number in (1, 2, 3):
    ...         Image.new("RGB", (40, 30)).save(root / "images" / f"{number}.jpg")
    ...     images = load_nuswide(root, size=32, concepts=2)
    >>> images.ids.tolist(), images.label_names, images.labels.tolist()
    (['a/1.jpg', 'b/2.jpg'], ['sky', 'lake'], [[1, 0], [1, 1]])
    """
    root = data_home() / "nuswide" if root is None else Path(root)
    names, matrix, paths = read_nuswide_labels(root)
    columns, rows = frequent_concepts(matrix, names, concepts)
    files = _locate(root, [paths[row] for row in rows])
    pixels, found, skipped = decode_files(root, files, size, cache=cache, progress=progress)
    if len(found) == 0:
        raise ValueError(
            f"{root}: none of the {len(files)} images can be read; "
            f"the first, {skipped[0][0]}: {skipped[0][1]}"
        )
    return ImageSet(
        pixels,
        labels=matrix[rows[found]][:, columns],
        ids=[paths[row] for row in rows[found]],
        label_names=[names[column] for column in columns],
        name="nuswide",
        skipped=skipped,
        rows=found,
        protocol="nuswide",
    )


def read_nuswide_labels(
    root: str | os.PathLike[str],
) -> tuple[list[str], NDArray[np.uint8], list[str]]:
    """Read the official label files.

    Returns
    -------
    names : list of str
        The concepts in alphabetical order, 81 in the full set.
    matrix : ndarray of uint8, shape (N, 81)
        1 where an image has a concept, 0 elsewhere.
    paths : list of str
        The N image paths with forward slashes.
    """
    root = Path(root)
    image_list, folder = root / IMAGE_LIST, root / CONCEPTS
    if not image_list.is_file():
        raise FileNotFoundError(f"{image_list}: the image list of NUS-WIDE is missing")
    files = sorted(folder.glob("Labels_*.txt"))
    if not files:
        raise FileNotFoundError(f"{folder}: the label files Labels_<concept>.txt are missing")
    try:
        lines = image_list.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{image_list}: not UTF-8 text ({error})") from error
    paths = [line.strip().replace("\\", "/") for line in lines if line.strip()]
    matrix = np.empty((len(paths), len(files)), np.uint8)
    for column, file in enumerate(files):
        # One digit per line: without white space the bytes are the column.
        digits = file.read_bytes().translate(None, b" \t\r\n")
        flags = np.frombuffer(digits, np.uint8) - np.uint8(ord("0"))
        if len(flags) != len(paths) or np.any(flags > 1):
            raise ValueError(
                f"{file}: expected a 0 or 1 for each of the {len(paths)} images of {image_list}"
            )
        matrix[:, column] = flags
    return [file.stem.removeprefix("Labels_") for file in files], matrix, paths


def frequent_concepts(
    matrix: NDArray[np.uint8], names: list[str], count: int = 21
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the most frequent concepts and the images that have at least one of them.

    Returns
    -------
    columns : ndarray of int64, shape (count,)
        Most frequent first; ties are ordered by name.
    rows : ndarray of int64
        The images, ascending.

    Examples
    --------
    >>> matrix = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]], np.uint8)
    >>> columns, rows = frequent_concepts(matrix, ["sky", "road", "cat"], 2)
    >>> columns.tolist(), rows.tolist()
    ([1, 2], [1, 2])
    """
    if not 1 <= count <= len(names):
        raise ValueError(f"concepts must be in 1..{len(names)}, got {count}")
    totals = matrix.sum(axis=0, dtype=np.int64)
    columns = np.array(sorted(range(len(names)), key=lambda k: (-totals[k], names[k]))[:count])
    return columns, np.flatnonzero(matrix[:, columns].any(axis=1))


def _locate(root: Path, paths: list[str]) -> list[str]:
    """Return the image files below `root`, in one folder per concept or all in one folder."""
    folder = next((name for name in IMAGE_FOLDERS if (root / name).is_dir()), None)
    if folder is None:
        expected = " or ".join(str(root / name) for name in IMAGE_FOLDERS)
        raise FileNotFoundError(f"the images of NUS-WIDE are missing; expected in {expected}")
    files = []
    for path in paths:
        flat = f"{folder}/{path.rpartition('/')[2]}"
        files.append(flat if (root / flat).is_file() else f"{folder}/{path}")
    return files
