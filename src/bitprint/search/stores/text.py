r"""Escape null characters and lone surrogates in strings for databases.

File names may contain bytes that are not text. Python decodes them to lone surrogates, which no
database stores. Ordinary strings stay as they are, so that other tools show them correctly.
"""

from __future__ import annotations

import re

_MARK = "\x1a"  # the control character "substitute", which practically no name contains
_UNSTORABLE = re.compile("[\0\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def to_text(name: str) -> str:
    r"""Return a string that any database stores and `from_text` converts back.

    Examples
    --------
    >>> to_text("café"), to_text("caf\udce9")
    ('café', 'caf\x1adce9')
    """
    return _UNSTORABLE.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", name)


def from_text(text: str) -> str:
    r"""Undo `to_text`.

    Examples
    --------
    >>> from_text("caf\x1adce9") == "caf\udce9"
    True
    """
    if _MARK not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
