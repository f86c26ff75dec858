"""The two collections of an index on Milvus: one row per code, and one row per attachment.

A collection of codes has the fields

========  ===========================  ==================================================
id        INT64 or VARCHAR (primary)   the id
code      BINARY_VECTOR                the code; padded with zeros to whole bytes
path      VARCHAR                      the path; empty if there is none
labels    JSON                         the labels, as {"names": ["cat", "sofa"]}
added     INT64                        insertion order: nanoseconds since 1970
========  ===========================  ==================================================

The labels are JSON because Milvus Lite reads and writes fields of type ARRAY in time that grows
with the square of the number of rows. They are an object because Milvus Lite cannot filter by a
list at the top level.

An attachment is one row of the second collection, or several if it exceeds the 65,535 bytes of a
VARCHAR.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from pymilvus import DataType, MilvusClient

from bitprint.codes import Codes
from bitprint.search.details import NOTHING, Item
from bitprint.search.errors import no_such_id, other_version
from bitprint.search.ids import Ids, kind_of
from bitprint.search.stores.milvus_connection import MilvusConnection
from bitprint.search.stores.text import from_text, to_text

Row = dict[str, Any]

Hits = list[tuple[int, int, Any]]
"""Distance, insertion time and primary key of the results of a query, sorted."""

Span = tuple[int, int]
"""The first insertion time, and the first one after the last."""

EVER: Span = (0, 2**63 - 1)
MOST_HITS = 16_384  # results that Milvus returns per query

_VERSION = 2
_LONGEST_TEXT = 65_535  # bytes of a VARCHAR or of JSON
_BATCH_ROWS = 10_000
_BATCH_BYTES = 16_000_000  # gRPC accepts 64 MB
_PAGE = 8_192  # rows per answer
_NAMES_AT_ONCE = 4_096
_CHUNK = 65_000  # characters of an attachment in one row
_CHUNKS_PAGE = 512
_HITS_AT_ONCE = 8 * MOST_HITS
_EVERY_LIST = 65_536  # the most lists that Milvus can probe: the search is exact

_OLD_DESCRIPTION = "bitprint.index"
_SETTINGS = "~index"  # the name of a row that no attachment can have
_EMPTY_PATH = "\x1a"  # an empty VARCHAR means no path; `to_text` never returns this

_ATTACHMENT_FIELDS = ("name", "part", "sha256", "encoding", "content")
_UNSAFE = re.compile("[\x00-\x1f\"%'\\\\~\x7f\ud800-\udfff]")
_ESCAPED = re.compile("~([0-9a-f]{4})")


def to_name(text: str) -> str:
    r"""Escape characters that a filter of Milvus cannot contain between quotes.

    Milvus Lite has no parameters for filters and accepts no line breaks in them, and versions of
    Milvus differ in other characters.

    Examples
    --------
    >>> to_name("café"), to_name('say "hi"')
    ('café', 'say ~0022hi~0022')
    """
    return _UNSAFE.sub(lambda found: f"~{ord(found[0]):04x}", text)


def from_name(name: str) -> str:
    """Undo `to_name`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)


def to_keys(ids: Ids) -> list[Any]:
    """Return ids as primary keys."""
    return [to_name(value) for value in ids] if ids.dtype == object else ids.tolist()


def from_keys(keys: Sequence[Any], kind: str | None) -> Ids:
    """Return primary keys of a kind as ids."""
    if kind != "string":
        return np.array(keys, np.int64)
    ids = np.empty(len(keys), object)
    ids[:] = [from_name(key) for key in keys]
    return ids


def to_item(row: Row) -> Item:
    """Return the path and the labels of a row."""
    path = from_text(row["path"]) if row["path"] != _EMPTY_PATH else ""
    return Item(path if row["path"] else None, tuple(map(from_name, row["labels"]["names"])))


def _path_field(item: Item) -> str:
    return "" if item.path is None else to_text(item.path) or _EMPTY_PATH


def _labels_field(item: Item) -> dict[str, list[str]]:
    return {"names": [to_name(label) for label in item.labels]}


def _among(field: str, keys: Sequence[Any]) -> Iterator[str]:
    """Yield filters for the rows with one of these keys, a few thousand keys in each."""
    for start in range(0, len(keys), _NAMES_AT_ONCE):
        some = json.dumps(keys[start : start + _NAMES_AT_ONCE], ensure_ascii=False)
        yield f"{field} in {some}"


