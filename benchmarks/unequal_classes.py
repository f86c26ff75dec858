"""Measure MAP with an unequal number of training images per class.

    python benchmarks/unequal_classes.py --csv results/unequal_classes.csv
    python benchmarks/unequal_classes.py --backbone efficientnet-lite0 --ratios 0.55 --bits 48

Two-layer networks, SDH and ITQ are trained on features of EfficientNet-Lite0; alternatively the
whole network is trained, which needs a GPU. DSDH uses the recommended recipe, with its weights of
images and with other weights. The other methods are trained in the same way with two learning rates
of the hash layer, and do not use class sizes.

All images are training images of CIFAR-10 (protocol 1, or 2 if 1 has too few; split 0). The seed
selects 100 queries and 100 database images of each class. It also orders the classes: they keep
300, 300 r, 300 r^2, ... of their other images for training, at least 8. Queries and database are
used in full ("even"), and thinned in the same way.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import bitprint as bp
from bitprint.data import ImageSet, open_images, split_for
from bitprint.features import extract
from bitprint.methods.dsdh import DSDH, class_weights
from bitprint.training.state import State

HELD_OUT, LEAST = 100, 8
Rows = NDArray[np.int64]
Maker = Callable[[int, int, int], Any]


class OtherLimit(DSDH):
    """DSDH with equal weights of all classes."""

    most = float("inf")

    def prepare(self, state: State) -> None:
        """Replace the weights."""
        super().prepare(state)
        state.tensors["weights"] = class_weights(state.classes, self.most)


class LimitedTo20(OtherLimit):
    """The same, with weights of images limited to 20 times the smallest."""

    most = 20.0


class CountedImages(OtherLimit):
    """DSDH with equal weights of all images."""

    most = 1.0


class RootInPairs(DSDH):
    """DSDH with weights of 1 / sqrt(class size), in the pair term only."""

    def prepare(self, state: State) -> None:
        """Replace the weights."""
        super().prepare(state)
        weights = (state.classes @ state.classes.sum(dim=0)).rsqrt()
        state.tensors["weights"] = weights / weights.mean()

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the parts of the loss of DSDH, with an unweighted quantization term."""
        parts = super().loss(outputs, rows, state)
        _, _, eta = self.weights(len(state))
        gaps = (outputs.tanh() - state.tensors["B"][rows]).square().sum()
        parts["quantisation"] = eta / (state.batch_size * len(state)) * gaps
        return parts


def network(method: str, rate: float, backbone: str) -> Maker:
    """Return a function that creates a hasher from bits, seed and number of images."""

    def make(bits: int, seed: int, images: int) -> Any:
        return bp.create(method, bits, backbone=backbone, seed=seed, lr=rate)

    return make


def balanced(kind: type[DSDH], backbone: str) -> Maker:
    """Return a function that creates one of the DSDH variants with the recommended recipe."""

    def make(bits: int, seed: int, images: int) -> DSDH:
        return kind(bits, backbone=backbone, seed=seed)

    return make


def hashers(backbone: str) -> dict[str, Maker]:
    """Return the functions that create the compared hashers, by name."""
    rows = {
        "dsdh": balanced(DSDH, backbone),
        "dsdh, limit 20": balanced(LimitedTo20, backbone),
        "dsdh, classes alike": balanced(OtherLimit, backbone),
        "dsdh, root in pairs": balanced(RootInPairs, backbone),
        "dsdh, images alike": balanced(CountedImages, backbone),
        "dlbhc, rate 1e-4": network("dlbhc", 1e-4, backbone),
        "dlbhc, rate 1e-3": network("dlbhc", 1e-3, backbone),
        "dtsh, rate 1e-4": network("dtsh", 1e-4, backbone),
        "dtsh, rate 1e-3": network("dtsh", 1e-3, backbone),
    }
    if backbone == "mlp":
        rows["sdh"] = lambda bits, seed, _: bp.create("sdh", bits, seed=seed)
        rows["itq"] = lambda bits, seed, _: bp.create("itq", bits, seed=seed)
    return rows


