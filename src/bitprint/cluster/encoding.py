"""Encode images on a Ray cluster; this process writes the partitions that the workers return."""

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
from bitprint.photos.encoder import Encoder
from bitprint.utils.files import write_atomically


class Encoded(NamedTuple):
    """Result of `encode_collection`.

    Examples
    --------
    >>> done = Encoded(new=1500, kept=1024, failed=3, partitions=2, left_out=["/photos/b.dng"])
    >>> f"{done.new + done.kept} images have a code, {done.failed} have none"
    '2524 images have a code, 3 have none'
    """

    new: int
    """Number of images that this call encoded."""
    kept: int
    """Number of images that earlier calls had encoded."""
    failed: int
    """Number of files without a code; `failed.csv` gives the reasons."""
    partitions: int
    """Number of partitions that this call wrote; 0 if the folder was already finished."""
    left_out: list[str]
    """Paths of images in unsupported formats."""


def encode_collection(
    run: str | os.PathLike[str],
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    partition: int = 1024,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Encoded:
    """Encode the images of a source into a folder of Parquet files, on the connected cluster.

    The images are listed once. Workers then decode and encode one partition at a time, and this
    process writes the results. Files that cannot be read are listed in `failed.csv` and do not stop
    the job. If a worker dies, another worker encodes its partition. If this process stops, call the
    function again to encode the missing partitions of the same list.

    The codes are bit for bit those of `Hasher.encode` on all listed images, because the model
    receives the same batches of 256 images. Other batches round differently in about the sixth
    digit, which changes a bit if the output is that close to zero; a different processor can have
    the same effect. An unreadable file is a blank image in its batch, whereas `load_folder` skips
    it, so that the following batches differ.

    Workers receive the model through Ray and read the images themselves, so that the paths of a
    folder must be valid on their machines. A worker has one GPU if the cluster has GPUs, and one
    core otherwise. Ray's processes exchange pickles internally; Bitprint's own files never contain
    pickles.

    Parameters
    ----------
    run : path
        A model folder, see `Encoder.load`.
    source : path or URI
        A folder, a list in CSV or Parquet, or an object store location, see `list_source`.
    out : path
        Output folder, created if missing; read it with `read_codes`.
    partition : int
        Number of images per partition in a new folder, a multiple of 256.
    workers : int, optional
        Maximum number of workers; by default as many as the cluster has room for.
    progress : callable, optional
        Called with the number of finished images and the total.

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
        raise ValueError(f"partition must be a multiple of {BATCH} images, got {partition}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be an integer >= 1, got {workers}")
    folder, encoder = Path(out), Encoder.load(run)
    job = _open_job(folder, _absolute(source), encoder, partition)
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
    """Connect to a Ray cluster for the duration of a `with` statement.

    An existing connection is used as it is and stays open.

    Parameters
    ----------
    address : str
        "local" starts a cluster on this machine and stops it at the end; "auto" connects to a
        cluster that is running on this machine; ``ray://host:10001`` connects to a remote one.

    Examples
    --------
    >>> with connect("ray://head:10001"):  # doctest: +SKIP
    ...     encode_collection("model", "s3://bucket/photos", "codes")
    Encoded(new=2524, kept=0, failed=3, partitions=3, left_out=[])
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(
            f"{address}: cannot connect to a Ray cluster ({_short_reason(error)})"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _open_job(folder: Path, source: str, encoder: Encoder, partition: int) -> Job:
    """Start a job in a new folder, or resume one with the same source and model."""
    if not folder.exists() or not any(folder.iterdir()):
        listing = list_source(source)
        job = Job(source, encoder.bits, encoder.identity, len(listing.table), partition)
        start_job(folder, job, listing)
        return job
    job = read_job(folder)
    if job.source != source:
        raise ValueError(f"{folder}: contains codes of {job.source}; choose another folder")
    if job.model != encoder.identity:
        raise ValueError(
            f"{folder}: contains codes by {job.model}, which cannot be compared with those by "
            f"{encoder.identity}; choose another folder"
        )
    return job


def _missing_parts(folder: Path, job: Job, finished: Collection[int]) -> dict[int, pa.Table]:
    """Return the ids and paths of the missing partitions by number."""
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
    ray = _import_ray()
    total, done = sum(map(len, parts.values())), 0
    # These references must live until the end, because workers may be restarted.
    model, attempts = ray.put(encoder.files), count_attempts()
    try:
        for number, content in _iter_partitions(parts, (model, job.model, attempts), workers):
            write_atomically(folder / part_name(number), content)
            done += len(parts[number])
            if progress is not None:
                progress(done, total)
    except ray.exceptions.RayError as error:
        left = job.partitions - len(finished_partitions(folder, job))
        raise ValueError(
            f"{folder}: the cluster failed with {left} of {job.partitions} partitions missing "
            f"({_short_reason(error)}); run the same command again to resume"
        ) from error


def _iter_partitions(
    parts: Mapping[int, pa.Table], model: tuple[Any, ...], workers: int | None
) -> Iterator[tuple[int, bytes]]:
    """Run Ray Data in this process, or in the cluster for ``ray://`` connections."""
    ray = _import_ray()
    if not ray.util.client.ray.is_connected():
        return _stream(parts, model, workers)
    stream = ray.remote(num_cpus=0)(PartitionStream).remote(parts, model, workers)
    return iter(lambda: ray.get(stream.next.remote()), None)


class PartitionStream:
    """Actor that runs `_stream` and returns one partition per call."""

    def __init__(self, *arguments: Any) -> None:
        self._partitions = _stream(*arguments)

    def next(self) -> tuple[int, bytes] | None:
        """Return the number and content of the next partition, or None after the last."""
        return next(self._partitions, None)


def _stream(
    parts: Mapping[int, pa.Table], model: tuple[Any, ...], workers: int | None
) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of partitions as workers finish them."""
    ray = _import_ray()
    room, cpus, gpus = plan_workers(node["Resources"] for node in ray.nodes() if node["Alive"])
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


def plan_workers(nodes: Iterable[Mapping[str, float]]) -> tuple[int, int, int]:
    """Return the number of workers that fit on the nodes, and the cores and GPUs per worker.

    Examples
    --------
    >>> plan_workers([{"CPU": 8.0}, {"CPU": 2.0}])
    (10, 1, 0)
    >>> plan_workers([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 2.0}])
    (2, 4, 1)
    """
    machines = list(nodes)
    with_gpus = [node for node in machines if node.get("GPU", 0) >= 1]
    if with_gpus:
        cpus = min(int(node.get("CPU", 0) // node["GPU"]) for node in with_gpus)
        return int(sum(node["GPU"] // 1 for node in with_gpus)), max(1, cpus), 1
    cores = int(sum(node.get("CPU", 0) // 1 for node in machines))
    if cores == 0:
        raise ValueError("the Ray cluster has no CPU cores; add a machine to it")
    return cores, 1, 0


def _as_one_row(number: int, rows: pa.Table) -> pa.Table:
    """Return a partition as one row of lists, which Ray Data never splits."""
    columns = {"partition": pa.array([number])}
    for name in ("id", "path"):
        values = rows[name].combine_chunks()
        columns[name] = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), values)
    return pa.table(columns)


def _import_ray() -> Any:
    try:
        import ray.data
    except ModuleNotFoundError as error:
        raise ImportError(
            f"cluster encoding requires {error.name}: pip install 'ray[client,data]' pyarrow fsspec"
        ) from error
    return ray


def _absolute(source: str | os.PathLike[str]) -> str:
    name = os.fspath(source)
    return name if "://" in name else Path(name).resolve().as_posix()


def _short_reason(error: Exception) -> str:
    """Return the message that a worker raised, without the traceback that Ray adds."""
    lines = str(error).strip().splitlines()
    raised = [line for line in lines if line.startswith("ValueError: ")]
    return (raised or lines)[-1].removeprefix("ValueError: ")
