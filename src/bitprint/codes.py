"""Codes: N binary codes of K bits, packed into bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from safetensors.numpy import save as serialize

from bitprint.utils.files import write_atomically

_FORMAT = "bitprint.codes"
_VERSION = 1


class Codes:
    """N codes of K bits, for any K >= 1.

    The first bit is the most significant bit of the first byte. The padding bits of the last byte
    are zero, so two packed rows differ in exactly the bits in which their codes differ.

    Parameters
    ----------
    packed : ndarray of uint8, shape (N, ceil(K / 8))
        The packed codes. They are validated, but not copied.
    bits : int
        Code length K.

    Examples
    --------
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, -1, 1], [1, 1, 1]])
    >>> len(codes), codes.bits, codes.packed.tolist()
    (2, 3, [[160], [224]])
    >>> codes.hamming(codes).tolist()
    [[0, 1], [1, 0]]
    >>> codes.signs().tolist()
    [[1, -1, 1], [1, 1, 1]]

    NumPy converts codes to an array of -1 and +1:

    >>> codes.shape, codes.dtype, np.asarray(codes).tolist()
    ((2, 3), dtype('int8'), [[1, -1, 1], [1, 1, 1]])
    """

    ndim = 2
    dtype = np.dtype(np.int8)

    def __init__(self, packed: NDArray[np.uint8], bits: int) -> None:
        bits = check_bits(bits)
        packed = np.asarray(packed)
        width = -(-bits // 8)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
            raise ValueError(
                f"packed codes of {bits} bits must be uint8 of shape (N, {width}), "
                f"got {packed.dtype} of shape {packed.shape}"
            )
        padding = width * 8 - bits
        if padding and np.any(packed[:, -1] & (2**padding - 1)):
            raise ValueError(f"the {padding} padding bits of {bits}-bit codes must be zero")
        self.packed = np.ascontiguousarray(packed)
        self.bits = bits

    @classmethod
    def from_signs(cls, signs: ArrayLike) -> Codes:
        """Pack codes that are given as -1 and +1, or as booleans.

        Parameters
        ----------
        signs : array_like, shape (N, K)
            -1 and +1, or False and True. For 0 and 1 pass `codes > 0`.

        Examples
        --------
        >>> zeros_and_ones = np.array([[1, 0, 1], [0, 1, 1]])
        >>> Codes.from_signs(zeros_and_ones > 0).signs().tolist()
        [[1, -1, 1], [-1, 1, 1]]
        """
        values = as_array(signs)
        if values.ndim != 2 or values.shape[1] < 1:
            raise ValueError(f"signs must have shape (N, K) with K >= 1, got {values.shape}")
        ones = values == 1
        if values.dtype != np.bool_ and not np.all(ones | (values == -1)):
            raise ValueError(
                "signs must be -1 and +1, or booleans; got other values; "
                "for 0 and 1 pass `codes > 0`, for network outputs `outputs >= 0`"
            )
        return cls(np.packbits(ones, axis=1), values.shape[1])

    @classmethod
    def from_packed(cls, packed: ArrayLike, bits: int) -> Codes:
        """Wrap packed codes, uint8 of shape (N, ceil(bits / 8)).

        Examples
        --------
        >>> Codes.from_packed(np.array([[0b10110000, 0b11110000]], np.uint8), bits=12).bits
        12
        """
        return cls(np.asarray(packed), bits)

    @classmethod
    def from_binary_embeddings(cls, embeddings: ArrayLike) -> Codes:
        """Wrap "ubinary" or "binary" embeddings, shape (N, K / 8).

        `quantize_embeddings` of sentence-transformers and some embedding services return them:
        uint8 ("ubinary") has the bits of `from_packed`, int8 ("binary") is the same minus 128.

        Examples
        --------
        >>> embedding = np.array([[0.3, -0.1, 0.2, 0.0, -1.0, 0.5, 0.5, 0.5]])
        >>> ubinary = np.packbits(embedding > 0, axis=1)
        >>> codes = Codes.from_binary_embeddings(ubinary)
        >>> codes.signs().tolist()
        [[1, -1, 1, -1, -1, 1, 1, 1]]
        >>> binary = (ubinary.astype(np.int16) - 128).astype(np.int8)
        >>> Codes.from_binary_embeddings(binary) == codes
        True
        """
        packed = as_array(embeddings)
        if packed.dtype not in (np.uint8, np.int8) or packed.ndim != 2 or packed.shape[1] < 1:
            raise ValueError(
                "binary embeddings must be uint8 or int8 of shape (N, K / 8), got "
                f"{packed.dtype} of shape {packed.shape}"
            )
        if packed.dtype == np.int8:
            packed = packed.view(np.uint8) ^ np.uint8(128)  # adds 128
        return cls(packed, 8 * packed.shape[1])

    @classmethod
    def concatenate(cls, parts: Iterable[Codes]) -> Codes:
        """Concatenate codes of the same number of bits.

        Examples
        --------
        >>> some = Codes.from_signs([[1, -1, 1]])
        >>> Codes.concatenate([some, Codes.from_signs([[1, 1, 1], [-1, -1, 1]])])
        Codes(3 x 3 bits)
        """
        parts = list(parts)
        if not parts:
            raise ValueError("nothing to concatenate")
        for part in parts[1:]:
            parts[0]._check_same_bits(part)
        return cls(np.concatenate([part.packed for part in parts]), parts[0].bits)

    def signs(self) -> NDArray[np.int8]:
        """Return the codes as -1 and +1, shape (N, K)."""
        ones = np.unpackbits(self.packed, axis=1, count=self.bits).view(np.int8)
        return (2 * ones - 1).astype(np.int8, copy=False)

    def prefix(self, bits: int) -> Codes:
        """Return the first bits of each code.

        They are codes of their own if a method orders its bits, such as `NestedITQ`.

        Parameters
        ----------
        bits : int
            From 1 to the code length.

        Examples
        --------
        >>> codes = Codes.from_signs([[1, -1, 1], [1, 1, 1]])
        >>> codes.prefix(2).signs().tolist()
        [[1, -1], [1, 1]]
        """
        bits = check_bits(bits)
        if bits > self.bits:
            raise ValueError(f"codes of {self.bits} bits have no prefix of {bits} bits")
        packed = self.packed[:, : -(-bits // 8)].copy()
        packed[:, -1] &= 0xFF << (-bits % 8) & 0xFF
        return Codes(packed, bits)

    def hamming(self, other: Codes) -> NDArray[np.int32]:
        """Return all Hamming distances to other codes, shape (len(self), len(other)).

        This is for small sets; `bitprint.evaluate` and the index do not build this matrix.
        """
        self._check_same_bits(other)
        distances = np.zeros((len(self), len(other)), np.int32)
        for mine, theirs in zip(self.packed.T, other.packed.T, strict=True):
            distances += np.bitwise_count(mine[:, None] ^ theirs[None, :])
        return distances

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the codes to a file (safetensors with a checksum), atomically and durably.

        Examples
        --------
        >>> import tempfile
        >>> codes = Codes.from_signs([[1, -1, 1], [1, 1, 1]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     codes.save(f"{folder}/photos.codes")
        ...     Codes.load(f"{folder}/photos.codes") == codes
        True
        """
        metadata = {
            "format": _FORMAT,
            "version": str(_VERSION),
            "bits": str(self.bits),
            "sha256": _checksum(self.packed, str(self.bits)),
        }
        write_atomically(Path(path), serialize({"packed": self.packed}, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Codes:
        """Read codes that were written by `save`; any other file raises a ValueError."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such codes file")
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
                packed = file.get_tensor("packed") if "packed" in file.keys() else None  # noqa: SIM118
        except Exception as error:  # types unknown to NumPy do not raise SafetensorError
            reason = " ".join(str(error).split())  # names in the file can contain line breaks
            raise ValueError(f"{path}: not a codes file, or truncated ({reason})") from error
        version = metadata.get("version", "")
        if metadata.get("format") != _FORMAT or packed is None or not version.isdecimal():
            raise ValueError(f"{path}: not a codes file")
        if version != str(_VERSION):
            raise ValueError(
                f"{path}: unknown format version {version}, this Bitprint reads version "
                f"{_VERSION}; upgrade bitprint"
            )
        bits = metadata.get("bits", "")
        if packed.dtype != np.uint8:
            raise ValueError(
                f"{path}: invalid codes of {bits[:9]!r} bits: {packed.dtype} instead of uint8"
            )
        if _checksum(np.ascontiguousarray(packed), bits) != metadata.get("sha256"):
            raise ValueError(f"{path}: the checksum does not match; the file is damaged")
        try:
            return cls(packed, int(bits))
        except ValueError as error:
            raise ValueError(f"{path}: invalid codes of {bits[:9]!r} bits ({error})") from error

    def _check_same_bits(self, other: Codes) -> None:
        if self.bits != other.bits:
            raise ValueError(
                f"cannot compare codes of {self.bits} bits with codes of {other.bits} bits"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (N, K) of `signs()`."""
        return len(self), self.bits

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return `signs()`, so that codes can be passed as an array."""
        if copy is False:
            raise ValueError("codes are packed: converting them to an array always makes a copy")
        signs = self.signs()
        return signs if dtype is None else signs.astype(dtype, copy=False)

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, rows: int | slice | NDArray | list[int]) -> Codes:
        """Select codes; return `Codes`, also for a single row number."""
        if isinstance(rows, tuple):
            raise ValueError("codes are indexed by rows only; for single bits use codes.signs()")
        if isinstance(rows, int | np.integer):
            rows = [int(rows)]
        return Codes(self.packed[rows], self.bits)

    def __iter__(self) -> Iterator[Codes]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Codes):
            return NotImplemented
        return self.bits == other.bits and np.array_equal(self.packed, other.packed)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Codes({len(self)} x {self.bits} bits)"


CodesLike: TypeAlias = "Codes | ArrayLike"
"""Codes, or an array, torch tensor or list of -1 and +1, shape (N, K)."""


def as_codes(values: Any) -> Codes:
    """Convert an array of -1 and +1 to `Codes`; return `Codes` unchanged.

    Parameters
    ----------
    values : Codes, or array_like of shape (N, K)
        -1 and +1, or booleans, as an array, a torch tensor or a list of lists.

    Returns
    -------
    Codes

    Examples
    --------
    >>> as_codes([[1, -1, 1], [1, 1, 1]])
    Codes(2 x 3 bits)
    >>> as_codes([[1, 0, 1], [1, 1, 1]])
    Traceback (most recent call last):
    ValueError: codes must be -1 and +1, got 0 and 1: pass Codes.from_signs(bits.astype(bool))
    """
    if isinstance(values, Codes):
        return values
    array = as_array(values)
    if array.ndim == 1 and array.size:
        raise ValueError(
            f"codes must have shape (N, K), got {array.shape}: for one code pass code[None]"
        )
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(f"codes must have shape (N, K) with K >= 1, got {array.shape}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"codes must be numbers, -1 and +1, got {array.dtype}")
    if array.dtype == np.bool_ or np.all((array == 1) | (array == -1)):
        return Codes.from_signs(array)
    if np.all((array == 0) | (array == 1)):
        raise ValueError(
            "codes must be -1 and +1, got 0 and 1: pass Codes.from_signs(bits.astype(bool))"
        )
    if array.dtype == np.uint8:
        raise ValueError(
            "codes must be -1 and +1, got uint8: for packed codes pass "
            "Codes.from_packed(packed, bits=K)"
        )
    raise ValueError(
        "codes must be -1 and +1, got other numbers: for real-valued outputs pass "
        "Codes.from_signs(outputs >= 0)"
    )


def as_array(values: Any) -> NDArray[Any]:
    """Convert an array, a list or a torch tensor on any device to a NumPy array.

    Examples
    --------
    >>> import torch
    >>> as_array(torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)).tolist()
    [[1.0, 1.0]]
    """
    if hasattr(values, "detach"):  # a tensor; torch is not imported here
        values = values.detach().cpu()
        values = (values.float() if values.is_floating_point() else values).numpy()
    elif isinstance(values, list | tuple) and any(hasattr(value, "detach") for value in values):
        values = [as_array(value) for value in values]
    return np.asarray(values)


def _checksum(packed: NDArray[np.uint8], bits: str) -> str:
    """Return the SHA-256 of the code length and the packed codes."""
    digest = hashlib.sha256(f"{bits} bits, {packed.dtype} of shape {packed.shape}\n".encode())
    digest.update(packed.data)
    return digest.hexdigest()


def check_bits(bits: int) -> int:
    """Return `bits` as an int, or raise a ValueError unless it is an integer >= 1."""
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or bits < 1:
        raise ValueError(f"bits must be an integer >= 1, got {bits!r}")
    return int(bits)