def divided(labels: NDArray, largest: int, seed: int) -> list[list[Rows]]:
    """Return training rows, queries and database of each class, in random order of classes."""
    rng = np.random.default_rng(seed)
    learn = slice(2 * HELD_OUT, 2 * HELD_OUT + largest)
    parts = learn, slice(HELD_OUT), slice(HELD_OUT, 2 * HELD_OUT)
    classes = rng.permutation(int(labels.max()) + 1)
    orders = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
    return [[order[part] for part in parts] for order in orders]


def thinned(parts: list[list[Rows]], ratio: float) -> list[Rows]:
    """Return training rows, queries and database, with the share ratio^c of class c."""
    kept = [
        [rows[: max(LEAST, int(len(rows) * ratio**c))] for rows in own]
        for c, own in enumerate(parts)
    ]
    return [np.concatenate(part) for part in zip(*kept, strict=True)]


@lru_cache(1)
def pictures(largest: int) -> ImageSet:
    """Return the training images of the first protocol that has enough of them."""
    images = open_images("cifar10")
    for protocol in (1, 2):
        training = images.subset(split_for(images, protocol=protocol, seed=0).training)
        assert training.labels is not None
        if np.bincount(training.labels).min() >= 2 * HELD_OUT + largest:
            return training
    raise SystemExit(f"CIFAR-10 has no {2 * HELD_OUT + largest} training images of each class")


def maps_of(
    make: Maker, backbone: str, largest: int, bits: int, ratio: float, seed: int
) -> tuple[float, float]:
    """Return MAP of all queries and of thinned queries."""
    images = pictures(largest)
    labels = images.labels
    assert labels is not None
    features = extract(images, "efficientnet-lite0") if backbone == "mlp" else None

    def of(rows: Rows) -> Any:
        return images.subset(rows) if features is None else features[rows]

    parts = divided(labels, largest, seed)
    learn, *thin = thinned(parts, ratio)
    hasher = make(bits, seed, len(learn)).fit(of(learn), labels[learn])
    found = []
    for queries, database in (thinned(parts, 1.0)[1:], thin):
        codes = hasher.encode(of(queries)), hasher.encode(of(database))
        found.append(bp.evaluate(codes[0], labels[queries], codes[1], labels[database]).map)
    return found[0], found[1]


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows as cells are completed."""
    makers = hashers(args.backbone)
    for ratio in args.ratios:
        for bits in args.bits:
            for name in args.methods or makers:
                cell = args.backbone, args.largest, bits, ratio
                found = [maps_of(makers[name], *cell, seed) for seed in range(args.seeds)]
                even, alike = zip(*found, strict=True)
                yield {
                    "backbone": args.backbone,
                    "largest": args.largest,
                    "ratio": ratio,
                    "bits": bits,
                    "method": name,
                    "seeds": args.seeds,
                    "map_even": round(mean(even), 4),
                    "least_even": round(min(even), 4),
                    "most_even": round(max(even), 4),
                    "map_thinned": round(mean(alike), 4),
                    "least_thinned": round(min(alike), 4),
                    "most_thinned": round(max(alike), 4),
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="mlp", help="mlp (on features) or a network to train")
    parser.add_argument("--largest", type=int, default=300, help="images of the largest class")
    parser.add_argument("--ratios", nargs="+", type=float, default=[1.0, 0.75, 0.55])
    parser.add_argument("--bits", nargs="+", type=int, default=[24, 48])
    parser.add_argument("--methods", nargs="+", help="rows (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    rows = []
    for row in measured(args):
        rows.append(row)
        print(
            "ratio {ratio:.2f} {bits:3} bits {method:19} "
            "even {map_even:.3f} ({least_even:.3f} to {most_even:.3f}), "
            "thinned {map_thinned:.3f} ({least_thinned:.3f} to {most_thinned:.3f})".format(**row),
            flush=True,
        )
        if args.csv:
            with args.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
