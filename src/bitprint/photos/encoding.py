"""Encoding picture files into a collection, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitprint.codes import Codes
from bitprint.data.decoding import Progress, decode_ahead
from bitprint.photos.encoder import Encoder
from bitprint.photos.files import Picture, Skipped, content_digest
from bitprint.photos.kept import KeptFeatures
from bitprint.photos.ledger import Ledger

COMMIT = 512
"""So many pictures are encoded between two writes to the index."""


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
        Where the codes go, 512 at a time.
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
    for start in range(0, len(pictures), COMMIT):
        part = pictures[start : start + COMMIT]

        def report(done: int, start: int = start) -> None:
            if progress is not None:
                progress(start + done, len(pictures))

        codes, reasons = _encode(part, encoder, kept, report)
        digests = _digests(part, reasons)
        rows = list(digests)
        ledger.store([part[row] for row in rows], list(digests.values()), codes[rows])
        skipped += [(part[row].path, reason) for row, reason in sorted(reasons.items())]
    return skipped


def _encode(
    pictures: Sequence[Picture],
    encoder: Encoder,
    kept: KeptFeatures | None,
    report: Callable[[int], None],
) -> tuple[Codes, dict[int, str]]:
    """Codes of pictures, and of those that have none the reasons, by row."""
    packed = np.zeros((len(pictures), -(-encoder.bits // 8)), np.uint8)
    reasons: dict[int, str] = {}
    known = (
        {}
        if kept is None
        else {row: vector for row, p in enumerate(pictures) if (vector := kept.get(p)) is not None}
    )
    if known:
        packed[list(known)] = encoder.hasher.encode(np.array(list(known.values()))).packed
        report(len(known))
    others = [row for row in range(len(pictures)) if row not in known]
    done = len(known)
    for batch in decode_ahead([pictures[row].path for row in others], encoder.size):
        packed[[others[row] for row in batch.rows]] = encoder.encode_squares(batch.pixels).packed
        reasons |= {others[row]: reason for row, reason in batch.skipped.items()}
        done += len(batch.rows) + len(batch.skipped)
        report(done)
    return Codes(packed, encoder.bits), reasons


def _digests(pictures: Sequence[Picture], reasons: dict[int, str]) -> dict[int, str]:
    """Digests by row; a file that is lost by now joins those with a reason."""
    digests = {}
    for row, picture in enumerate(pictures):
        if row in reasons:
            continue
        try:
            digests[row] = content_digest(picture.path)
        except OSError as error:
            reasons[row] = str(error.strerror)
    return digests
