"""Hooks of `mkdocs build`: list the methods in the navigation, and typeset equations as MathML.

Equations are written in LaTeX, ``$x$`` in a line and ```` ```math ```` for a block, as on GitHub.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from method_list import method_pages, navigation
from mkdocs.exceptions import PluginError

METHODS = "Methods"
"""The section of the navigation to which the pages of the methods are added."""

_INLINE = re.compile(r'<span class="arithmatex">\\\((.+?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="math">(.+?)</div>', re.DOTALL)
_UNTRANSLATED = re.compile(r"<m[ion]>(\\[A-Za-z]*|&)</m[ion]>")

# Without these, browsers stretch norm bars and put spaces around names such as sgn and slashes.
_CORRECTIONS = (
    (re.compile("<mo>(&#x02016;)</mo>"), r'<mo stretchy="false">\1</mo>'),
    (re.compile("<mi>(&#x0007[BD];)</mi>"), r'<mo stretchy="false">\1</mo>'),
    (re.compile("<mo>(&#x0002F;)</mo>"), r'<mo lspace="0" rspace="0">\1</mo>'),
    (re.compile("<mo>([A-Za-z]{2,})</mo>"), r"<mi>\1</mi>"),
)


def on_config(config: Any) -> Any:
    """Add the pages of the methods to the navigation."""
    section = next(entry[METHODS] for entry in config.nav if METHODS in entry)
    section += navigation(method_pages())
    return config


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Replace the equations of a page."""
    try:
        text = _BLOCK.sub(lambda found: _typeset_block(found[1]), text)
        return _INLINE.sub(lambda found: to_mathml(html.unescape(found[1])), text)
    except ValueError as error:
        raise PluginError(f"{page.file.src_path}: {error}") from error


def to_mathml(latex: str, display: str = "inline") -> str:
    """Convert an equation to MathML; raise a ValueError if it cannot be converted."""
    latex = latex.strip()
    try:
        mathml = str(convert(latex, display=display))
    except Exception as error:
        raise ValueError(f"cannot convert the equation {latex} ({error!r})") from error
    left = _UNTRANSLATED.search(mathml)  # latex2mathml copies unknown commands
    if left is not None:
        raise ValueError(f"cannot convert {left[1]} in the equation {latex}")
    for pattern, replacement in _CORRECTIONS:
        mathml = pattern.sub(replacement, mathml)
    return mathml


def _typeset_block(escaped: str) -> str:
    return f'<div class="math">{to_mathml(html.unescape(escaped), "block")}</div>'
