"""Approximate searches on PostgreSQL: pgvector's graph of neighbours (HNSW) for bits."""

from __future__ import annotations

from bitprint.arguments import check_whole
from bitprint.search.stores.postgres_connection import Connection
from bitprint.search.stores.postgres_tables import Tables

_MOST_EF = 1000  # that pgvector takes
_MOST_M = 100
_ITERATIVE = (0, 8)  # the first pgvector that goes on until k codes have passed a filter

_CREATE = """
DROP INDEX IF EXISTS {hnsw};
CREATE INDEX codes_hnsw ON {codes} USING hnsw (code {ops}) WITH (m = {m}, ef_construction = {ef})
"""

NEAREST = """
SELECT n, id, distance
FROM unnest(%(queries)s::bit({width})[]) WITH ORDINALITY AS query (code, n)
CROSS JOIN LATERAL (
    SELECT id, ordinal, (stored.code {operator} query.code)::int AS distance
    FROM {codes} AS stored
    WHERE %(label)s::text IS NULL OR labels @> ARRAY[%(label)s::text]
    ORDER BY stored.code {operator} query.code LIMIT %(k)s
) AS found
ORDER BY n, distance, ordinal
"""

_PREFER = "SET LOCAL hnsw.ef_search = {ef}; SET LOCAL enable_seqscan = off"
_ITERATE = _PREFER + "; SET LOCAL hnsw.iterative_scan = strict_order"


def build(connection: Connection, tables: Tables, m: int, ef_construction: int) -> None:
    """Make the graph, or make it again."""
    if check_whole("m", m, 2) > _MOST_M:
        raise ValueError(f"m is at most {_MOST_M}, got {m}")
    if check_whole("ef_construction", ef_construction, 2 * m) > _MOST_EF:
        raise ValueError(f"ef_construction is at most {_MOST_EF}, got {ef_construction}")
    connection.execute(tables.fill(_CREATE, m=int(m), ef=int(ef_construction)))


def prefer(
    connection: Connection,
    tables: Tables,
    place: str,
    version: tuple[int, ...],
    ef: int,
    label: str | None,
) -> None:
    """Have the rest of a transaction search the graph; raises a ValueError where it cannot."""
    if check_whole("ef", ef, 1) > _MOST_EF:
        raise ValueError(f"ef is at most {_MOST_EF}, got {ef}")
    row = connection.execute("SELECT to_regclass(%s)", (tables.fill("{hnsw}").as_string(),))
    if row.fetchone() == (None,):
        raise ValueError(
            f"{place}: the index has no graph for approximate searches; call build_hnsw, or "
            "search exactly"
        )
    if version >= _ITERATIVE:
        connection.execute(tables.fill(_ITERATE, ef=int(ef)))
        return
    if label is not None:
        raise ValueError(
            f"{place}: an approximate search with a label needs pgvector 0.8; update the "
            "extension, or search exactly"
        )
    connection.execute(tables.fill(_PREFER, ef=int(ef)))
