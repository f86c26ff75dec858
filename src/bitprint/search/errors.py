"""The words of errors that every kind of index raises: in a file, on PostgreSQL or on Milvus."""

from __future__ import annotations


def no_such_index(place: object) -> FileNotFoundError:
    """The error for a place that holds no index."""
    return FileNotFoundError(
        f"{place}: no such index; create it first: Index.create in Python, `bitprint index add` "
        "on the command line"
    )


def other_version(place: object, found: object, ours: int) -> ValueError:
    """The error for an index in a version of its format that is not ours."""
    return ValueError(
        f"{place}: an index of version {found}, this is version {ours}; upgrade bitprint to read it"
    )


def is_closed(place: object) -> ValueError:
    """The error for an index that was closed."""
    return ValueError(f"{place}: the index is closed; open it again")


def no_such_id(place: object, identifier: object) -> ValueError:
    """The error for an id that the index does not hold."""
    return ValueError(f"{place}: the index holds no id {identifier!r}")
