"""MAP over features from 2 to 1,000 classes: DSDH beside SDH, DLBHC, DTSH, KSH and ITQ.

    OMP_NUM_THREADS=1 python benchmarks/many_classes.py --workers 15 --omniglot omniglot136.zip \
        --cifar10 --coco coco14k --csv results/many_classes.csv

The deep methods are trained with recommended settings on a network of two layers over features.
Run the command again to resume: cells that are in the file are skipped. At the end it prints, for
every set and length, how far DSDH is from the best other method.

Sets, see `sets`: Gaussian classes of equal size, near to each other or far apart; Gaussian classes
of unequal size, down to 2 training images; sums of Gaussian classes, for images with several
labels; the characters of an Omniglot archive as pixels of 28 x 28, 15 drawings of each to learn
from and 5 as queries; features of EfficientNet-Lite0 of CIFAR-10 (setting 1) and of the folder
`coco14k`. Queries are searched among the training images, in the last two sets among the
database of their protocol.

`--validation` draws other Gaussian classes and divides the training images of the other sets.
All settings were chosen with it.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import platform
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import bitprint as bp
from bitprint.data import open_images, split_for
from bitprint.features import extract
from bitprint.methods.dsdh import DSDH, class_weights, pair_weights
from bitprint.training.state import State
from bitprint.utils.commit import source_commit

METHODS = ("dsdh", "sdh", "dlbhc", "dtsh", "ksh", "itq")
BATCH = 128
BITS = (8, 16, 32, 64, 256)
WIDTH = 64  # of Gaussian features
QUERIES = 5  # of each Gaussian class; at least QUERIES_IN_ALL in all
QUERIES_IN_ALL = 400
OTHER_SEEDS = 1000  # of validation
DRAWN, KEPT_OF_DRAWN = 20, 15  # drawings of a character, and how many train

Floats = NDArray[np.float32]
Part = tuple[Floats, NDArray]


class Parts(NamedTuple):
    """Features and labels of the three parts of a set, and how long ranked lists are."""

    training: Part
    queries: Part
    database: Part
    map_at: int | None = None


class Options(NamedTuple):
    """Where real data is, and whether to measure on held-out training data."""

    omniglot: str | None = None
    cifar10: bool = False
    coco: str | None = None
    validation: bool = False


def sets(options: Options) -> dict[str, Callable[[int], Parts]]:
    """All sets by name: functions of a seed."""
    found: dict[str, Callable[[int], Parts]] = {}
    for apart in (16.0, 8.0):
        for classes, images in ((2, 200), (10, 180), (100, 27), (100, 10), (300, 12), (1000, 5)):
            name = f"{classes} classes x {images}, distance {apart:g}"
            found[name] = _gaussian([images] * classes, apart, options)
    for classes, most in ((10, 300), (100, 60)):
        sizes = np.geomspace(most, 2, classes).round().astype(int).tolist()
        found[f"{classes} classes, {most} to 2 images"] = _gaussian(sizes, 10.0, options)
    for classes, images in ((20, 1500), (80, 3000)):
        found[f"{classes} labels, {images} images"] = _several(classes, images, options)
    if options.omniglot:
        found["136 characters"] = _omniglot(options)
    if options.cifar10:
        found["cifar10 features"] = _of_protocol("cifar10", None, options)
    if options.coco:
        found["coco features"] = _of_protocol(options.coco, f"{options.coco}/labels.csv", options)
    return found


def _gaussian(sizes: list[int], apart: float, options: Options) -> Callable[[int], Parts]:
    """Classes with unit noise whose centers are `apart` from each other on average."""

    def make(seed: int) -> Parts:
        rng = _rng(seed, options)
        centers = rng.standard_normal((len(sizes), WIDTH)) * apart / np.sqrt(2 * WIDTH)
        asked = max(QUERIES, -(-QUERIES_IN_ALL // len(sizes)))
        training, queries = (
            _noisy(centers, np.repeat(np.arange(len(sizes)), counts), rng)
            for counts in (sizes, asked)
        )
        return Parts(training, queries, training)

    return make


def _several(classes: int, images: int, options: Options) -> Callable[[int], Parts]:
    """Images with one to four labels of unequal frequency, each the sum of its classes' centers."""

    def make(seed: int) -> Parts:
        rng = _rng(seed, options)
        centers = rng.standard_normal((classes, WIDTH)) * 10 / np.sqrt(2 * WIDTH)
        share = 1 / np.arange(2, classes + 2)
        count = images + QUERIES_IN_ALL
        labels = np.zeros((count, classes), np.int8)
        for row, size in enumerate(rng.integers(1, 5, count)):
            labels[row, rng.choice(classes, size, replace=False, p=share / share.sum())] = 1
        noise = rng.standard_normal((count, WIDTH))
        features = (labels @ centers + noise).astype(np.float32)
        training = features[:images], labels[:images]
        return Parts(training, (features[images:], labels[images:]), training)

    return make


