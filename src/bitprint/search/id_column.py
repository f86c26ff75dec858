"""The ids of an open index in insertion order, in ranges where possible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bitprint.search.id_ranges import Integers, Ranges, as_names
from bitprint.search.ids import Ids, Positions


class IdColumn:
    """Growable sequence of ids; a view of it does not change when ids are appended.

    The sequence consists of pieces. A piece is a range, or a part of an array of irregular ids.
    A piece takes 24 bytes, and an irregular id 8 bytes, plus the Python string if it is one.

    Parameters
    ----------
    kind : str or None
        "integer" or "string"; None while there are no ids.
    """

    def __init__(self, kind: str | None) -> None:
        self.count = 0
        self._kind = kind
        self._pieces: Integers = np.empty((3, 0), np.int64)  # first position, start, step
        self._used = 0  # number of pieces
        self._irregular: Ids = np.empty(0, object if kind == "string" else np.int64)
        self._listed = 0  # number of irregular ids
        self._expected = 0

    def reserve(self, irregular: int) -> None:
        """Let the next irregular id make room for this number of them."""
        self._expected = self._listed + irregular

    def append(self, ids: Ids | Ranges) -> None:
        """Append ids at the positions from `count` on."""
        if isinstance(ids, Ranges):
            pieces = self.count + ids.offsets(), ids.starts, ids.steps
            self._append_pieces(*(part[int(self._continues(ids)) :] for part in pieces))
            self.count += ids.size
            return
        if not len(ids):
            return
        if not self._used or self._pieces[2, self._used - 1]:
            self._append_pieces(*np.array([[self.count], [self._listed], [0]]))
        end = self._listed + len(ids)
        self._irregular = grown(self._irregular, self._listed, max(end, self._expected))
        self._irregular[self._listed : end] = ids
        self._listed = end
        self.count += len(ids)

    def _append_pieces(self, firsts: Integers, starts: Integers, steps: Integers) -> None:
        total = self._used + len(firsts)
        self._pieces = grown(self._pieces, self._used, total)
        for row, part in zip(self._pieces, (firsts, starts, steps), strict=True):
            row[self._used : total] = part
        self._used = total

    def _continues(self, ids: Ranges) -> bool:
        """Return whether the first of some ranges continues the last piece."""
        if not self._used:
            return False
        first, start, step = self._pieces[:, self._used - 1].tolist()
        follows = start + step * (self.count - first) == ids.starts[0]
        return bool(step and follows and (ids.steps[0] == step or ids.counts[0] == 1))

    def view(self) -> IdView:
        """Return the current ids, without copying."""
        irregular = self._irregular[: self._listed]
        return IdView(self._kind, self.count, self._pieces[:, : self._used], irregular)


class IdView:
    """Immutable sequence of ids; `view[positions]` returns an array.

    Parameters
    ----------
    kind : str or None
    count : int
    pieces : ndarray of int64, shape (3, P)
        First position, start and step of each piece. If the step is 0, the start is the place of
        its first id in `irregular`.
    irregular : ndarray of int64 or object

    Attributes
    ----------
    is_numbering : bool
        Whether each id is its position.
    """

    def __init__(self, kind: str | None, count: int, pieces: Integers, irregular: Ids) -> None:
        self.dtype = irregular.dtype
        self._kind = kind
        self._count = count
        self._pieces = pieces
        self._irregular = irregular
        self.is_numbering = kind == "integer" and pieces.tolist() == [[0], [0], [1]]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, positions: Positions) -> Ids:
        if self.is_numbering:
            return positions
        if len(self._irregular) == self._count:
            return self._irregular[positions]
        if self._pieces.shape[1] == 1:
            return self._named(self._pieces[1] + self._pieces[2] * positions)
        firsts = self._pieces[0]
        piece = np.searchsorted(firsts, positions, side="right") - 1
        _, starts, steps = self._pieces[:, piece]
        return self._combined(starts, steps, positions - firsts[piece])

    def _combined(self, starts: Integers, steps: Integers, offsets: Integers) -> Ids:
        """Return ids, given the start and step of their pieces and their offsets in these."""
        if not len(self._irregular):
            return self._named(starts + steps * offsets)
        ids = np.empty(offsets.shape, self.dtype)
        listed = steps == 0
        ids[listed] = self._irregular[starts[listed] + offsets[listed]]
        ranged = ~listed
        ids[ranged] = self._named(starts[ranged] + steps[ranged] * offsets[ranged])
        return ids

    def _named(self, numbers: Integers) -> Ids:
        if self._kind == "integer":
            return numbers
        return as_names(numbers.ravel()).reshape(numbers.shape)

    def to_array(self) -> Ids:
        """Return a new array of all ids."""
        parts = [
            part.ids(self._kind) if isinstance(part, Ranges) else part for part in self.parts()
        ]
        return np.concatenate(parts) if parts else self._irregular.copy()

    def parts(self) -> Iterator[Ids | Ranges]:
        """Yield all ids in order, alternately as ranges and as arrays."""
        firsts, starts, steps = self._pieces
        counts = np.diff(firsts, append=self._count)
        ranged = steps != 0
        bounds = [0, *(np.flatnonzero(ranged[1:] != ranged[:-1]) + 1).tolist(), len(firsts)]
        for begin, end in pairwise(bounds):
            if begin == end:  # there are no ids
                return
            if ranged[begin]:
                yield Ranges(starts[begin:end], steps[begin:end], counts[begin:end])
            else:
                yield self._irregular[starts[begin] :][: counts[begin]]


def grown(array: NDArray, used: int, total: int) -> NDArray:
    """Return an array with room for `total` columns along the last axis, and the same first ones.

    If there is not enough room, the array is copied and gets an eighth more than necessary. The
    operating system provides the memory of this eighth only when it is used.
    """
    if total <= array.shape[-1]:
        return array
    larger = np.empty((*array.shape[:-1], total + max(total >> 3, 16)), array.dtype)
    larger[..., :used] = array[..., :used]
    return larger
