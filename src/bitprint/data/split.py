"""Split: rows of queries, training set and database."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of an image set that are queries, training set and database.

    Queries must not be in the database, and training images must be; both are checked.

    Parameters
    ----------
    queries, training, database : ndarray of int64
        Row numbers, ascending.
    name : str
        Data set and protocol, such as "cifar10/1".
    seed : int
        Seed of the random draw.
    map_at : int or None
        Number of nearest images that MAP uses; None for the whole database.

    Examples
    --------
    >>> split = Split([0], [1, 2], [1, 2, 3], name="mine", seed=0)
    >>> split
    Split('mine', seed 0: 1 queries, 2 training, 3 database)
    >>> again = Split([0], [2, 1], [3, 2, 1], name="mine, drawn again", seed=5)
    >>> split.fingerprint == again.fingerprint
    True
    """

    queries: Rows
    training: Rows
    database: Rows
    name: str
    seed: int
    map_at: int | None = None

    def __post_init__(self) -> None:
        for part in ("queries", "training", "database"):
            rows = np.sort(np.asarray(getattr(self, part), np.int64))
            if np.any(rows[1:] == rows[:-1]):
                raise ValueError(f"{self.name}: an image occurs twice in {part}")
            rows.setflags(write=False)
            object.__setattr__(self, part, rows)
        if np.isin(self.queries, self.database).any():
            raise ValueError(f"{self.name}: queries must not be in the database")
        if not np.isin(self.training, self.database).all():
            raise ValueError(f"{self.name}: training images must be in the database")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the three row lists; equal for equal splits on every machine."""
        digest = hashlib.sha256()
        for rows in (self.queries, self.training, self.database):
            digest.update(f"{len(rows)}:".encode())
            digest.update(rows.astype("<i8").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"Split({self.name!r}, seed {self.seed}: {len(self.queries)} queries, "
            f"{len(self.training)} training, {len(self.database)} database)"
        )