def _noisy(centers: NDArray, labels: NDArray, rng: np.random.Generator) -> Part:
    features = centers[labels] + rng.standard_normal((len(labels), WIDTH))
    return features.astype(np.float32), labels


def _rng(seed: int, options: Options) -> np.random.Generator:
    return np.random.default_rng(seed + OTHER_SEEDS * options.validation)


def _omniglot(options: Options) -> Callable[[int], Parts]:
    def make(seed: int) -> Parts:
        pixels, labels = drawings(str(options.omniglot))
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(DRAWN) for _ in np.unique(labels)]
        place = np.concatenate([np.argsort(order) for order in orders])
        last, first = (KEPT_OF_DRAWN, 12) if options.validation else (DRAWN, KEPT_OF_DRAWN)
        learn, ask = place < first, (place >= first) & (place < last)
        training = pixels[learn], labels[learn]
        return Parts(training, (pixels[ask], labels[ask]), training)

    return make


@lru_cache(1)
def drawings(archive: str) -> Part:
    """Omniglot's drawings as pixels of 28 x 28 from 0 to 1, sorted by character."""
    with zipfile.ZipFile(archive) as file:
        names = sorted(name for name in file.namelist() if name.endswith(".png"))
        drawn = [Image.open(io.BytesIO(file.read(name))).convert("L") for name in names]
    folders = [name.rpartition("/")[0] for name in names]
    _, labels = np.unique(folders, return_inverse=True)
    if (np.bincount(labels) != DRAWN).any():
        raise SystemExit(f"{archive}: expected {DRAWN} drawings of each character")
    small = [np.asarray(image.resize((28, 28), Image.Resampling.BOX)) for image in drawn]
    pixels = np.stack(small).reshape(len(small), -1).astype(np.float32)
    return np.float32(1) - pixels / np.float32(255), labels


def _of_protocol(folder: str, labels: str | None, options: Options) -> Callable[[int], Parts]:
    def make(seed: int) -> Parts:
        images = open_images(folder, labels=labels) if labels else open_images(folder)
        features, split = extract(images, "efficientnet-lite0"), split_for(images, 1, seed)
        rows = split.training, split.queries, split.database
        if options.validation:
            order = np.random.default_rng(seed).permutation(split.training)
            fifth = len(order) // 5
            rows = order[2 * fifth :], order[:fifth], order[fifth : 2 * fifth]
        assert images.labels is not None
        own = images.labels
        learn, ask, search = ((np.asarray(features[part]), own[part]) for part in rows)
        return Parts(learn, ask, search, split.map_at)

    return make


