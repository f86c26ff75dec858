"""Compare codes with float features by the share of neighbors that are of the same kind.

    python benchmarks/photo_search.py FOLDER --csv results/photo_search.csv

FOLDER contains labeled images in any form that `bp.open_images` reads; "cifar10" and other built-in
sets work, too. If the set defines a split, only its queries are used, so that models that were
trained on the rest have not seen them. Each of up to `--queries` random images is searched among
all others. "p10" is the share of the ten nearest that have a label in common with the query, for

- float: the cosine of the features, without codes;
- included models, and ITQ learned without labels on the collection itself (`--bits`).

With `--learn-from 50 500`, only half of the images are searched, and ITQ with 256 bits is learned
from 50 and from 500 images of the other half.

Codes are ranked in four ways: by Hamming distance; with its ties broken by the real-valued outputs
of the query; the 100 nearest codes ordered by these outputs, as `Photos.search` does; and the 100
nearest codes ordered by the cosine with features of 8 bits per dimension.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from many_classes import hardware, read_rows, write_rows
from numpy.typing import NDArray

import bitprint as bp
from bitprint.data import split_for
from bitprint.features.deep import deep_features
from bitprint.methods import Hasher
from bitprint.photos.searching import CANDIDATES
from bitprint.supervision import similarity
from bitprint.utils.commit import source_commit

FEATURES = "efficientnet-lite0"
INCLUDED = ("photos-256", "coco-64")
K = 10
Floats = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of labeled images, or a built-in set")
    parser.add_argument("--labels", type=Path, help="CSV file with the labels of the folder")
    parser.add_argument("--images", type=int, help="use only this many random images")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--bits", type=int, nargs="*", default=[64, 128, 256, 512])
    parser.add_argument("--learn-from", type=int, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    images = bp.open_images(given.data, labels=given.labels)
    if images.split is not None:
        images = images.subset(split_for(images, 1).queries)
    rng = np.random.default_rng(given.seed)
    images = images.subset(np.sort(rng.permutation(len(images))[: given.images]))
    features = deep_features(images, FEATURES)
    others = None
    if given.learn_from:
        order = rng.permutation(len(images))
        others = features[order[len(order) // 2 :]]
        searched = order[: len(order) // 2]
        images, features = images.subset(searched), features[searched]
    queries = np.sort(rng.permutation(len(images))[: given.queries])
    models: list[tuple[str, Hasher]] = [(name, bp.load(name)) for name in INCLUDED]
    if others is None:
        models += [(f"itq-{b} of these", bp.create("itq", b).fit(features)) for b in given.bits]
    else:
        models += [
            (f"itq-256 of {n} others", bp.create("itq", 256).fit(others[:n]))
            for n in given.learn_from
        ]
    facts = {
        "data": images.name,
        "images": len(images),
        "queries": len(queries),
        "seed": given.seed,
        "commit": source_commit(),
        "hardware": hardware(),
    }
    rows = []
    for row in measure(features, images.labels, queries, models):
        rows.append(row | facts)
        print(" ".join(f"{value!s:>12}" for value in row.values()), flush=True)
    if given.csv:
        key = ("data", "images", "model", "ranking")
        new = {tuple(str(row[name]) for name in key) for row in rows}
        kept = [row for row in read_rows(given.csv) if tuple(row[name] for name in key) not in new]
        write_rows(given.csv, kept + rows, key)


def measure(
    features: Floats, labels: Any, queries: NDArray[np.int64], models: list[tuple[str, Hasher]]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each model and ranking."""
    similar = np.asarray(similarity(labels[queries], labels), bool)
    cosines = normalized(features)[queries] @ normalized(features).T
    ceiling = precision(cosines, queries, similar)
    yield {"model": "features", "ranking": "float", "p10": round(ceiling, 4), "of_float": 1.0}
    for name, hasher in models:
        for ranking, scores in rankings(
            hasher.project(features), queries, cosines_of_bytes(features, queries)
        ):
            found = precision(scores, queries, similar)
            yield {
                "model": name,
                "ranking": ranking,
                "p10": round(found, 4),
                "of_float": round(found / ceiling, 4),
            }


def rankings(
    outputs: Floats, queries: NDArray[np.int64], second: Floats
) -> Iterator[tuple[str, Floats]]:
    """Yield the scores of all images for each query, higher is nearer."""
    signs = np.where(outputs >= 0, np.float32(1), np.float32(-1))
    near = signs[queries] @ signs.T
    products = outputs[queries] @ signs.T
    yield "Hamming", near
    yield "Hamming, ties by outputs", near + products / (2 * np.abs(products).max() + 1)
    first = near.copy()
    first[np.arange(len(queries)), queries] = -np.inf
    order = np.argsort(-first, axis=1, kind="stable")[:, :CANDIDATES]
    for name, scores in (("outputs", products), ("8-bit features", second)):
        chosen = np.full_like(near, -np.inf)
        np.put_along_axis(chosen, order, np.take_along_axis(scores, order, 1), 1)
        yield f"first {CANDIDATES} by {name}", chosen


def precision(scores: Floats, queries: NDArray[np.int64], similar: NDArray[np.bool_]) -> float:
    """Return the share of the ten best images, without the query, that are similar to it."""
    scores = scores.copy()
    scores[np.arange(len(queries)), queries] = -np.inf
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return float(np.take_along_axis(similar, nearest, 1).mean())


def cosines_of_bytes(features: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return cosines with features that are rounded to 8 bits per dimension."""
    steps = np.maximum(np.abs(features).max(axis=0), 1e-12) / 127
    rounded = np.rint(features / steps) * steps
    return normalized(features)[queries] @ normalized(rounded.astype(np.float32)).T


def normalized(features: Floats) -> Floats:
    """Divide rows by their length."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, 1e-12), np.float32)


if __name__ == "__main__":
    main()
