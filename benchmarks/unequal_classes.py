"""MAP where some classes have many training images and some have few.

    python benchmarks/unequal_classes.py --csv results/unequal_classes.csv

Networks of two layers, and SDH and ITQ, over features of EfficientNet-Lite0. DSDH is trained by the
recipe, once as it is and once with images that all count alike; the others are trained in the same
way, at two rates of the hash layer, and do nothing about the sizes of classes.

All images are training images of setting 1 of CIFAR-10 (split 0). The seed divides them: of each
class 100 are queries and 100 the database; of the other 300 the classes, in an order that the seed
draws too, keep 300, 300 r, 300 r^2, ... to learn from, at least 8. Queries and database are taken
as they are ("even"), and thinned out in the same way.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import bitprint as bp
from bitprint.data import open_images, split_for
from bitprint.features import extract
from bitprint.methods.dsdh import DSDH
from bitprint.methods.recipes import training_recipe
from bitprint.training.plan import Training
from bitprint.training.state import State

HELD_OUT, LEAST = 100, 8
Rows = NDArray[np.int64]


class CountedImages(DSDH):
    """DSDH with images that all count alike, and so large classes for more."""

    def prepare(self, state: State) -> None:
        """Overwrite the weights."""
        super().prepare(state)
        state.tensors["weights"] = torch.ones(len(state), device=state.device)


def network(method: str, rate: float, **options: Any) -> Callable[[int, int, int], Any]:
    """Return what makes a network of two layers for bits, seed and number of images."""

    def make(bits: int, seed: int, images: int) -> Any:
        training = training_recipe("mlp", images) | {"lr": rate}
        return bp.create(method, bits, backbone="mlp", seed=seed, **options, **training)

    return make


def counted(bits: int, seed: int, images: int) -> DSDH:
    """Return the other DSDH."""
    training = Training(**training_recipe("mlp", images))
    return CountedImages(bits, mode="balanced", backbone="mlp", training=training, seed=seed)


HASHERS: dict[str, Callable[[int, int, int], Any]] = {
    "dsdh": network("dsdh", 1e-3, mode="balanced"),
    "dsdh, images alike": counted,
    "dtsh, rate 1e-3": network("dtsh", 1e-3),
    "dtsh, rate 1e-4": network("dtsh", 1e-4),
    "dlbhc, rate 1e-3": network("dlbhc", 1e-3),
    "dlbhc, rate 1e-4": network("dlbhc", 1e-4),
    "sdh": lambda bits, seed, _: bp.create("sdh", bits, seed=seed),
    "itq": lambda bits, seed, _: bp.create("itq", bits, seed=seed),
}


def divided(labels: NDArray, seed: int) -> list[list[Rows]]:
    """For each class, in random order: its rows to learn from, its queries and its database."""
    rng = np.random.default_rng(seed)
    parts = slice(2 * HELD_OUT, None), slice(HELD_OUT), slice(HELD_OUT, 2 * HELD_OUT)
    classes = rng.permutation(int(labels.max()) + 1)
    orders = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
    return [[order[part] for part in parts] for order in orders]


def thinned(parts: list[list[Rows]], ratio: float) -> list[Rows]:
    """Rows to learn from, queries and database; of class c the share ratio^c."""
    kept = [
        [rows[: max(LEAST, int(len(rows) * ratio**c))] for rows in own]
        for c, own in enumerate(parts)
    ]
    return [np.concatenate(part) for part in zip(*kept, strict=True)]


def maps_of(make: Callable[..., Any], bits: int, ratio: float, seed: int) -> tuple[float, float]:
    """MAP of even and of thinned queries."""
    images = open_images("cifar10")
    images = images.subset(split_for(images, protocol=1, seed=0).training)
    features, labels = extract(images, "efficientnet-lite0"), images.labels
    assert labels is not None
    parts = divided(labels, seed)
    learn, *thin = thinned(parts, ratio)
    hasher = make(bits, seed, len(learn)).fit(features[learn], labels[learn])
    codes = hasher.encode(features)
    found = [
        bp.evaluate(codes[queries], labels[queries], codes[database], labels[database]).map
        for queries, database in (thinned(parts, 1.0)[1:], thin)
    ]
    return found[0], found[1]


def measured(ratios: list[float], lengths: list[int], seeds: int) -> Iterator[dict[str, Any]]:
    """One row for each cell, as soon as it is there."""
    for ratio in ratios:
        for bits in lengths:
            for name, make in HASHERS.items():
                even, alike = zip(
                    *(maps_of(make, bits, ratio, seed) for seed in range(seeds)), strict=True
                )
                yield {
                    "ratio": ratio,
                    "bits": bits,
                    "method": name,
                    "seeds": seeds,
                    "map_even": round(mean(even), 4),
                    "least_even": round(min(even), 4),
                    "most_even": round(max(even), 4),
                    "map_thinned": round(mean(alike), 4),
                    "least_thinned": round(min(alike), 4),
                    "most_thinned": round(max(alike), 4),
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratios", nargs="+", type=float, default=[1.0, 0.75, 0.55])
    parser.add_argument("--bits", nargs="+", type=int, default=[24, 48])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    rows = []
    for row in measured(args.ratios, args.bits, args.seeds):
        rows.append(row)
        print(
            "ratio {ratio:.2f} {bits:3} bits {method:18} "
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
