"""Kept vectors: bytes from which a search computes the similarity of its best candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bitprint.vectors.checking import Vectors

KINDS = ("int8", "float16")
_LEVELS = 127

Kind = Literal["int8", "float16"]


@dataclass(frozen=True)
class Float16:
    """Vectors as float16, two bytes per number.

    Examples
    --------
    >>> keeper = Float16()
    >>> keeper.unpack(keeper.pack(np.array([[0.5, -2.0]], np.float32))).tolist()
    [[0.5, -2.0]]
    """

    kind: ClassVar[Kind] = "float16"

    def record_bytes(self, width: int) -> int:
        """Return the number of bytes of a vector of this length."""
        return 2 * width

    def pack(self, vectors: Vectors) -> NDArray[np.uint8]:
        """Return the bytes of vectors (N, d), shape (N, record_bytes)."""
        with np.errstate(over="ignore"):
            halves = vectors.astype("<f2")
        if not np.isfinite(halves).all():
            raise ValueError(
                'float16 stores numbers up to 65,504, and the vectors have larger ones; keep="int8"'
            )
        return halves.view(np.uint8)

    def unpack(self, records: NDArray[np.uint8]) -> Vectors:
        """Return the vectors (N, d) of their bytes."""
        return records.view("<f2").astype(np.float32)

    def arrays(self) -> dict[str, Vectors]:
        """Return the fitted arrays by name."""
        return {}


@dataclass(frozen=True)
class Int8:
    """Vectors as int8: each number is one of 255 equal steps around the mean of its dimension.

    Parameters
    ----------
    center, step : ndarray of float32, shape (d,)

    Examples
    --------
    >>> vectors = np.array([[0.0, 5.0], [1.0, 5.0]], np.float32)
    >>> keeper = Int8.fit(vectors)
    >>> keeper.pack(vectors).view(np.int8).tolist(), keeper.unpack(keeper.pack(vectors)).tolist()
    ([[-127, 0], [127, 0]], [[0.0, 5.0], [1.0, 5.0]])
    """

    kind: ClassVar[Kind] = "int8"
    center: Vectors
    step: Vectors

    @classmethod
    def fit(cls, sample: Vectors) -> Int8:
        """Choose the steps so that the largest deviation of the sample is the last step.

        Larger deviations of other vectors become the last step.
        """
        center = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        step = np.abs(sample - center).max(axis=0) / np.float32(_LEVELS)
        return cls(center, np.where(step > 0, step, 1).astype(np.float32))

    def record_bytes(self, width: int) -> int:
        """Return the number of bytes of a vector of this length."""
        return width

    def pack(self, vectors: Vectors) -> NDArray[np.uint8]:
        """Return the bytes of vectors (N, d), shape (N, record_bytes)."""
        steps: Vectors = np.rint((vectors - self.center) / self.step)
        return np.clip(steps, -_LEVELS, _LEVELS).astype(np.int8).view(np.uint8)

    def unpack(self, records: NDArray[np.uint8]) -> Vectors:
        """Return the vectors (N, d) of their bytes."""
        return records.view(np.int8) * self.step + self.center

    def arrays(self) -> dict[str, Vectors]:
        """Return the fitted arrays by name."""
        return {"center": self.center, "step": self.step}


Keeper = Float16 | Int8


def fit_keeper(kind: str | None, sample: Vectors) -> Keeper | None:
    """Return what packs vectors, fitted on a sample; None if no vectors are kept.

    Examples
    --------
    >>> fit_keeper("float8", np.ones((1, 2), np.float32))
    Traceback (most recent call last):
    ValueError: keep must be None, 'int8' or 'float16', got 'float8'
    """
    if kind is None:
        return None
    if kind not in KINDS:
        raise ValueError(f"keep must be None, 'int8' or 'float16', got {kind!r}")
    return Int8.fit(sample) if kind == "int8" else Float16()


def restore_keeper(kind: str | None, arrays: dict[str, NDArray]) -> Keeper | None:
    """Return a fitted keeper from its `kind` and `arrays`."""
    if kind is None:
        return None
    return Int8(**arrays) if kind == "int8" else Float16()
