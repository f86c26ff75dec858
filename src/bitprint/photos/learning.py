"""Learn the model of a collection from its images: ITQ on pretrained features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitprint.data.decoding import Progress
from bitprint.methods import create
from bitprint.photos.encoder import Encoder, Features
from bitprint.photos.encoding import in_parts
from bitprint.photos.files import Picture
from bitprint.photos.kept import KeptFeatures
from bitprint.photos.pipeline import BATCH, compute_ahead

SAMPLE = 10_000
"""Maximum number of images a model is learned from."""


def learn_encoder(
    pictures: Sequence[Picture],
    kept_in: Path,
    *,
    bits: int,
    features: Features,
    progress: Progress | None = None,
) -> Encoder:
    """Fit ITQ on features of at most 10,000 random images.

    Parameters
    ----------
    pictures : sequence of Picture
        At least one must be readable.
    kept_in : Path
        A folder for the computed features. An interrupted call resumes from its contents.
    bits : int
        At most the number of features.
    features : Features
    progress : callable, optional
        Called with (done, total) images.

    Returns
    -------
    Encoder

    Raises
    ------
    ValueError
        If no image can be read.
    """
    sample = draw(pictures)
    kept = KeptFeatures(kept_in, features.digest)
    missing = [picture for picture in sample if kept.get(picture) is None]
    reasons: dict[str, str] = {}

    def report(done: int) -> None:
        if progress is not None:
            progress(len(sample) - len(missing) + done, len(sample))

    for part in in_parts(_extract(missing, features, reasons, report)):
        readable = [picture for batch, _ in part for picture in batch]
        kept.keep(readable, np.concatenate([vectors for _, vectors in part]))
    matrix = [vector for picture in sample if (vector := kept.get(picture)) is not None]
    if not matrix:
        path, reason = next(iter(reasons.items()))
        raise ValueError(
            f"none of the {len(sample)} images can be read; the first, {path}: {reason}"
        )
    return Encoder(create("itq", bits).fit(np.array(matrix)), features, len(matrix))


def _extract(
    pictures: Sequence[Picture],
    features: Features,
    reasons: dict[str, str],
    report: Callable[[int], None],
) -> Iterator[tuple[list[Picture], NDArray[np.float32]]]:
    """Yield batches of images with their features; add reasons for unreadable files."""
    done = 0
    paths = [picture.path for picture in pictures]
    for batch in compute_ahead(paths, features.size, features, BATCH):
        reasons |= {pictures[row].path: reason for row, reason in batch.skipped.items()}
        done += len(batch.rows) + len(batch.skipped)
        report(done)
        if batch.result is not None:
            yield [pictures[row] for row in batch.rows], batch.result


def draw(pictures: Sequence[Picture]) -> list[Picture]:
    """Draw at most `SAMPLE` images with a fixed seed, keeping their order."""
    if len(pictures) <= SAMPLE:
        return list(pictures)
    rows = np.random.default_rng(0).choice(len(pictures), SAMPLE, replace=False)
    return [pictures[row] for row in np.sort(rows)]
