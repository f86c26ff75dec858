"""Ray worker that loads the model and encodes partitions."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bitprint.cluster.partitions import to_parquet
from bitprint.codes import Codes
from bitprint.data.decoding import decode_image
from bitprint.photos.encoder import Encoder

BATCH = 256
"""Images per batch, as in `DeepHasher.encode`."""
_FETCHES = 8
"""Concurrent reads from an object store per core."""

_ATTEMPTS = 4
"""Attempts per partition, because a file may crash every worker that reads it."""

Pixels = NDArray[np.uint8]


def count_attempts() -> Any:
    """Start an actor that counts the attempts per partition; Ray itself would retry forever.

    The class is local, so that Ray sends its code and the actor does not import this package.
    """
    import ray

    class Attempts:
        def __init__(self) -> None:
            self._counts: Counter[int] = Counter()

        def begin(self, number: int) -> int:
            self._counts[number] += 1
            return self._counts[number]

    return ray.remote(num_cpus=0)(Attempts).remote()


class Worker:
    """Encode partitions with a model, with one thread per core.

    Parameters
    ----------
    model : ObjectRef of dict of str to bytes
        The files of the model, see `Encoder.from_files`.
    identity : str
        Expected identity of the model. It can differ on this machine, because the weights of some
        networks come from an installed package.
    attempts : actor handle
        Result of `count_attempts`.
    cpus : int
        Number of threads.
    """

    def __init__(self, model: Any, identity: str, attempts: Any, cpus: int) -> None:
        import ray

        torch.set_num_threads(cpus)
        threadpool_limits(cpus)
        self._encoder = Encoder.from_files(ray.get(model))
        self._attempts = attempts
        self._cpus = cpus
        if self._encoder.identity != identity:
            raise ValueError(
                f"a worker has the model {self._encoder.identity} instead of {identity}; install "
                "the same package versions on all machines"
            )

    def __call__(self, partition: pa.Table) -> pa.Table:
        """Encode one partition, given as a row of lists; return the content of its file."""
        import ray

        number = partition["partition"][0].as_py()
        ids, paths = (partition[name][0].values for name in ("id", "path"))
        if ray.get(self._attempts.begin.remote(number)) > _ATTEMPTS:
            raise ValueError(
                f"{_ATTEMPTS} workers crashed on one of the files from {paths[0]} to {paths[-1]}"
            )
        codes, reasons = encode_files(self._encoder, paths.to_pylist(), self._cpus)
        keep = pa.array([row for row in range(len(paths)) if row not in reasons], pa.int64())
        failed = [(str(ids[row]), str(paths[row]), reason) for row, reason in reasons.items()]
        content = to_parquet(
            ids.take(keep), paths.take(keep), codes[keep.to_numpy()], self._encoder.identity, failed
        )
        return pa.table(
            {
                "partition": partition["partition"],
                "content": pa.array([content], pa.binary()),
            }
        )


def encode_files(
    encoder: Encoder, paths: Sequence[str], threads: int = 1
) -> tuple[Codes, dict[int, str]]:
    """Return the codes of N files, and for unreadable files the reasons by row.

    An unreadable file is a blank image in its batch and its code is invalid. The codes of the other
    files are not affected.

    Examples
    --------
    >>> from bitprint.methods import create
    >>> images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
    >>> encoder = Encoder(create("itq", bits=16).fit(images.reshape(50, -1) / 255))
    >>> encode_files(encoder, ["/nowhere/a.jpg"])
    (Codes(1 x 16 bits), {0: 'no such file'})
    """
    packed = np.zeros((len(paths), -(-encoder.bits // 8)), np.uint8)
    reasons: dict[int, str] = {}
    for start, found in _read_ahead(paths, encoder.size, threads):
        pixels = np.zeros((len(found), encoder.size, encoder.size, 3), np.uint8)
        for row, image in enumerate(found):
            if isinstance(image, str):
                reasons[start + row] = image
            else:
                pixels[row] = image
        packed[start : start + len(found)] = encoder.encode_squares(pixels).packed
    return Codes(packed, encoder.bits), reasons


def _read_ahead(
    paths: Sequence[str], size: int, threads: int
) -> Iterator[tuple[int, list[Pixels | str]]]:
    """Yield the start and images of each batch, while the next batch is read in the background."""
    waiting: deque[tuple[int, list[Future[Pixels | str]]]] = deque()
    remote = any("://" in path for path in paths)
    with ThreadPoolExecutor(threads * _FETCHES if remote else threads) as pool:
        for start in range(0, len(paths), BATCH):
            batch = paths[start : start + BATCH]
            waiting.append((start, [pool.submit(read_image, path, size) for path in batch]))
            if len(waiting) > 1:
                yield _wait(*waiting.popleft())
        while waiting:
            yield _wait(*waiting.popleft())


def _wait(start: int, reads: list[Future[Pixels | str]]) -> tuple[int, list[Pixels | str]]:
    return start, [read.result() for read in reads]


def read_image(path: str, size: int) -> Pixels | str:
    """Return the pixels (size, size, 3) of a local or remote file, or why it cannot be read."""
    try:
        if "://" not in path:
            return decode_image(path, size)
        with fsspec.open(path, "rb") as file:
            return decode_image(io.BytesIO(file.read()), size)
    except FileNotFoundError:
        return "no such file"
    except ValueError as error:
        return str(error).removeprefix(f"{path}: ").removeprefix("image: ")
    except Exception as error:  # object store clients may raise any type
        return f"{type(error).__name__}: {error}"
