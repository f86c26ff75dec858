"""Encode large image collections on a Ray cluster; read and write folders of Parquet codes."""

try:
    from bitprint.cluster.encoding import Encoded, connect, encode_collection
    from bitprint.cluster.listing import SourceListing, list_source
    from bitprint.cluster.partitions import Job, Partition, read_codes, read_job
except ModuleNotFoundError as error:
    raise ImportError(
        f"cluster encoding requires {error.name}: pip install 'ray[client,data]' pyarrow fsspec"
    ) from error

__all__ = [
    "Encoded",
    "Job",
    "Partition",
    "SourceListing",
    "connect",
    "encode_collection",
    "list_source",
    "read_codes",
    "read_job",
]
