"""Load a folder of images, with labels from subfolders or from a CSV."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitprint.data.decoded import decode_files
from bitprint.data.decoding import Progress, Size
from bitprint.data.formats import OTHER_SUFFIXES, SUFFIXES, describe_left_out
from bitprint.data.images import ImageSet
from bitprint.data.label_csv import read_label_csv
from bitprint.utils.text import printable


def load_folder(
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    size: Size = 256,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """Load all images in a folder and its subfolders, except hidden files.

    Labels come from the CSV, if given, and from the first-level subfolder otherwise. They are
    class numbers (N,) if every image has exactly one label, a matrix (N, c) of zeros and ones if
    some images have several or none, and None if no image has a label. Supervised methods treat an
    image without labels as dissimilar to all others. To exclude such images, use
    ``images.labelled()``, as `bitprint train` does.

    Parameters
    ----------
    path : path
        The folder.
    labels : path, optional
        CSV with the columns `file` (relative to the folder) and `label` or `labels` (several
        labels joined by `|` or in separate rows). An optional column `split` contains query, train
        or database for every image, see `bitprint.data.split_for`. Only the files in the CSV are
        loaded. See `bitprint.data.label_csv.read_label_csv`.
    size : int or (int, int)
        Height and width to which the images are resized; one number for a square.
    cache : path, optional
        Folder for the decoded images, see `bitprint.data.decoded.decode_files`.
    progress : callable, optional
        Called with the number of files done, and the number of files.

    Returns
    -------
    ImageSet
        Ids are the paths relative to the folder with forward slashes, in sorted order. `skipped`
        lists files that could not be read, `left_out` files in unsupported formats.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cats/tom.png", "cats/felix.jpg", "dogs/rex.png"):
    ...         (Path(folder) / name).parent.mkdir(exist_ok=True)
    ...         Image.new("RGB", (40, 30)).save(f"{folder}/{name}")
    ...     images = load_folder(folder, size=32)
    >>> images.ids.tolist(), images.labels.tolist(), images.label_names
    (['cats/felix.jpg', 'cats/tom.png', 'dogs/rex.png'], [0, 0, 1], ['cats', 'dogs'])
    """
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    left_out: list[str] = []
    parts: dict[str, str] = {}
    tags: Mapping[str, Sequence[str]]
    if labels is None:
        tags, left_out = _subfolder_tags(root)
    else:
        tags, parts = _read_csv(Path(labels), root)
    names = sorted(tags)
    if not any(_is_file(root / name) for name in names):
        raise ValueError(
            f"{labels}: none of its {len(names)} files is in {root}; "
            f"the first is {printable(names[0])}"
        )
    pixels, rows, skipped = decode_files(root, names, size, cache=cache, progress=progress)
    if len(rows) == 0:
        name, reason = skipped[0]
        raise ValueError(
            f"{root}: none of the {len(names)} images can be read; "
            f"the first, {printable(name)}: {reason}"
        )
    kept = [names[row] for row in rows]
    matrix, label_names = _number([tags[name] for name in kept])
    return ImageSet(
        pixels,
        labels=matrix,
        ids=kept,
        label_names=label_names,
        name=root.resolve().name,
        skipped=skipped,
        rows=rows,
        split=[parts[name] for name in kept] if parts else None,
        left_out=left_out,
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _subfolder_tags(root: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Map every image file below `root` to its first-level subfolder, if any.

    The second result lists the files in unsupported formats.
    """
    tags, left_out = {}, []
    for file in root.rglob("*"):
        name = file.relative_to(root)
        suffix = file.suffix.lower()
        if any(part.startswith(".") for part in name.parts):
            continue
        if suffix in SUFFIXES and file.is_file():
            tags[name.as_posix()] = list(name.parts[:1]) if len(name.parts) > 1 else []
        elif suffix in OTHER_SUFFIXES and file.is_file():
            left_out.append(name.as_posix())
    if not tags:
        found = f"; {describe_left_out(left_out)}" if left_out else ""
        raise ValueError(f"{root}: no images found ({', '.join(sorted(SUFFIXES))}){found}")
    return tags, sorted(left_out)


def _read_csv(path: Path, root: Path) -> tuple[Mapping[str, Sequence[str]], dict[str, str]]:
    """Map every file of a CSV to its labels, and to its part of the split if there is one."""
    files, has_labels = read_label_csv(path, root)
    if not has_labels:
        raise ValueError(f"{path}: the header needs a column label")
    if not files:
        raise ValueError(f"{path}: the CSV contains no files")
    tags = {name: row.labels for name, row in files.items()}
    return tags, {name: row.split for name, row in files.items() if row.split is not None}


def _number(tags: Sequence[Sequence[str]]) -> tuple[NDArray | None, list[str] | None]:
    """Return labels as numbers or as a matrix, and the names of the classes."""
    names = sorted({tag for some in tags for tag in some})
    if not names:
        return None, None
    column = {name: number for number, name in enumerate(names)}
    if all(len(set(some)) == 1 for some in tags):
        return np.array([column[some[0]] for some in tags]), names
    matrix = np.zeros((len(tags), len(names)), np.uint8)
    for row, some in enumerate(tags):
        matrix[row, [column[tag] for tag in some]] = 1
    return matrix, names
