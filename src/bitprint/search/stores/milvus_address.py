"""The address of an index on Milvus: that of a server, or the path of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from bitprint.search.stores.servers import DEFAULT_INDEX, wrong_address

_FORM = "milvus://user:password@host:19530/database"
_PORT = 19530
_COLLECTION = re.compile("[A-Za-z_][A-Za-z0-9_]{0,254}")
_LITE_FILE = re.compile(r"[A-Za-z0-9._-]{1,33}\.db")


@dataclass(frozen=True)
class Address:
    """Where an index is."""

    server: str
    """What pymilvus connects to: the URI of a server, or the path of a file."""
    database: str
    token: str = field(repr=False)
    index: str
    """The name of the index, which is that of a collection."""
    shown: str
    """The address as it may be shown."""

    @property
    def file(self) -> Path | None:
        """The file of Milvus Lite, or None for a server."""
        return None if "://" in self.server else Path(self.server)


def parse_address(uri: str) -> Address:
    """Split `milvus://user:password@host:19530/database?index=NAME` or `milvus:///file.db`.

    Examples
    --------
    >>> address = parse_address("milvus://me:secret@db.example/photos?index=cats")
    >>> address.server, address.database, address.index, address.shown
    ('http://db.example:19530', 'photos', 'cats', 'milvus://db.example/photos?index=cats')
    >>> parse_address("milvus:///data/photos.db").file.as_posix()
    '/data/photos.db'
    """
    parts, port = _split(uri)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    index, scheme = _check_options(options)
    secret, _, place = parts.netloc.rpartition("@")
    shown = f"milvus://{place}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    if not place:
        return Address(_lite_file(unquote(parts.path)), "", "", index, shown)
    host = quote(parts.hostname or "", safe=":")
    host = f"[{host}]" if ":" in host else host
    server = f"{scheme}://{host}:{port}"
    return Address(server, unquote(parts.path.strip("/")), unquote(secret), index, shown)


def _split(uri: str) -> tuple[SplitResult, int]:
    """The parts of an address, and the port; raises a ValueError if it names a password there."""
    try:
        parts = urlsplit(uri)
        port = parts.port or _PORT
    except ValueError:
        raise wrong_address(_FORM) from None
    behind = parts.path + parts.query + parts.fragment
    if parts.netloc and ("@" in behind or parts.fragment):
        raise wrong_address(_FORM)
    return parts, port


def _check_options(options: dict[str, str]) -> tuple[str, str]:
    """The name of the index, and how to speak to the server."""
    unknown = sorted(options.keys() - {"index", "tls"})
    if unknown:
        raise ValueError(f"the address of a Milvus index has no option {unknown[0]}; see index=")
    index = options.get("index", DEFAULT_INDEX)
    if not _COLLECTION.fullmatch(index):
        raise ValueError(
            "the name of an index on Milvus is made of letters, digits and underscores, "
            f"got {index!r}"
        )
    tls = options.get("tls", "false")
    if tls not in ("true", "false"):
        raise ValueError(f"tls in the address of a Milvus index is true or false, got {tls!r}")
    return index, "https" if tls == "true" else "http"


def _lite_file(path: str) -> str:
    if not _LITE_FILE.fullmatch(Path(path).name):
        raise ValueError(
            f"{path}: Milvus Lite keeps an index in a file whose name has at most 36 letters, "
            "digits, dots and dashes and ends in .db"
        )
    return str(Path(path).absolute())
