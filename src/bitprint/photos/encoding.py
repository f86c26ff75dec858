"""Encode image files into a collection in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import Progress
from bitprint.photos.encoder import Encoder
from bitprint.photos.files import Picture, Skipped, content_digest
from bitprint.photos.kept import KeptFeatures
from bitprint.photos.ledger import Ledger
from bitprint.photos.pipeline import BATCH, compute_ahead

SECONDS = 4.0
"""Maximum time between writes, in seconds."""
MOST = 128
"""Maximum number of batches per write."""

Batch = TypeVar("Batch")


class _EncodedBatch(NamedTuple):
    """Encoded images in order, and the files that cannot be read."""

    pictures: list[Picture]
    digests: list[str]
    packed: NDArray[np.uint8]
    skipped: Skipped


def encode_pictures(
    pictures: Sequence[Picture],
    encoder: Encoder,
    ledger: Ledger,
    kept: KeptFeatures | None,
    progress: Progress | None = None,
) -> Skipped:
    """Encode images and store their codes; return the files that cannot be read.

    Parameters
    ----------
    pictures : sequence of Picture
    encoder : Encoder
    ledger : Ledger
        Receives the codes every few seconds.
    kept : KeptFeatures, optional
        Features that were computed before.
    progress : callable, optional
        Called with (done, total) images.

    Returns
    -------
    list of (str, str)
        Path and reason of each file that cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bitprint as bp
    >>> from bitprint.data import draw_shapes
    >>> from bitprint.photos.files import list_pictures
    >>> from PIL import Image
    >>> scenes = draw_shapes(20, size=16)
    >>> encoder = Encoder(bp.create("itq", bits=16).fit(scenes))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.fromarray(scenes.pixels[0]).save(f"{folder}/scene.png")
    ...     _ = (Path(folder) / "notes.png").write_text("no picture")
    ...     pictures = list_pictures(folder).pictures
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=16) as index:
    ...         skipped = encode_pictures(pictures, encoder, Ledger(index), kept=None)
    ...         [Path(path).name for path in index.ids()]
    ['scene.png']
    >>> [(Path(path).name, reason) for path, reason in skipped]
    [('notes.png', 'unsupported format')]
    """
    skipped: Skipped = []

    def report(done: int) -> None:
        if progress is not None:
            progress(done, len(pictures))

    for part in in_parts(_encode(pictures, encoder, kept, report)):
        ledger.store(
            [picture for batch in part for picture in batch.pictures],
            [digest for batch in part for digest in batch.digests],
            Codes(np.concatenate([batch.packed for batch in part]), encoder.bits),
        )
        skipped += [entry for batch in part for entry in batch.skipped]
    return skipped


def _encode(
    pictures: Sequence[Picture],
    encoder: Encoder,
    kept: KeptFeatures | None,
    report: Callable[[int], None],
) -> Iterator[_EncodedBatch]:
    """Yield the encoded batches in the order of the images."""
    packed = np.zeros((len(pictures), -(-encoder.bits // 8)), np.uint8)
    reasons: dict[int, str] = {}
    start = 0
    for end in _fill(packed, reasons, pictures, encoder, kept):
        for first in range(start, end, BATCH):
            batch = range(first, min(first + BATCH, end))
            digests = _digests(pictures, batch, reasons)
            rows = list(digests)
            report(batch.stop)
            yield _EncodedBatch(
                [pictures[row] for row in rows],
                list(digests.values()),
                packed[rows],
                [(pictures[row].path, reasons[row]) for row in batch if row in reasons],
            )
        start = end


def _fill(
    packed: NDArray[np.uint8],
    reasons: dict[int, str],
    pictures: Sequence[Picture],
    encoder: Encoder,
    kept: KeptFeatures | None,
) -> Iterator[int]:
    """Fill in codes or reasons of failure; yield the end of the rows that are complete."""
    known = {
        row: vector
        for row, picture in enumerate(pictures)
        if kept is not None and (vector := kept.get(picture)) is not None
    }
    if known:
        packed[list(known)] = encoder.hasher.encode(np.array(list(known.values()))).packed
    others = [row for row in range(len(pictures)) if row not in known]
    paths = [pictures[row].path for row in others]
    for batch in compute_ahead(paths, encoder.size, encoder.encode_squares, BATCH):
        if batch.result is not None:
            packed[[others[row] for row in batch.rows]] = batch.result.packed
        reasons |= {others[row]: reason for row, reason in batch.skipped.items()}
        yield others[max([*batch.rows, *batch.skipped])] + 1
    yield len(pictures)


def _digests(
    pictures: Sequence[Picture], rows: Iterable[int], reasons: dict[int, str]
) -> dict[int, str]:
    """Return digests by row; add the reason for a file that cannot be read any more."""
    digests = {}
    for row in rows:
        if row in reasons:
            continue
        try:
            digests[row] = content_digest(pictures[row].path)
        except OSError as error:
            reasons[row] = str(error.strerror)
    return digests


def in_parts(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Group batches into parts to be written together, limited by number and time.

    Examples
    --------
    >>> [len(part) for part in in_parts(range(300))]
    [128, 128, 44]
    """
    part: list[Batch] = []
    begun = monotonic()
    for batch in batches:
        part.append(batch)
        if len(part) == MOST or monotonic() - begun >= SECONDS:
            yield part
            part, begun = [], monotonic()
    if part:
        yield part
