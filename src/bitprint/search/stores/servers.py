"""Default index name, timeout and error messages that PostgreSQL and Milvus share."""

from __future__ import annotations

DEFAULT_INDEX = "bitprint"
"""The name of an index whose address contains none."""

LONGEST_CONNECTING = 10.0
"""Maximum seconds to wait for a connection, even if answers may take longer."""


def wrong_address(form: str) -> ValueError:
    """Return the error for an address in which the password cannot be distinguished from the rest.

    Raise it from None: what was parsed as a host, a port or an option can be a part of the
    password, so neither the message nor its cause may contain it.
    """
    return ValueError(
        f"the address of the database is not {form}; write signs such as @ and / in a password as "
        "%40 and %2F"
    )


def connection_lost(place: str, reason: str) -> ConnectionError:
    """Return the error for a connection that ended during a call."""
    return ConnectionError(
        f"{place}: the connection was lost ({first_line(reason)}); repeat the call or transaction, "
        "which may or may not have been stored"
    )


def server_failed(place: str, reason: str) -> OSError:
    """Return the error for a call that the server could not execute."""
    return OSError(
        f"{place}: the server failed ({first_line(reason)}); check the server and repeat the call"
    )


def first_line(reason: str) -> str:
    r"""Return the first line of an error message of a server.

    Examples
    --------
    >>> first_line("relation codes does not exist\nLINE 1: SELECT ...")
    'relation codes does not exist'
    """
    return reason.strip().partition("\n")[0]
