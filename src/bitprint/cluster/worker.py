"""Worker: what runs on the machines of a cluster; it holds the model and encodes partitions."""

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

from bitprint.cluster.partitions import serialise
from bitprint.codes import Codes
from bitprint.data.decoding import decode_image
from bitprint.photos.encoder import Encoder

BATCH = 256
"""Pictures that go through the model at a time, as in `DeepHasher.encode`."""
_FETCHES = 8
"""Files of an object store that are waited for at a time, for each core."""

_ATTEMPTS = 4
"""So often a partition is begun before it is given up: a file may be what kills the workers."""

Pixels = NDArray[np.uint8]


def count_attempts() -> Any:
    """Start an actor that counts how often each partition is begun; Ray would never give one up.

    Its class is local, so that Ray sends its code along: the actor's process is spared the import
    of this package.
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
    """A model that encodes partitions, in as many threads as it has cores.

    Parameters
    ----------
    model : ObjectRef of dict of str to bytes
        The files of the model, see `Encoder.from_files`.
    identity : str
        What the model must be here, too: the features of a network come with an installed package.
    attempts : actor handle
        Of `count_attempts`.
    cpus : int
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
                f"a worker's packages make codes of {self._encoder.identity} where {identity} is "
                "wanted; install the same versions on all machines"
            )

    def __call__(self, partition: pa.Table) -> pa.Table:
        """Encode one partition, a row of lists; return the content of its file."""
        import ray

        number = partition["partition"][0].as_py()
        ids, paths = (partition[name][0].values for name in ("id", "path"))
        if ray.get(self._attempts.begin.remote(number)) > _ATTEMPTS:
            raise ValueError(
                f"{_ATTEMPTS} workers died over one of the files from {paths[0]} to {paths[-1]}"
            )
        codes, reasons = encode_files(self._encoder, paths.to_pylist(), self._cpus)
        keep = pa.array([row for row in range(len(paths)) if row not in reasons], pa.int64())
        failed = [(str(ids[row]), str(paths[row]), reason) for row, reason in reasons.items()]
        content = serialise(
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
    """Codes of N files, and of those that cannot be read the reasons, by row.

    A file that cannot be read leaves a blank in its batch, and its code means nothing: the other
    rows get the codes that they would get without the accident.

    Examples
    --------
    >>> from bitprint.methods import create
    >>> pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
    >>> encoder = Encoder(create("itq", bits=16).fit(pictures.reshape(50, -1) / 255))
    >>> encode_files(encoder, ["/nowhere/a.jpg"])
    (Codes(1 x 16 bits), {0: 'no such file'})
    """
    packed = np.zeros((len(paths), -(-encoder.bits // 8)), np.uint8)
    reasons: dict[int, str] = {}
    for start, found in _read_ahead(paths, encoder.size, threads):
        pixels = np.zeros((len(found), encoder.size, encoder.size, 3), np.uint8)
        for row, picture in enumerate(found):
            if isinstance(picture, str):
                reasons[start + row] = picture
            else:
                pixels[row] = picture
        packed[start : start + len(found)] = encoder.encode_squares(pixels).packed
    return Codes(packed, encoder.bits), reasons


def _read_ahead(
    paths: Sequence[str], size: int, threads: int
) -> Iterator[tuple[int, list[Pixels | str]]]:
    """Yield where a batch begins and its pictures, the next being read while one is used."""
    waiting: deque[tuple[int, list[Future[Pixels | str]]]] = deque()
    remote = any("://" in path for path in paths)
    with ThreadPoolExecutor(threads * _FETCHES if remote else threads) as pool:
        for start in range(0, len(paths), BATCH):
            batch = paths[start : start + BATCH]
            waiting.append((start, [pool.submit(read_picture, path, size) for path in batch]))
            if len(waiting) > 1:
                yield _wait(*waiting.popleft())
        while waiting:
            yield _wait(*waiting.popleft())


def _wait(start: int, reads: list[Future[Pixels | str]]) -> tuple[int, list[Pixels | str]]:
    return start, [read.result() for read in reads]


def read_picture(path: str, size: int) -> Pixels | str:
    """Pixels (size, size, 3) of a file or of an object in a store, or why it has none."""
    try:
        if "://" not in path:
            return decode_image(path, size)
        with fsspec.open(path, "rb") as file:
            return decode_image(io.BytesIO(file.read()), size)
    except FileNotFoundError:
        return "no such file"
    except ValueError as error:
        return str(error).removeprefix(f"{path}: ").removeprefix("image: ")
    except Exception as error:  # A store's client may raise errors of any kind.
        return f"{type(error).__name__}: {error}"
