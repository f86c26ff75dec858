"""Text that is safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return text that is safe to print: control characters and invalid bytes are escaped.

    Examples
    --------
    >>> print(printable("caf\u00e9\n\x1b[2J\udcff.jpg"))
    café\n\x1b[2J\udcff.jpg
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
