"""Encoding pictures on a Ray cluster: actors hold the model, partitions stream back."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from bitprint.cluster.listing import list_source
from bitprint.cluster.partitions import (
    Job,
    count_codes,
    finished_partitions,
    part_name,
    read_job,
    read_left_out,
    read_listing,
    start_job,
    write_failed,
)
from bitprint.cluster.worker import BATCH, Worker, count_attempts
from bitprint.data.decoding import Progress
from bitprint.files import write_atomically
from bitprint.photos.encoder import Encoder


class Encoded(NamedTuple):
    """What `encode_collection` did.

    Examples
    --------
    >>> done = Encoded(new=1500, kept=1024, failed=3, partitions=2, left_out=["/photos/b.dng"])
    >>> f"{done.new + done.kept} pictures have a code, {done.failed} have none"
    '2524 pictures have a code, 3 have none'
    """

    new: int
    """How many pictures were encoded now."""
    kept: int
    """How many an earlier call had encoded."""
    failed: int
    """How many files have no code; `failed.csv` says why."""
    partitions: int
    """How many partitions were written now: none if the folder was finished before."""
    left_out: list[str]
    """Paths of pictures in formats that are not read."""


def encode_collection(
    run: str | os.PathLike[str],
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    partition: int = 1024,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Encoded:
    """Encode the pictures of a source into a folder of Parquet files, on the connected cluster.

    The pictures are listed once; then workers decode and encode them, one partition at a time, and
    this process writes what comes back. A file that cannot be read is listed in `failed.csv` and
    stops nothing. The partitions of a worker that dies are encoded by another. When this process
    stops, a second call goes on with the partitions that are missing, of the same list.

    Codes are those of `Hasher.encode` on all pictures of the list, bit for bit: pictures go
    through the model in the same batches of 256. Other batches round differently, in the sixth
    digit, which turns a bit over where an output is as near to zero as that; so may a processor of
    another make. A file that cannot be read leaves a blank in its batch, whereas `load_folder`
    closes the gap, so that behind it the batches are not the same ones.

    Workers get the bytes of the model through Ray, and read the pictures themselves: paths of a
    folder must be valid on their machines. A worker has one GPU where the cluster has some, and
    one core where it has none. Ray's processes talk to each other in pickles, as is its way; no
    file that Bitprint reads or writes is one.

    Parameters
    ----------
    run : path
        A model folder, see `Encoder.load`.
    source : path or URI
        A folder, a list in CSV or Parquet, or a place in an object store, see `list_source`.
    out : path
        A folder, made when missing; `read_codes` reads it.
    partition : int
        How many pictures a partition of a new folder covers, a multiple of 256.
    workers : int, optional
        How many workers to use at most; by default as many as the cluster has room for.
    progress : callable, optional
        Called with how many pictures are done, and how many there are to do.

    Examples
    --------
    >>> import bitprint as bp
    >>> from bitprint.cluster import read_codes
    >>> with connect("local"):  # doctest: +SKIP
    ...     encode_collection("model", "photos", "codes")
    Encoded(new=2524, kept=0, failed=3, partitions=3, left_out=[])
    >>> with bp.Index.create("photos.bp", bits=48) as index:  # doctest: +SKIP
    ...     for partition in read_codes("codes"):
    ...         index.add(*partition)
    """
    if partition < 1 or partition % BATCH:
        raise ValueError(f"a partition covers a multiple of {BATCH} pictures, got {partition}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    folder, encoder = Path(out), Encoder.load(run)
    job = _open_job(folder, _spell(source), encoder, partition)
    finished = finished_partitions(folder, job)
    kept = count_codes(folder, finished)
    parts = _missing_parts(folder, job, finished) if len(finished) < job.partitions else {}
    try:
        if parts:
            _encode_partitions(folder, job, parts, encoder, workers, progress)
    finally:
        failed = write_failed(folder, job)
    return Encoded(count_codes(folder, parts), kept, failed, len(parts), read_left_out(folder))


@contextmanager
def connect(address: str = "local") -> Iterator[None]:
    """Connect to a Ray cluster, and disconnect at the end.

    A process that is connected already stays connected as it is.

    Parameters
    ----------
    address : str
        "local" starts a cluster on this machine, which ends with the connection; "auto" is the
        one that runs here; ``ray://host:10001`` one that runs elsewhere.

    Examples
    --------
    >>> with connect("ray://head:10001"):  # doctest: +SKIP
    ...     encode_collection("model", "s3://bucket/photos", "codes")
    Encoded(new=2524, kept=0, failed=3, partitions=3, left_out=[])
    """
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(
            f"{address}: no Ray cluster can be reached ({_reason(error)})"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _open_job(folder: Path, source: str, encoder: Encoder, partition: int) -> Job:
    """Begin a new folder, or go on with one of the same source and model."""
    if not folder.exists() or not any(folder.iterdir()):
        listing = list_source(source)
        job = Job(source, encoder.bits, encoder.identity, len(listing.table), partition)
        start_job(folder, job, listing)
        return job
    job = read_job(folder)
    if job.source != source:
        raise ValueError(f"{folder}: holds codes of {job.source}; choose another folder")
    if job.model != encoder.identity:
        raise ValueError(
            f"{folder}: holds codes by {job.model}, which do not compare with those by "
            f"{encoder.identity}; choose another folder"
        )
    return job


def _missing_parts(folder: Path, job: Job, finished: Collection[int]) -> dict[int, pa.Table]:
    """Ids and paths of the partitions that are still to be made, by number."""
    listing = read_listing(folder, job)
    missing = sorted(set(range(job.partitions)) - set(finished))
    return {number: listing.slice(number * job.size, job.size) for number in missing}


def _encode_partitions(
    folder: Path,
    job: Job,
    parts: Mapping[int, pa.Table],
    encoder: Encoder,
    workers: int | None,
    progress: Progress | None,
) -> None:
    ray = _ray()
    total, done = sum(map(len, parts.values())), 0
    # Both are held here until the end, for workers that start again.
    model, attempts = ray.put(encoder.files), count_attempts()
    try:
        for number, content in _run(parts, (model, job.model, attempts), workers):
            write_atomically(folder / part_name(number), content)
            done += len(parts[number])
            if progress is not None:
                progress(done, total)
    except ray.exceptions.RayError as error:
        left = job.partitions - len(finished_partitions(folder, job))
        raise ValueError(
            f"{folder}: the cluster gave up with {left} of {job.partitions} partitions to do, and "
            f"the same command goes on from here: {_reason(error)}"
        ) from error


def _run(
    parts: Mapping[int, pa.Table], model: tuple[Any, ...], workers: int | None
) -> Iterator[tuple[int, bytes]]:
    """Run Ray Data here or, as it cannot over a connection of ``ray://``, in the cluster."""
    ray = _ray()
    if not ray.util.client.ray.is_connected():
        return _stream(parts, model, workers)
    there = ray.remote(num_cpus=0)(Stream).remote(parts, model, workers)
    return iter(lambda: ray.get(there.next.remote()), None)