class Varied(DSDH):
    """DSDH with other weights, to choose the recommended ones by.

    `power` is that of `pair_weights`, `limit` that of `class_weights`; `slope_times`, `eta_times`
    and `mu_times` multiply the slope of the pair loss, eta and mu, and `mu_by_classes` makes mu
    proportional to the number of classes.
    """

    change: dict[str, float]

    def weights(
        self, count: int, classes: int = 10, *, several: bool = False
    ) -> tuple[float, float, float]:
        """Return those of DSDH, multiplied."""
        mu, nu, eta = super().weights(count, classes, several=several)
        change = self.change
        factor = change.get("eta_times", 1.0) * change.get("mu_times", 1.0)
        if "mu_by_classes" in change:
            floor = max(10.0, self.bits**2 / 50)
            factor *= floor * max(1.0, classes / 10) / max(floor, classes)
        return mu * factor, nu * factor, eta * change.get("eta_times", 1.0)

    def _slope(self) -> float:
        return super()._slope() * self.change.get("slope_times", 1.0)

    def prepare(self, state: State) -> None:
        """Overwrite the weights of images and of kinds of pairs."""
        super().prepare(state)
        if "codes" in self.change:  # random signs of each image, as in "paper"
            generator = torch.Generator().manual_seed(int(self.seed))
            coins = torch.randint(0, 2, (len(state), self.bits), generator=generator)
            state.tensors["B"] = (2.0 * coins - 1).to(state.device)
        if "limit" in self.change and "weights" in state.tensors:
            state.tensors["weights"] = class_weights(state.classes, self.change["limit"])
        if "power" in self.change or "limit" in self.change:
            weights, power = state.tensors.get("weights"), self.change.get("power", 1.0)
            state.tensors["kinds"] = pair_weights(state.labels, weights) ** power


