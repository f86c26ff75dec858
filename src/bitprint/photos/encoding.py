"""Encoding picture files into a collection, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import Progress, decode_ahead
from bitprint.photos.encoder import Encoder
from bitprint.photos.files import Picture, Skipped, content_digest
from bitprint.photos.kept import KeptFeatures
from bitprint.photos.ledger import Ledger
from bitprint.photos.parts import BATCH, in_parts


class _Encoded(NamedTuple):
    """Some pictures in their order, those that can be read with what the index holds of them."""

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
    """Encode pictures and store them; return those that cannot be read, with the reasons.

    Parameters
    ----------
    pictures : sequence of Picture
    encoder : Encoder
    ledger : Ledger
        Where the codes go, every few seconds.
    kept : KeptFeatures, optional
        Features that are known already.
    progress : callable, optional
        Called with how many pictures are done, and how many there are.

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
    [('notes.png', 'no format that is read here')]
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
) -> Iterator[_Encoded]:
    """Encode pictures in their order, batch by batch."""
    packed = np.zeros((len(pictures), -(-encoder.bits // 8)), np.uint8)
    reasons: dict[int, str] = {}
    start = 0
    for end in _fill(packed, reasons, pictures, encoder, kept):
        for first in range(start, end, BATCH):
            batch = range(first, min(first + BATCH, end))
            digests = _digests(pictures, batch, reasons)
            rows = list(digests)
            report(batch.stop)
            yield _Encoded(
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
    """Fill in codes, or the reasons of pictures without one; yield up to where all are done."""
    known = {
        row: vector
        for row, picture in enumerate(pictures)
        if kept is not None and (vector := kept.get(picture)) is not None
    }
    if known:
        packed[list(known)] = encoder.hasher.encode(np.array(list(known.values()))).packed
    others = [row for row in range(len(pictures)) if row not in known]
    for batch in decode_ahead([pictures[row].path for row in others], encoder.size, BATCH):
        packed[[others[row] for row in batch.rows]] = encoder.encode_squares(batch.pixels).packed
        reasons |= {others[row]: reason for row, reason in batch.skipped.items()}
        yield others[max([*batch.rows, *batch.skipped])] + 1
    yield len(pictures)


def _digests(
    pictures: Sequence[Picture], rows: Iterable[int], reasons: dict[int, str]
) -> dict[int, str]:
    """Digests by row; a file that is lost by now joins those with a reason."""
    digests = {}
    for row in rows:
        if row in reasons:
            continue
        try:
            digests[row] = content_digest(pictures[row].path)
        except OSError as error:
            reasons[row] = str(error.strerror)
    return digests
