"""The model of a collection that is given none: ITQ on features of the pictures themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bitprint.data.decoding import Progress, decode_ahead
from bitprint.methods import create
from bitprint.photos.encoder import Encoder, Features
from bitprint.photos.files import Picture
from bitprint.photos.kept import KeptFeatures

SAMPLE = 10_000
"""A model is learned from at most so many pictures."""
_PART = 512


def learn_encoder(
    pictures: Sequence[Picture],
    kept_in: Path,
    *,
    bits: int,
    features: Features,
    progress: Progress | None = None,
) -> Encoder:
    """Fit ITQ on features of pictures, at most 10,000 of them, drawn at random.

    Parameters
    ----------
    pictures : sequence of Picture
        At least one that can be read.
    kept_in : Path
        A folder for the features. A call that is interrupted goes on with what is there.
    bits : int
        At most the number of features.
    features : Features
    progress : callable, optional
        Called with how many pictures are done, and how many there are.
    """
    sample = draw(pictures)
    kept = KeptFeatures(kept_in, features.digest)
    missing = [picture for picture in sample if kept.get(picture) is None]
    reasons: dict[str, str] = {}
    done = len(sample) - len(missing)
    for start in range(0, len(missing), _PART):
        part = missing[start : start + _PART]
        readable, vectors = [], []
        for batch in decode_ahead([picture.path for picture in part], features.size):
            readable += [part[row] for row in batch.rows]
            if batch.rows:
                vectors.append(features(batch.pixels))
            reasons |= {part[row].path: reason for row, reason in batch.skipped.items()}
            done += len(batch.rows) + len(batch.skipped)
            if progress is not None:
                progress(done, len(sample))
        if readable:
            kept.keep(readable, np.concatenate(vectors))
    matrix = [vector for picture in sample if (vector := kept.get(picture)) is not None]
    if not matrix:
        path, reason = next(iter(reasons.items()))
        raise ValueError(
            f"none of the {len(sample)} pictures can be read; the first, {path}: {reason}"
        )
    return Encoder(create("itq", bits).fit(np.array(matrix)), features, len(matrix))


def draw(pictures: Sequence[Picture]) -> list[Picture]:
    """Draw at most `SAMPLE` pictures, the same ones every time, in their order."""
    if len(pictures) <= SAMPLE:
        return list(pictures)
    rows = np.random.default_rng(0).choice(len(pictures), SAMPLE, replace=False)
    return [pictures[row] for row in np.sort(rows)]
