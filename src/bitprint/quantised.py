"""QuantisedCodes: product-quantized items, ranked by distance to real-valued queries."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from safetensors.numpy import save as serialize

from bitprint.utils.files import write_atomically

_FORMAT = "bitprint.quantised"
_VERSION = 1


class QuantisedCodes:
    """N items of a product quantizer with M codebooks.

    A vector of M d numbers is divided into M parts, and each part is replaced by the nearest of the
    n entries of its codebook. An item has K = M log2(n) bits. The Hamming distance of two items is
    unrelated to the distance of their vectors, so they are not `Codes` and cannot be added to an
    index. `bitprint.evaluate` ranks them by `distances`.

    Parameters
    ----------
    indices : ndarray of uint8, shape (N, M)
        Index of the entry of each item in each codebook.
    codebooks : ndarray of float32, shape (M, n, d)
        The entries; n is a power of two from 2 to 256.

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
                "codebooks must have shape (M, n, d) with n a power of two from 2 to 256, "
                f"got {codebooks.shape}"
            )
        if indices.ndim != 2 or indices.shape[1] != len(codebooks):
            raise ValueError(
                f"indices into {len(codebooks)} codebooks must have shape (N, {len(codebooks)}), "
                f"got {indices.shape}"
            )
        entries = codebooks.shape[1]
        if indices.dtype.kind not in "iu" or np.any((indices < 0) | (indices >= entries)):
            raise ValueError(f"indices must be integers from 0 to {entries - 1}")
        self.indices = np.ascontiguousarray(indices, np.uint8)
        self.codebooks = codebooks

    @property
    def bits(self) -> int:
        """Number K of bits of an item."""
        books, entries, _ = self.codebooks.shape
        return int(books * (entries - 1).bit_length())

    def reconstruct(self) -> NDArray[np.float32]:
        """Return the vectors of the items, shape (N, M d)."""
        books, _, width = self.codebooks.shape
        vectors: NDArray[np.float32] = self.codebooks[np.arange(books), self.indices]
        return vectors.reshape(-1, books * width)

    def distances(self, queries: ArrayLike | QuantisedCodes) -> NDArray[np.float32]:
        """Compute squared Euclidean distances from queries to items, shape (Q, N).

        The distances are asymmetric: items are quantized, queries are not. A table with the
        distances of each query to all entries is computed first; each distance is then a sum of M
        numbers of the table.

        Parameters
        ----------
        queries : array_like, shape (Q, M d), or QuantisedCodes
            Vectors, or items, which are replaced by their vectors.

        Returns
        -------
        ndarray of float32, shape (Q, N)
        """
        if isinstance(queries, QuantisedCodes):
            queries = queries.reconstruct()
        queries = np.asarray(queries, np.float32)
        books, _, width = self.codebooks.shape
        if queries.ndim != 2 or queries.shape[1] != books * width:
            raise ValueError(
                f"queries must have shape (Q, {books * width}) to match the codebooks, "
                f"got {queries.shape}"
            )
        distances = np.zeros((len(queries), len(self)), np.float32)
        parts = queries.reshape(-1, books, 1, width)
        for book, codebook in enumerate(self.codebooks):
            table = np.square(parts[:, book] - codebook).sum(axis=2)
            distances += table[:, self.indices[:, book]]
        return distances

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write items and codebooks to a file (safetensors with a checksum), atomically.

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
        write_atomically(Path(path), serialize(arrays, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QuantisedCodes:
        """Read a file that was written by `save`; any other file raises a ValueError."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file of quantized codes")
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except Exception as error:  # types unknown to NumPy do not raise SafetensorError
            reason = " ".join(str(error).split())  # names in the file can contain line breaks
            raise ValueError(
                f"{path}: not a file of quantized codes, or truncated ({reason})"
            ) from error
        version = metadata.get("version", "")
        if (
            metadata.get("format") != _FORMAT
            or set(arrays) != {"indices", "codebooks"}
            or not version.isdecimal()
        ):
            raise ValueError(f"{path}: not a file of quantized codes")
        if version != str(_VERSION):
            raise ValueError(
                f"{path}: unknown format version {version}, this Bitprint reads version "
                f"{_VERSION}; upgrade bitprint"
            )
        try:
            codes = cls(**arrays)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: invalid quantized codes ({error})") from error
        if codes._checksum() != metadata.get("sha256"):
            raise ValueError(f"{path}: the checksum does not match; the file is damaged")
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
        """Select items; return `QuantisedCodes`, also for a single row number."""
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
