"""QuantisedCodes: items as entries of codebooks, compared by distance to real-valued queries."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from safetensors.numpy import save as serialise

from bitprint.files import write_atomically

_FORMAT = "bitprint.quantised"
_VERSION = 1


class QuantisedCodes:
    """N items, each of them one entry from each of M codebooks (a product quantiser).

    A vector of M d numbers is cut into M parts, and each part is replaced by the nearest of the n
    entries of its own codebook: K = M log2(n) bits. Which bits two indices have in common says
    nothing about how near their entries are, so these are not `Codes`: no Hamming distance, no
    index. `bitprint.evaluate` ranks them by `distances`.

    Parameters
    ----------
    indices : ndarray of uint8, shape (N, M)
        Which entry of each codebook stands for each item.
    codebooks : ndarray of float32, shape (M, n, d)
        The entries; n is a power of two, from 2 to 256.

    Examples
    --------
    >>> codebooks = np.array([[[0.0], [1.0]], [[0.0], [2.0]]])
    >>> codes = QuantisedCodes([[0, 0], [1, 1]], codebooks)
    >>> codes.reconstruct().tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    >>> codes.distances([[0.5, 2.0]]).tolist()
    [[4.25, 0.25]]
    >>> codes.bits
    2
    """

    def __init__(self, indices: ArrayLike, codebooks: ArrayLike) -> None:
        codebooks = np.ascontiguousarray(codebooks, np.float32)
        indices = np.asarray(indices)
        if codebooks.ndim != 3 or codebooks.shape[1] not in (2, 4, 8, 16, 32, 64, 128, 256):
            raise ValueError(
                "codebooks have the shape (M, n, d) with n a power of two from 2 to 256, "
                f"got {codebooks.shape}"
            )
        if indices.ndim != 2 or indices.shape[1] != len(codebooks):
            raise ValueError(
                f"indices into {len(codebooks)} codebooks have the shape (N, {len(codebooks)}), "
                f"got {indices.shape}"
            )
        entries = codebooks.shape[1]
        if indices.dtype.kind not in "iu" or np.any((indices < 0) | (indices >= entries)):
            raise ValueError(f"indices are whole numbers from 0 to {entries - 1}")
        self.indices = np.ascontiguousarray(indices, np.uint8)
        self.codebooks = codebooks

    @property
    def bits(self) -> int:
        """K, the bits that one item takes."""
        books, entries, _ = self.codebooks.shape
        return int(books * (entries - 1).bit_length())

    def reconstruct(self) -> NDArray[np.float32]:
        """Vectors that the items stand for, shape (N, M d)."""
        books, _, width = self.codebooks.shape
        vectors: NDArray[np.float32] = self.codebooks[np.arange(books), self.indices]
        return vectors.reshape(-1, books * width)

    def distances(self, queries: ArrayLike | QuantisedCodes) -> NDArray[np.float32]:
        """Squared Euclidean distances, shape (Q, N).

        Asymmetric: the queries are as they are, only the items are replaced by entries. A table
        of each query's distances to all entries turns every distance into a sum of M numbers.

        Parameters
        ----------
        queries : array_like, shape (Q, M d), or QuantisedCodes
            Vectors; or items, which are taken for the vectors that they stand for.
        """
        if isinstance(queries, QuantisedCodes):
            queries = queries.reconstruct()
        queries = np.asarray(queries, np.float32)
        books, _, width = self.codebooks.shape
        if queries.ndim != 2 or queries.shape[1] != books * width:
            raise ValueError(
                f"queries have the shape (Q, {books * width}), as the codebooks say, "
                f"got {queries.shape}"
            )
        distances = np.zeros((len(queries), len(self)), np.float32)
        parts = queries.reshape(-1, books, 1, width)
        for book, codebook in enumerate(self.codebooks):
            table = np.square(parts[:, book] - codebook).sum(axis=2)
            distances += table[:, self.indices[:, book]]
        return distances

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write items and codebooks to one file (safetensors with a checksum), atomically.

        Examples
        --------
        >>> import tempfile
        >>> codes = QuantisedCodes([[0, 0], [1, 1]], [[[0.0], [1.0]], [[0.0], [2.0]]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     codes.save(f"{folder}/photos.quantised")
        ...     QuantisedCodes.load(f"{folder}/photos.quantised")
        QuantisedCodes(2 x 2 bits, 2 codebooks of 2)
        """
        metadata = {"format": _FORMAT, "version": str(_VERSION), "sha256": self._checksum()}
        arrays = {"indices": self.indices, "codebooks": self.codebooks}
        write_atomically(Path(path), serialise(arrays, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QuantisedCodes:
        """Read what `save` wrote; anything else is refused with a ValueError."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file of quantised codes")
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except Exception as error:  # types that NumPy lacks are no SafetensorError
            reason = " ".join(str(error).split())  # a name in the file may hold line breaks
            raise ValueError(
                f"{path}: not a file of quantised codes, or a truncated one ({reason})"
            ) from error
        version = metadata.get("version", "")
        if (
            metadata.get("format") != _FORMAT
            or set(arrays) != {"indices", "codebooks"}
            or not version.isdecimal()
        ):
            raise ValueError(f"{path}: not a file of quantised codes")
        if version != str(_VERSION):
            raise ValueError(
                f"{path}: quantised codes of version {version}, this is version {_VERSION}; "
                "upgrade bitprint to read it"
            )
        try:
            codes = cls(**arrays)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: not quantised codes ({error})") from error
        if codes._checksum() != metadata.get("sha256"):
            raise ValueError(f"{path}: the checksum does not match, the file is damaged")
        return codes

    def _checksum(self) -> str:
        about = f"{self.indices.shape} in {self.codebooks.shape}\n"
        digest = hashlib.sha256(about.encode())
        digest.update(self.indices.data)
        digest.update(self.codebooks.data)
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: int | slice | NDArray | list[int]) -> QuantisedCodes:
        """Select items; the result is always `QuantisedCodes`, of one item for a plain number."""
        if isinstance(rows, int | np.integer):
            rows = [int(rows)]
        return QuantisedCodes(self.indices[rows], self.codebooks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantisedCodes):
            return NotImplemented
        same_items = np.array_equal(self.indices, other.indices)
        return same_items and np.array_equal(self.codebooks, other.codebooks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        books, entries, _ = self.codebooks.shape
        return f"QuantisedCodes({len(self)} x {self.bits} bits, {books} codebooks of {entries})"
