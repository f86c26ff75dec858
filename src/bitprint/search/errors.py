"""Errors shared by all index back-ends: local files, PostgreSQL and Milvus."""

from __future__ import annotations


def no_such_index(place: object) -> FileNotFoundError:
    """Return the error for a missing index."""
    return FileNotFoundError(
        f"{place}: no such index; create it with Index.create in Python or `bitprint index add` "
        "on the command line"
    )


def other_version(place: object, found: object, ours: int) -> ValueError:
    """Return the error for an index format that this release cannot read."""
    is_older = isinstance(found, int) and found < ours
    return ValueError(
        f"{place}: index format version {found} is not supported, this release reads version "
        f"{ours}; {'build the index again' if is_older else 'upgrade bitprint to read it'}"
    )


def is_closed(place: object) -> ValueError:
    """Return the error for a call on a closed index."""
    return ValueError(f"{place}: the index is closed; open it again")


def no_such_id(place: object, identifier: object) -> ValueError:
    """Return the error for an id that is not in the index."""
    return ValueError(f"{place}: the index contains no id {identifier!r}")