def hasher_of(method: str, bits: int, seed: int, images: int) -> Any:
    """A hasher with recommended settings, changed as the method's name says."""
    name, *changes = method.split()
    change = {key: float(value) for key, value in (pair.split("=") for pair in changes)}
    options: dict[str, Any] = {}
    if "steps" in change:
        options["epochs"] = max(5, round(change["steps"] / -(-images // BATCH)))
    for key in ("lr", "weight_decay", "trunk_lr", "average", "noise", "batch_size"):
        options |= {key: change[key]} if key in change else {}
    if "hidden" in change:
        options["backbone"] = f"mlp:{int(change['hidden'])}"
    if "batch_size" in options:
        options["batch_size"] = int(options["batch_size"])
    if "standardize" in change:
        options["standardize"] = bool(change["standardize"])
    if "codes_after" in change:
        options["codes_after"] = int(change["codes_after"])
    if name == "dsdh" and change:
        hasher = Varied(bits, seed=seed, **options)
        hasher.change = change
        return hasher
    return bp.create(name, bits, seed=seed, **options)


def measure(name: str, method: str, bits: int, seed: int, options: Options) -> dict[str, Any]:
    """Train one hasher and return its row."""
    parts = sets(options)[name](seed)
    (learn, labels), (asked, asked_labels), (searched, searched_labels) = parts[:3]
    started = time.perf_counter()
    hasher = hasher_of(method, bits, seed, len(learn)).fit(learn, labels)
    seconds = time.perf_counter() - started
    codes = hasher.encode_queries(asked), hasher.encode(searched)
    report = bp.evaluate(codes[0], asked_labels, codes[1], searched_labels, top=parts.map_at)
    return {
        "set": name,
        "measured_on": "validation" if options.validation else "test",
        "method": method,
        "bits": bits,
        "seed": seed,
        "images": len(learn),
        "map": round(report.map, 4),
        "train_seconds": round(seconds, 1),
        "options": _spelled(hasher),
        "commit": source_commit(),
        "hardware": hardware(),
    }


def _spelled(hasher: Any) -> str:
    """All settings in one cell."""
    settings = getattr(hasher, "settings_", None) or hasher.get_params(deep=False)
    return " ".join(
        f"{key}={value}"
        for key, value in settings.items()
        if value is not None and key not in ("bits", "seed", "device")
    )


def hardware() -> str:
    """Return the processors of this machine, for the column of that name."""
    cores = f"{os.cpu_count()} CPU cores ({platform.machine()})"
    return f"{torch.cuda.get_device_name()}, {cores}" if torch.cuda.is_available() else cores


KEY = ("set", "measured_on", "method", "bits", "seed")


def read_rows(path: Path | None) -> list[dict[str, Any]]:
    """Rows of an earlier run."""
    if path is None or not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path | None, rows: list[dict[str, Any]], key: tuple[str, ...] = KEY) -> None:
    """Write all rows, in an order that does not depend on which finished first."""
    if path is None or not rows:
        return
    ordered = sorted(rows, key=lambda row: [str(row[name]).zfill(4) for name in key])
    partial = path.with_suffix(".part")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ordered[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
    partial.replace(path)


def measured(cells: list[tuple], workers: int) -> Iterator[dict[str, Any]]:
    """Rows as they are finished; with one worker in this process."""
    if workers == 1:
        for cell in cells:
            try:
                yield measure(*cell)
            except ValueError as error:  # for example ITQ with more bits than features
                print(f"failed: {cell[:4]}: {error}", flush=True)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(measure, *cell): cell for cell in cells}
        for job in as_completed(jobs):
            if job.exception() is not None:
                print(f"failed: {jobs[job][:4]}: {job.exception()}", flush=True)
            else:
                yield job.result()


def summary(rows: list[dict[str, Any]]) -> None:
    """Print a table of each set, and where DSDH is below the best other method."""
    names = list(dict.fromkeys(row["set"] for row in rows))
    behind = []
    for name in names:
        print(f"\n{name}\n{'bits':>6} " + " ".join(f"{m:>6}" for m in METHODS))
        for bits in sorted({int(row["bits"]) for row in rows if row["set"] == name}):
            means = {}
            for method in METHODS:
                own = (name, method, bits)
                found = [r for r in rows if (r["set"], r["method"], int(r["bits"])) == own]
                if found:
                    means[method] = np.mean([float(row["map"]) for row in found])
            cells = [f"{means[m]:6.3f}" if m in means else "     -" for m in METHODS]
            print(f"{bits:6} " + " ".join(cells))
            others = [value for method, value in means.items() if method != "dsdh"]
            if "dsdh" in means and others:
                behind.append((means["dsdh"] - max(others), name, bits))
    for gap, name, bits in sorted(behind)[:10]:
        print(f"dsdh {gap:+.3f} of the best other method: {name}, {bits} bits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--omniglot", help="omniglot136.zip: ALPHABET/CHARACTER/*.png, 20 of each")
    parser.add_argument(
        "--cifar10", action="store_true", help="CIFAR-10, as `bitprint data` has it"
    )
    parser.add_argument("--coco", help="the folder coco14k")
    parser.add_argument("--validation", action="store_true", help="other draws, no test queries")
    parser.add_argument("--sets", nargs="+", help="names, all by default")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--bits", nargs="+", type=int, default=list(BITS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    options = Options(args.omniglot, args.cifar10, args.coco, args.validation)
    rows = read_rows(args.csv)
    done = {tuple(str(row[key]) for key in KEY) for row in rows}
    kind = "validation" if args.validation else "test"
    cells = [
        (name, method, bits, seed, options)
        for seed in range(args.seeds)
        for name in args.sets or sets(options)
        for bits in sorted(args.bits, reverse=True)
        for method in args.methods
        if tuple(map(str, (name, kind, method, bits, seed))) not in done
    ]
    for row in measured(cells, args.workers):
        rows.append(row)
        print(
            "{set}, {bits} bits, {method}: {map:.3f} ({train_seconds} s)".format(**row), flush=True
        )
        write_rows(args.csv, rows)
    summary([row for row in rows if row["measured_on"] == kind])


if __name__ == "__main__":
    main()
