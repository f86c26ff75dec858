"""The address of an index on PostgreSQL, with all that libpq understands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bitprint.search.stores.servers import DEFAULT_INDEX, wrong_address

_FORM = "postgresql://user:password@host/database"
_LONGEST_NAME = 63  # PostgreSQL cuts longer ones off, silently
_SECRETS = ("password", "secret", "key")


@dataclass(frozen=True)
class Address:
    """Where an index is."""

    parameters: dict[str, Any] = field(repr=False)
    """What libpq connects with, the password included."""
    index: str
    """The name of the index, which is that of a schema in the database."""
    shown: str
    """The address as it may be shown."""


def parse_address(uri: str) -> Address:
    """Split `postgresql://user:password@host/database?index=NAME`.

    Examples
    --------
    >>> address = parse_address("postgresql://me:secret@db.example/photos?index=cats")
    >>> address.index, address.shown
    ('cats', 'postgresql://me@db.example/photos?index=cats')
    """
    base, _, query = uri.partition("?")
    options = [option for option in query.split("&") if option]
    chosen = [option for option in options if option.startswith("index=")]
    others = [option for option in options if option not in chosen]
    try:
        parameters: dict[str, Any] = dict(conninfo_to_dict("?".join([base, "&".join(others)])))
    except psycopg.ProgrammingError:
        raise wrong_address(_FORM) from None
    ports = str(parameters.get("port", "")).replace(",", "")
    places = f"{parameters.get('host', '')}{parameters.get('dbname', '')}"
    if "@" in places or (ports and not ports.isdecimal()):
        raise wrong_address(_FORM)
    index = _check_name(unquote(chosen[-1].removeprefix("index="))) if chosen else DEFAULT_INDEX
    return Address(parameters, index, _shown(parameters, index))


def _check_name(name: str) -> str:
    if not 1 <= len(name.encode("utf-8", "replace")) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"the name of an index has 1 to {_LONGEST_NAME} bytes that can be printed, got {name!r}"
        )
    if name.startswith("pg_"):
        raise ValueError(f"names like {name!r} belong to PostgreSQL; call the index otherwise")
    return name


def _shown(parameters: dict[str, Any], index: str) -> str:
    """Write an address without its secrets."""
    left = {name: str(value) for name, value in parameters.items()}
    user = f"{quote(left.pop('user'), safe='')}@" if "user" in left else ""
    database = quote(left.pop("dbname", ""), safe="")
    host = ""
    if not {"/", ","} & set(left.get("host", "/")):  # neither a socket nor several servers
        host = left.pop("host")
        host = f"[{host}]" if ":" in host else host
        host += f":{left.pop('port')}" if "port" in left else ""
    if index != DEFAULT_INDEX:
        left["index"] = index
    options = "&".join(
        f"{name}={quote(value, safe='/')}"
        for name, value in left.items()
        if not any(word in name for word in _SECRETS)
    )
    return f"postgresql://{user}{host}/{database}" + (f"?{options}" if options else "")
