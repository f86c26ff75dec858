"""Encoding collections that are larger than one machine, on Ray; folders of codes in Parquet."""

try:
    from bitprint.cluster.encoding import Encoded, connect, encode_collection
    from bitprint.cluster.listing import Listing, list_source
    from bitprint.cluster.partitions import Job, Partition, read_codes, read_job
except ModuleNotFoundError as error:
    raise ImportError(
        f"a cluster needs {error.name}: pip install 'ray[client,data]' pyarrow fsspec"
    ) from error

__all__ = [
    "Encoded",
    "Job",
    "Listing",
    "Partition",
    "connect",
    "encode_collection",
    "list_source",
    "read_codes",
    "read_job",
]