class Stream:
    """`_stream` as an actor, asked for one partition after the other."""

    def __init__(self, *arguments: Any) -> None:
        self._partitions = _stream(*arguments)

    def next(self) -> tuple[int, bytes] | None:
        """Return number and content of the next partition, or None after the last."""
        return next(self._partitions, None)


def _stream(
    parts: Mapping[int, pa.Table], model: tuple[Any, ...], workers: int | None
) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of partitions as workers finish them."""
    ray = _ray()
    room, cpus, gpus = share_out(node["Resources"] for node in ray.nodes() if node["Alive"])
    size = min(room, len(parts), workers or room)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    with ray.data.DataContext.current(context):
        blocks = [_as_one_row(number, rows) for number, rows in parts.items()]
        partitions = ray.data.from_arrow(blocks).map_batches(
            Worker,
            fn_constructor_args=(*model, cpus),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=size),
            num_cpus=cpus,
            num_gpus=gpus,
        )
        for block in partitions.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=0
        ):
            for row in block.to_pylist():
                yield row["partition"], row["content"]


def share_out(nodes: Iterable[Mapping[str, float]]) -> tuple[int, int, int]:
    """How many workers machines have room for, and how many cores and GPUs each of them gets.

    Examples
    --------
    >>> share_out([{"CPU": 8.0}, {"CPU": 2.0}]), share_out([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 2.0}])
    ((10, 1, 0), (2, 4, 1))
    """
    machines = list(nodes)
    with_gpus = [node for node in machines if node.get("GPU", 0) >= 1]
    if with_gpus:
        cpus = min(int(node.get("CPU", 0) // node["GPU"]) for node in with_gpus)
        return int(sum(node["GPU"] // 1 for node in with_gpus)), max(1, cpus), 1
    cores = int(sum(node.get("CPU", 0) // 1 for node in machines))
    if cores == 0:
        raise ValueError("the Ray cluster has no cores to work with; add a machine to it")
    return cores, 1, 0


def _as_one_row(number: int, rows: pa.Table) -> pa.Table:
    """One partition as one row of lists, which Ray Data never cuts in two."""
    columns = {"partition": pa.array([number])}
    for name in ("id", "path"):
        values = rows[name].combine_chunks()
        columns[name] = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), values)
    return pa.table(columns)


def _ray() -> Any:
    try:
        import ray.data
    except ModuleNotFoundError as error:
        raise ImportError(
            f"a cluster needs {error.name}: pip install 'ray[client,data]' pyarrow fsspec"
        ) from error
    return ray


def _spell(source: str | os.PathLike[str]) -> str:
    name = os.fspath(source)
    return name if "://" in name else Path(name).resolve().as_posix()


def _reason(error: Exception) -> str:
    """What a worker raised, out of the tracebacks and advice in which Ray wraps it."""
    lines = str(error).strip().splitlines()
    raised = [line for line in lines if line.startswith("ValueError: ")]
    return (raised or lines)[-1].removeprefix("ValueError: ")
