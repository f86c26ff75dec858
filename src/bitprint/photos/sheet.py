"""Write a contact sheet: a query and its hits in one HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from bitprint.data.decoding import decode_thumbnail
from bitprint.utils.text import printable

_SIDE = 320

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem; font: 15px/1.4 system-ui, sans-serif; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1.25rem; }
figure { margin: 0; }
img, .missing { width: 100%; height: 11rem; object-fit: contain; background: #8882; }
.missing { display: grid; place-items: center; }
figcaption { margin-top: .4rem; overflow-wrap: anywhere; }
small { opacity: .7; }
figure:first-child img { outline: 3px solid #2a7fd4; outline-offset: 2px; }
"""


class Tile(NamedTuple):
    """An image on the sheet."""

    path: str
    caption: str


def contact_sheet(title: str, tiles: Iterable[Tile]) -> str:
    """Return an HTML page of images, with embedded thumbnails and without scripts.

    Parameters
    ----------
    title : str
    tiles : iterable of Tile
        The query first. A placeholder is shown for files that cannot be read.

    Returns
    -------
    str

    Examples
    --------
    >>> page = contact_sheet("Found", [Tile("/no/<such>.jpg", "3 bits")])
    >>> "&lt;such&gt;.jpg" in page, "<such>" in page
    (True, False)
    """
    name = escape(printable(title))
    figures = "\n".join(_figure(tile) for tile in tiles)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{name}</h1>
<main>
{figures}
</main>
</body>
</html>
"""


def _figure(tile: Tile) -> str:
    name = escape(printable(Path(tile.path).name))
    place = escape(printable(tile.path))
    try:
        picture = f'<img src="{_thumbnail(tile.path)}" alt="{name}">'
    except (FileNotFoundError, ValueError):
        picture = '<div class="missing">cannot be read</div>'
    return (
        f'<figure><a href="{escape(Path(tile.path).absolute().as_uri())}" title="{place}">'
        f"{picture}</a><figcaption>{escape(printable(tile.caption))}<br><small>{name}</small>"
        "</figcaption></figure>"
    )


def _thumbnail(path: str) -> str:
    content = io.BytesIO()
    Image.fromarray(decode_thumbnail(path, _SIDE)).save(content, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
