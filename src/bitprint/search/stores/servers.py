"""What all indexes on servers have in common: a name by default, patience, words of errors."""

from __future__ import annotations

DEFAULT_INDEX = "bitprint"
"""The name of an index whose address gives none."""

LONGEST_CONNECTING = 10.0
"""So many seconds a connection may take, even if answers may take longer."""


def wrong_address(form: str) -> ValueError:
    """The error for an address in which the password cannot be told from the rest.

    To be raised from None: what was taken for a host, a port or an option could be a part of the
    password, so neither the words nor the cause may name it.
    """
    return ValueError(
        f"the address of the database is not {form}; write signs such as @ and / in a password as "
        "%40 and %2F"
    )


def connection_lost(place: str, reason: str) -> ConnectionError:
    """The error for a server that went away: whether the last change was made is not known."""
    return ConnectionError(
        f"{place}: the connection was lost ({first_line(reason)}), and nothing is half done; "
        "try again"
    )


def server_failed(place: str, reason: str) -> OSError:
    """The error for a server that answered that it cannot do this."""
    return OSError(
        f"{place}: the server failed ({first_line(reason)}), so nothing of this call was stored; "
        "see to the server and try again"
    )


def first_line(reason: str) -> str:
    r"""What a server says first, for the rest is of use to its owner only.

    Examples
    --------
    >>> first_line("relation codes does not exist\nLINE 1: SELECT ...")
    'relation codes does not exist'
    """
    return reason.strip().partition("\n")[0]
