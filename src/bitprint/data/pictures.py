"""Contact sheets of queries and their hits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_RIGHT, _WRONG, _QUERY, _PAPER = "#2a8f4a", "#c23b3b", "#333333", "#ffffff"
_TILE, _GAP, _BORDER, _CAPTION = 72, 10, 4, 16


def contact_sheet(
    queries: NDArray[np.uint8],
    found: Sequence[NDArray[np.uint8]],
    captions: Sequence[Sequence[str]],
    relevant: Sequence[NDArray[np.bool_]],
) -> Image.Image:
    """Draw one row per query: the query, then its hits with a green or red frame.

    Parameters
    ----------
    queries : ndarray of uint8, shape (Q, height, width, 3)
    found : sequence of ndarray of uint8, each of shape (k, height, width, 3)
        Hits of each query.
    captions : sequence of sequences of str
        A short text below each hit, such as its distance.
    relevant : sequence of ndarray of bool, each of shape (k,)
        Whether a hit shares a label with its query (green) or not (red).

    Returns
    -------
    PIL.Image.Image

    Examples
    --------
    >>> gray = np.full((1, 8, 8, 3), 128, np.uint8)
    >>> contact_sheet(gray, [gray], [["0"]], [np.array([True])]).size
    (196, 116)
    """
    step = _TILE + 2 * _BORDER + _GAP
    columns = 1 + max(len(images) for images in found)
    size = (columns * step + 2 * _GAP - 4, len(queries) * (step + _CAPTION) + _GAP)
    sheet = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(sheet)
    for row, query in enumerate(queries):
        top = _GAP + row * (step + _CAPTION)
        _tile(sheet, draw, query, (_GAP, top), _QUERY, "query")
        for column, image in enumerate(found[row], start=1):
            frame = _RIGHT if relevant[row][column - 1] else _WRONG
            corner = (2 * _GAP + column * step, top)
            _tile(sheet, draw, image, corner, frame, captions[row][column - 1])
    return sheet


def _tile(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    pixels: NDArray[np.uint8],
    corner: tuple[int, int],
    frame: str,
    caption: str,
) -> None:
    left, top = corner
    outer = _TILE + 2 * _BORDER
    draw.rectangle((left, top, left + outer - 1, top + outer - 1), fill=frame)
    tile = Image.fromarray(pixels).resize((_TILE, _TILE), Image.Resampling.NEAREST)
    sheet.paste(tile, (left + _BORDER, top + _BORDER))
    draw.text((left + outer // 2, top + outer + 2), caption, fill=_QUERY, anchor="ma")
