"""The collection of an index on Milvus: making it, and reading, writing and searching its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pymilvus import DataType, MilvusClient

from bitprint.search.stores.milvus_address import Address
from bitprint.search.stores.milvus_connection import explained

MOST_HITS = 16_384  # that Milvus returns for a query
PAGE = 8_192  # rows that are asked for, or deleted, at once
_DESCRIPTION = "bitprint.index"
_LONGEST_TEXT = 65_535
_BATCH_ROWS = 10_000
_BATCH_BYTES = 16_000_000  # gRPC takes 64 MB
_EVERY_LIST = 65_536  # the most that Milvus probes, whatever the index has: an exact search


class Rows:
    """The collection of one index."""

    def __init__(self, client: MilvusClient, address: Address, timeout: float) -> None:
        self.client = client
        self.place = address.shown
        self.name = address.index
        self._asked: dict[str, Any] = {"collection_name": self.name, "timeout": timeout}

    def exists(self) -> bool:
        """Whether there is a collection of that name; one that is not an index is refused."""
        with explained(self.place):
            if not self.client.has_collection(**self._asked):
                return False
            description = self.client.describe_collection(**self._asked)["description"]
        if description != _DESCRIPTION:
            raise ValueError(
                f"{self.place}: the collection {self.name} was not made by bitprint; give another "
                "name with ?index="
            )
        return True

    def make(self, bits: int) -> None:
        """Make the collection, which is no index before it has a header."""
        schema = self.client.create_schema(description=_DESCRIPTION)
        schema.add_field("ordinal", DataType.INT64, is_primary=True)
        schema.add_field("name", DataType.VARCHAR, max_length=_LONGEST_TEXT)
        schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * -(-bits // 8))
        schema.add_field("details", DataType.JSON)
        with explained(self.place):
            self.client.create_collection(schema=schema, consistency_level="Session", **self._asked)
            self.load()

    def drop(self) -> None:
        """Delete everything."""
        with explained(self.place):
            self.client.drop_collection(**self._asked)

    def load(self) -> None:
        """Make the collection ready for searches."""
        with explained(self.place):
            if not self.client.list_indexes(self.name):  # new, or `build` was cut short
                self._create_index("BIN_FLAT", {}, sync=False)
            self.client.load_collection(**self._asked)

    def index_type(self) -> str:
        """Which index Milvus has over the codes."""
        with explained(self.place):
            return str(self.client.describe_index(self.name, "code")["index_type"])

    def build(self, lists: int) -> None:
        """Replace the index over the codes by one of several lists; searches fail meanwhile."""
        with explained(self.place):
            self.client.flush(**self._asked)
            self.client.release_collection(**self._asked)
            self.client.drop_index(index_name="code", **self._asked)
            self._create_index("BIN_IVF_FLAT", {"nlist": lists}, sync=True)
            self.client.load_collection(**self._asked)

    def _create_index(self, kind: str, options: dict[str, int], *, sync: bool) -> None:
        index = self.client.prepare_index_params()
        index.add_index("code", index_type=kind, metric_type="HAMMING", params=options)
        self.client.create_index(index_params=index, sync=sync, **self._asked)

    def compact(self) -> None:
        """Ask the server to give back the space of deleted rows."""
        with explained(self.place):
            self.client.compact(**self._asked)

    def insert(self, rows: Iterable[tuple[int, str, bytes, dict[str, Any]]]) -> None:
        """Write rows, each an ordinal, a name, a code and details."""
        batch: list[dict[str, Any]] = []
        size = 0
        for ordinal, name, code, details in rows:
            length = len(name.encode()) + len(json.dumps(details, ensure_ascii=False).encode())
            if length > _LONGEST_TEXT:
                raise ValueError(
                    f"{self.place}: {name[:40]!r} takes {length} bytes with its path and labels; "
                    f"Milvus stores {_LONGEST_TEXT}"
                )
            if len(batch) == _BATCH_ROWS or size > _BATCH_BYTES:
                self._insert(batch)
                batch, size = [], 0
            batch.append({"ordinal": ordinal, "name": name, "code": code, "details": details})
            size += length + len(code)
        if batch:
            self._insert(batch)

    def _insert(self, batch: list[dict[str, Any]]) -> None:
        with explained(self.place):
            self.client.insert(data=batch, **self._asked)

    def replace(self, ordinal: int, width: int, details: dict[str, Any]) -> None:
        """Write one row that has a code of `width` zero bytes, in place of the one there was."""
        row = {"ordinal": ordinal, "name": "", "code": bytes(width), "details": details}
        with explained(self.place):
            self.client.upsert(data=[row], **self._asked)

    def delete(self, condition: str) -> None:
        """Delete the rows that a filter selects."""
        with explained(self.place):
            self.client.delete(filter=condition, **self._asked)

    def erase(self, ordinals: list[int]) -> None:
        """Delete the rows at these ordinals."""
        for start in range(0, len(ordinals), PAGE):
            self.delete(f"ordinal in {ordinals[start : start + PAGE]}")

    def query(self, condition: str, columns: list[str], **options: Any) -> list[dict[str, Any]]:
        """Read columns of the rows that a filter selects, and their ordinals."""
        with explained(self.place):
            rows: list[dict[str, Any]] = self.client.query(
                filter=condition, output_fields=["ordinal", *columns], **self._asked, **options
            )
        return rows

    def search(
        self, codes: list[bytes], condition: str, limit: int, lists: int | None = None
    ) -> list[list[tuple[int, int, str]]]:
        """Return the distance, the ordinal and the name of the nearest rows of each code.

        With `lists`, only those in so many of the lists of `build`.
        """
        options = {"metric_type": "HAMMING", "params": {"nprobe": lists or _EVERY_LIST}}
        with explained(self.place):
            answers = self.client.search(
                data=codes,
                filter=condition,
                limit=limit,
                output_fields=["name"],
                search_params=options,
                anns_field="code",
                **self._asked,
            )
        return [
            sorted((int(hit["distance"]), hit["id"], hit["entity"]["name"]) for hit in hits)
            for hits in answers
        ]
