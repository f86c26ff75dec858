"""Check a NUS-WIDE folder for missing label files and images."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from bitprint.data.nuswide import (
    CONCEPTS,
    IMAGE_FOLDERS,
    IMAGE_LIST,
    frequent_concepts,
    read_nuswide_labels,
)

LISTED, CONCEPT_FILES, FREQUENT, WANTED = 269_648, 81, 21, 195_834
"""Images in the list, label files, concepts of the protocols, and images with such a concept."""

_SHOWN = 10


@dataclass(frozen=True)
class NuswideCheck:
    """Result of `check_nuswide`.

    Attributes
    ----------
    listed, concepts : int
        Number of lines in the image list, and of label files.
    wanted : int
        Images with one of the 21 most frequent concepts; 0 if labels are missing.
    missing, empty : list of str
        Paths of missing images, and of empty files.
    problems : list of str
        One sentence per problem; empty if the set is complete.
    """

    listed: int = 0
    concepts: int = 0
    wanted: int = 0
    missing: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a readable report: counts, problems and the first missing files."""
        present = self.wanted - len(self.missing) - len(self.empty)
        lost = [*self.missing, *self.empty]
        more = len(lost) - _SHOWN
        return [
            f"{self.listed:,} images listed, {self.concepts} concepts, "
            f"{present:,} of {self.wanted:,} required images found",
            *(self.problems or ["nothing is missing"]),
            *(f"  {path}" for path in lost[:_SHOWN]),
            *([f"  and {more:,} more; use --json to list all"] if more > 0 else []),
        ]


def check_nuswide(root: str | os.PathLike[str]) -> NuswideCheck:
    """Compare a folder with the official layout and counts without decoding images.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for problem in check_nuswide(folder).problems:
    ...         print(problem)
    ImageList/Imagelist.txt is missing
    Groundtruth/AllLabels has 0 of the 81 files Labels_<concept>.txt
    no folder Flickr or images
    """
    root = Path(root)
    image_list = root / IMAGE_LIST
    concepts = len(list((root / CONCEPTS).glob("Labels_*.txt")))
    folder = next((name for name in IMAGE_FOLDERS if (root / name).is_dir()), None)
    problems = []
    if not image_list.is_file():
        problems.append(f"{IMAGE_LIST} is missing")
    if concepts != CONCEPT_FILES:
        problems.append(
            f"{CONCEPTS} has {concepts} of the {CONCEPT_FILES} files Labels_<concept>.txt"
        )
    if folder is None:
        problems.append(f"no folder {' or '.join(IMAGE_FOLDERS)}")
    if not image_list.is_file() or concepts < FREQUENT:
        return NuswideCheck(concepts=concepts, problems=problems)
    names, matrix, paths = read_nuswide_labels(root)
    wanted = [paths[row] for row in frequent_concepts(matrix, names, FREQUENT)[1]]
    if len(paths) != LISTED:
        problems.append(f"{IMAGE_LIST} has {len(paths):,} lines, expected {LISTED:,}")
    if len(wanted) != WANTED:
        problems.append(
            f"{len(wanted):,} images have one of the {FREQUENT} most frequent concepts, "
            f"expected {WANTED:,}"
        )
    sizes = {path: _size(root / folder, path) if folder else None for path in wanted}
    missing = [path for path, size in sizes.items() if size is None]
    empty = [path for path, size in sizes.items() if size == 0]
    for files, what in ((missing, "are missing"), (empty, "are empty files")):
        if files:
            problems.append(f"{len(files):,} of {len(wanted):,} images {what}")
    return NuswideCheck(len(paths), concepts, len(wanted), missing, empty, problems)


def _size(folder: Path, path: str) -> int | None:
    """Return the size of an image file in bytes, in either layout; None if missing."""
    for name in (path.rpartition("/")[2], path):
        if (folder / name).is_file():
            return (folder / name).stat().st_size
    return None
