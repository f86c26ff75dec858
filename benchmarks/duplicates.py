"""Count copies and different images that are grouped by codes and by comparing pixels.

    python benchmarks/duplicates.py FOLDER/coco14k --csv results/duplicates.csv

Images of COCO that were not used to train `coco-64` are divided into two random halves. Of each
half some images are saved in five more versions: JPEG of quality 30; half height and width; 1.15
times the brightness; cropped by 3 % of each border; and with a white box of a fifth of the width
and a twentieth of the height near a corner (the last four as JPEG of quality 90). Codes of 64 bits
are computed by `coco-64` and by ITQ trained on the half.

Pairs of files within the radius are counted. "copies" are two versions of one image; in the row of
a version, they are that version and the original. "others" are two different images. The limit of
the pixel difference is chosen on the first half: the smallest limit, in hundredths, that keeps 99 %
of the copies within the larger radius for both models. Then both halves are grouped, by codes alone
and with the pixel comparison. A group with different images is "mixed".
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance

import bitprint as bp
from bitprint.codes import Codes
from bitprint.data.decoding import decode_ahead
from bitprint.photos import Group, compare_pictures, find_duplicates
from bitprint.photos.encoder import Features
from bitprint.photos.likeness import ALIKE, SIDE, Reduced, differences, reduce_pixels

BITS = 64
RADII = (2, 6)
KEPT = 0.99
ROWS = 256
Numbers = NDArray[np.int64]


def crop(image: Image.Image) -> Image.Image:
    """Cut off 3 % of each border."""
    x, y = round(0.03 * image.width), round(0.03 * image.height)
    return image.crop((x, y, image.width - x, image.height - y))


def mark(image: Image.Image) -> Image.Image:
    """Put a white box near the lower right corner."""
    marked = image.copy()
    across, down = image.width / 100, image.height / 100
    box = (76 * across, 91 * down, 96 * across, 96 * down)
    ImageDraw.Draw(marked).rectangle(box, fill="white")
    return marked


COPIES: dict[str, tuple[Callable[[Image.Image], Image.Image], int]] = {
    "quality 30": (lambda image: image, 30),
    "half size": (lambda image: image.resize((image.width // 2, image.height // 2)), 90),
    "brightness 1.15": (lambda image: ImageEnhance.Brightness(image).enhance(1.15), 90),
    "cropped 3 %": (crop, 90),
    "marked": (mark, 90),
}
"""Function and JPEG quality of each version."""


@dataclass(frozen=True)
class Half:
    """Images and copies, with their codes and reduced pixels."""

    paths: list[str]
    photographs: Numbers
    """Original image of each file."""
    kinds: Numbers
    """Version of each file; 0 is the original."""
    codes: dict[str, Codes]
    """By model."""
    reduced: Reduced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with labels.csv (columns file and split)")
    parser.add_argument(
        "--copied", type=int, default=150, help="number of images with copies in each half"
    )
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    names = unseen(given.folder)
    order = np.random.default_rng(0).permutation(len(names))
    features = Features("efficientnet-lite0")
    with tempfile.TemporaryDirectory() as folder:
        halves = {}
        for half, part in zip(("first", "second"), np.array_split(order, 2), strict=True):
            target = Path(folder) / half
            originals = [given.folder / names[row] for row in part]
            halves[half] = read(originals, given.copied, target, features)
            print(f"{half} half: {len(originals)} images, {len(halves[half].paths)} files")
        chosen = choose(halves["first"])
        print(f"chosen pixel difference {chosen}; Bitprint uses {ALIKE}")
        rows: list[dict[str, Any]] = []
        for half, files in halves.items():
            for row in measure(files, chosen, Path(folder)):
                rows.append({"half": half, **row})
                print(" ".join(f"{value!s:>16}" for value in rows[-1].values()), flush=True)
    if given.csv:
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def unseen(folder: Path) -> list[str]:
    """Return the names of files that were not used to train `coco-64`."""
    with (folder / "labels.csv").open(newline="") as file:
        return [row["file"] for row in csv.DictReader(file) if row["split"] != "train"]


def read(originals: Sequence[Path], copied: int, folder: Path, features: Features) -> Half:
    """Save copies of the first images; compute codes and reduced pixels of all files."""
    folder.mkdir()
    paths = [str(path) for path in originals]
    photographs, kinds = list(range(len(originals))), [0] * len(originals)
    for photograph, path in enumerate(originals[:copied]):
        with Image.open(path) as image:
            original = image.convert("RGB")
        for kind, (change, quality) in enumerate(COPIES.values(), start=1):
            paths.append(str(folder / f"{photograph}-{kind}.jpg"))
            change(original).save(paths[-1], quality=quality)
            photographs.append(photograph)
            kinds.append(kind)
    vectors = np.concatenate([features(part.pixels) for part in decode_ahead(paths, features.size)])
    codes = {
        "coco-64": bp.load("coco-64").encode(vectors),
        "itq": bp.create("itq", BITS).fit(vectors).encode(vectors),
    }
    small = np.concatenate([part.pixels for part in decode_ahead(paths, SIDE)])
    return Half(paths, np.array(photographs), np.array(kinds), codes, reduce_pixels(small))


def near(codes: Codes, radius: int) -> tuple[Numbers, Numbers]:
    """Return the pairs of codes within a radius."""
    found = []
    for start in range(0, len(codes), ROWS):
        one, other = np.nonzero(codes[start : start + ROWS].hamming(codes) <= radius)
        ahead = one + start < other
        found.append((one[ahead] + start, other[ahead]))
    one, other = (np.concatenate(part) for part in zip(*found, strict=True))
    return one, other


def choose(half: Half) -> float:
    """Return the smallest difference, in hundredths, that keeps nearly all copies."""
    least = []
    for codes in half.codes.values():
        one, other = near(codes, max(RADII))
        same = half.photographs[one] == half.photographs[other]
        found = differences(half.reduced, one, other)
        least.append(float(np.quantile(found[same], KEPT)))
        print(f"{KEPT:.0%} of copies differ by {least[-1]:.3f}, others by {found[~same].min():.3f}")
    return math.ceil(100 * max(least)) / 100


def measure(half: Half, difference: float, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield rows of the table: pairs and groups for each model and radius."""
    for model, codes in half.codes.items():
        for radius in RADII:
            one, other = near(codes, radius)
            alike = differences(half.reduced, one, other) <= difference
            same = half.photographs[one] == half.photographs[other]
            row = {"model": model, "radius": radius, "difference": difference}
            yield {
                **row,
                "copy": "any two",
                "copies": int(same.sum()),
                "copies_kept": int((same & alike).sum()),
                "others": int((~same).sum()),
                "others_kept": int((~same & alike).sum()),
                **count_groups(half, codes, radius, difference, folder),
            }
            for kind, name in enumerate(COPIES, start=1):
                pair = same & (half.kinds[one] == 0) & (half.kinds[other] == kind)
                kept = int((pair & alike).sum())
                yield {**row, "copy": name, "copies": int(pair.sum()), "copies_kept": kept}


def count_groups(
    half: Half, codes: Codes, radius: int, difference: float, folder: Path
) -> dict[str, int]:
    """Count groups and mixed groups, by codes alone and with the pixel comparison."""
    original = dict(zip(half.paths, half.photographs.tolist(), strict=True))

    def mixed(groups: Sequence[Group]) -> int:
        return sum(len({original[path] for path in group.ids}) > 1 for group in groups)

    file = folder / "photos.bp"
    file.unlink(missing_ok=True)
    with bp.Index.create(file, bits=BITS) as index:
        index.add(half.paths, codes, paths=half.paths)
        by_codes = find_duplicates(index, radius)
        compared = compare_pictures(index, by_codes, radius, difference=difference).groups
    return {
        "groups_by_codes": len(by_codes),
        "mixed_by_codes": mixed(by_codes),
        "groups": len(compared),
        "mixed": mixed(compared),
    }


if __name__ == "__main__":
    main()