class Settings(NamedTuple):
    """What an index stores about itself."""

    bits: int
    model: str | None


class Collection:
    """One collection of Milvus.

    Parameters
    ----------
    connection : MilvusConnection
    name : str
    description : str
        The description of the collection, by which it is recognized.
    vector : str
        The name of the field with vectors.
    """

    def __init__(
        self, connection: MilvusConnection, name: str, description: str, vector: str
    ) -> None:
        self._connection = connection
        self.place = connection.place
        self._name = name
        self._description = description
        self._vector = vector

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient` for this collection."""
        return self._connection.call(method, collection_name=self._name, **arguments)

    def exists(self) -> bool:
        """Return whether the collection exists; raise ValueError if it has another layout."""
        if not self.call("has_collection"):
            return False
        description = self.call("describe_collection")["description"]
        if description == _OLD_DESCRIPTION:
            raise ValueError(
                f"{self.place}: the collection {self._name} has the layout of an earlier version "
                "of bitprint; drop the collection and build the index again"
            )
        if description != self._description:
            raise ValueError(
                f"{self.place}: the collection {self._name} does not belong to this index; give "
                "another name with ?index="
            )
        return True

    def make(self, *fields: tuple[str, DataType, str, dict[str, Any]]) -> None:
        """Create the collection from the name, type, description and options of each field.

        Reads have the consistency level Strong: they see every write that has finished.
        """
        schema = MilvusClient.create_schema(description=self._description)
        for name, kind, description, options in fields:
            schema.add_field(name, kind, description=description, **options)
        self.call("create_collection", schema=schema, consistency_level="Strong")
        self.load()

    def load(self) -> None:
        """Make the collection ready for reads."""
        if not self.call("list_indexes"):  # new, or its creation was interrupted
            self._create_vector_index("BIN_FLAT", sync=False)
        self.call("load_collection")

    def drop(self) -> None:
        """Delete the collection."""
        self.call("drop_collection")

    def vector_index(self) -> str:
        """Return the type of the index of the vectors."""
        return str(self.call("describe_index", index_name=self._vector)["index_type"])

    def rebuild_vector_index(self, kind: str, **options: int) -> None:
        """Replace the index of the vectors; searches fail meanwhile."""
        self.call("flush")
        self.call("release_collection")
        self.call("drop_index", index_name=self._vector)
        self._create_vector_index(kind, sync=True, **options)
        self.call("load_collection")

    def _create_vector_index(self, kind: str, *, sync: bool, **options: int) -> None:
        index = MilvusClient.prepare_index_params()
        index.add_index(self._vector, index_type=kind, metric_type="HAMMING", params=options)
        self.call("create_index", index_params=index, sync=sync)

    def upsert(self, rows: Iterable[Row]) -> None:
        """Insert rows, and replace those that have the same primary keys."""
        batch: list[Row] = []
        size = 0
        for row in rows:
            if len(batch) == _BATCH_ROWS or size > _BATCH_BYTES:
                self.call("upsert", data=batch)
                batch, size = [], 0
            batch.append(row)
            size += len(repr(row))
        if batch:
            self.call("upsert", data=batch)

    def delete(self, conditions: Iterable[str]) -> None:
        """Delete the rows that any of the filters selects."""
        for condition in conditions:
            self.call("delete", filter=condition)

    def read(self, condition: str, fields: Sequence[str], page: int = _PAGE) -> Iterator[Row]:
        """Yield fields of the rows that a filter selects, in the order of their primary keys."""
        pages = self.call(
            "query_iterator", filter=condition, output_fields=list(fields), batch_size=page
        )
        try:
            while rows := self._connection.run(pages.next):
                yield from rows
        finally:
            pages.close()

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.call("query", filter="", output_fields=["count(*)"])[0]["count(*)"])


class CodeRows(Collection):
    """The codes of an index; their ids are all integers or all strings."""

    def __init__(self, connection: MilvusConnection) -> None:
        index = connection.address.index
        super().__init__(connection, index, "Codes of a bitprint index, one row per code", "code")
        self._kind: str | None = None

    @property
    def kind(self) -> str | None:
        """The kind of the ids, or None before the first codes, when there is no collection."""
        if self._kind is None and self.exists():
            self.load()
            fields = self.call("describe_collection")["fields"]
            (key,) = (field for field in fields if field["name"] == "id")
            self._kind = "integer" if key["type"] == DataType.INT64 else "string"
        return self._kind

    def write(self, ids: Ids, codes: Codes, items: Sequence[Item] | None) -> None:
        """Insert codes, and replace those that have the same ids."""
        described = [NOTHING] * len(ids) if items is None else items
        keys = to_keys(ids)
        for key, item in zip(keys, described, strict=True):
            self._check_row(key, item)
        if self.kind is None:
            self._create(kind_of(ids), codes.bits)
        first = self._next_time()
        self.upsert(
            {
                "id": key,
                "code": code.tobytes(),
                "path": _path_field(item),
                "labels": _labels_field(item),
                "added": first + number,
            }
            for number, (key, code, item) in enumerate(
                zip(keys, codes.packed, described, strict=True)
            )
        )

    def remove(self, ids: Ids) -> None:
        """Delete codes."""
        self.delete(_among("id", to_keys(ids)))

    def find(self, ids: Ids, fields: Sequence[str]) -> list[Row]:
        """Return fields of each id, in order; raise ValueError for an unknown id."""
        keys = to_keys(ids)
        found: dict[Any, Row] = {}
        if len(ids) and self.kind == kind_of(ids):
            for condition in _among("id", keys):
                rows = self.call("query", filter=condition, output_fields=["id", *fields])
                found |= {row["id"]: row for row in rows}
        for identifier, key in zip(ids.tolist(), keys, strict=True):
            if key not in found:
                raise no_such_id(self.place, identifier)
        return [found[key] for key in keys]

    def search(
        self,
        codes: Sequence[bytes],
        limit: int,
        span: Span,
        *,
        label: str | None,
        lists: int | None = None,
    ) -> list[Hits]:
        """Return the nearest codes of each query among those added in a span of time.

        With `lists`, search only so many lists of an inverted file.
        """
        if self.kind is None:
            return [[] for _ in codes]
        conditions = [f"added >= {span[0]} and added < {span[1]}"] if span != EVER else []
        if label is not None:
            conditions.append(f'json_contains(labels["names"], "{to_name(label)}")')
        options = {"metric_type": "HAMMING", "params": {"nprobe": lists or _EVERY_LIST}}
        step = max(1, _HITS_AT_ONCE // limit)
        return [
            sorted((int(hit["distance"]), hit["entity"]["added"], hit["id"]) for hit in hits)
            for start in range(0, len(codes), step)
            for hits in self.call(
                "search",
                data=codes[start : start + step],
                filter=" and ".join(conditions),
                limit=limit,
                output_fields=["added"],
                search_params=options,
                anns_field="code",
            )
        ]

    def _create(self, kind: str, bits: int) -> None:
        """Create the collection; Milvus ignores this if another writer has just done the same."""
        text: dict[str, Any] = {"max_length": _LONGEST_TEXT}
        key = (DataType.INT64, {}) if kind == "integer" else (DataType.VARCHAR, text)
        self.make(
            ("id", key[0], "id of the code", {"is_primary": True, **key[1]}),
            ("code", DataType.BINARY_VECTOR, f"code of {bits} bits", {"dim": 8 * -(-bits // 8)}),
            ("path", DataType.VARCHAR, "path of the image, or empty", text),
            ("labels", DataType.JSON, 'labels, as {"names": [...]}', {}),
            ("added", DataType.INT64, "insertion order: nanoseconds since 1970", {}),
        )
        self._kind = kind

    def _next_time(self) -> int:
        """Return the time in nanoseconds, or a later one if codes have that of a faster clock."""
        now = time.time_ns()
        later = (row["added"] + 1 for row in self.read(f"added >= {now}", ["added"]))
        return max(later, default=now)

    def _check_row(self, key: Any, item: Item) -> None:
        """Raise ValueError if Milvus cannot store a row."""
        if key == -(2**63):
            raise ValueError(f"{self.place}: Milvus cannot store the id {key}; use another id")
        for what, text in (
            ("id", key if isinstance(key, str) else ""),
            ("path", _path_field(item)),
            ("labels", json.dumps(_labels_field(item), ensure_ascii=False)),
        ):
            if len(text.encode()) > _LONGEST_TEXT:
                raise ValueError(
                    f"{self.place}: the {what} of {str(key)[:40]!r} has {len(text.encode())} "
                    f"bytes; Milvus stores at most {_LONGEST_TEXT}"
                )


class AttachmentRows(Collection):
    """The attachments of an index, and the row with its settings, which is written last."""

    def __init__(self, connection: MilvusConnection) -> None:
        name = f"{connection.address.index}_attachments"
        description = "Attachments of a bitprint index, in one or more rows each"
        super().__init__(connection, name, description, "unused")

    def create(self, bits: int, model: str | None, contents: Mapping[str, bytes]) -> None:
        """Create the collection of a new index with its first attachments."""
        text: dict[str, Any] = {"max_length": _LONGEST_TEXT}
        self.make(
            ("key", DataType.VARCHAR, "name#part", {"is_primary": True, **text}),
            ("name", DataType.VARCHAR, "name of the attachment", text),
            ("part", DataType.INT64, "number of this row of the attachment, from 0", {}),
            ("sha256", DataType.VARCHAR, "SHA-256 of the whole attachment", text),
            ("encoding", DataType.VARCHAR, "ascii or base64", text),
            ("content", DataType.VARCHAR, "the bytes, in this encoding", text),
            ("unused", DataType.BINARY_VECTOR, "Milvus requires a vector", {"dim": 8}),
        )
        self.write(contents)
        settings = {"version": _VERSION, "bits": bits, "model": model}
        self.upsert(_attachment_rows(_SETTINGS, json.dumps(settings).encode()))

    def settings(self) -> Settings | None:
        """Return the settings of the index, or None if creating it was interrupted."""
        if not self.exists():
            return None
        self.load()
        content = self._read(f'name == "{_SETTINGS}"').get(_SETTINGS)
        if content is None:
            return None
        found = json.loads(content)
        if found["version"] != _VERSION:
            raise other_version(self.place, found["version"], _VERSION)
        return Settings(found["bits"], found["model"])

    def write(self, contents: Mapping[str, bytes | None]) -> None:
        """Write attachments, and delete those that are None."""
        written = {
            name: _attachment_rows(name, content) if content is not None else []
            for name, content in ((to_name(name), contents[name]) for name in contents)
        }
        self.upsert(row for rows in written.values() for row in rows)
        by_count: dict[int, list[str]] = defaultdict(list)
        for name, rows in written.items():
            by_count[len(rows)].append(name)
        for count, names in by_count.items():  # rows of longer attachments that were replaced
            self.delete(f"part >= {count} and {some}" for some in _among("name", names))

    def contents(self, prefix: str) -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`, ordered by name."""
        found = self._read(f'name like "{to_name(prefix)}%"' if prefix else "")
        named = {from_name(name): found[name] for name in found if name != _SETTINGS}
        # In a pattern, an underscore matches any character.
        return {name: named[name] for name in sorted(named) if name.startswith(prefix)}

    def _read(self, condition: str) -> dict[str, bytes]:
        """Return the attachments that a filter selects, by their stored names."""
        rows: dict[str, list[Row]] = defaultdict(list)
        for row in self.read(condition, _ATTACHMENT_FIELDS, _CHUNKS_PAGE):
            rows[row["name"]].append(row)
        return {name: self._join(rows[name]) for name in rows}

    def _join(self, rows: list[Row]) -> bytes:
        """Return the content of an attachment; raise ValueError if some rows are not its own."""
        rows.sort(key=lambda row: int(row["part"]))
        content = "".join(row["content"] for row in rows).encode()
        if rows[0]["encoding"] == "base64":
            with suppress(binascii.Error):
                content = base64.b64decode(content)
        if {row["sha256"] for row in rows} != {hashlib.sha256(content).hexdigest()}:
            raise ValueError(
                f"{self.place}: the attachment {from_name(rows[0]['name'])} is incomplete because "
                "writing it was interrupted; attach it again"
            )
        return content


def _attachment_rows(name: str, content: bytes) -> list[Row]:
    """Return the rows of an attachment: ASCII text as it is, other bytes in base64."""
    encoding = "ascii" if content.isascii() and b"\0" not in content else "base64"
    text = (base64.b64encode(content) if encoding == "base64" else content).decode()
    digest = hashlib.sha256(content).hexdigest()
    return [
        {
            "key": f"{name}#{part}",
            "name": name,
            "part": part,
            "sha256": digest,
            "encoding": encoding,
            "content": text[start : start + _CHUNK],
            "unused": b"\0",
        }
        for part, start in enumerate(range(0, len(text) or 1, _CHUNK))
    ]
