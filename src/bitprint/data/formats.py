"""Image file formats: supported and unsupported ones, and printable file names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import PurePath

from PIL import features

PLAIN = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats whose files decode to the size in their header; accepted for uploads."""

_READS_AVIF = "avif" in features.modules and features.check_module("avif")
_READS_HEIF = find_spec("pillow_heif") is not None
if _READS_HEIF:
    import pillow_heif

    # Files are already decoded in parallel. An embedded thumbnail can differ from the image.
    pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False)

FORMATS = PLAIN + ("AVIF",) * _READS_AVIF + ("HEIF",) * _READS_HEIF
"""Supported formats, by Pillow's names."""

_AVIF = frozenset({".avif"})
_HEIF = frozenset({".heic", ".heif", ".hif"})
_RAW = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mrw"}
    | {".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw"}
)

SUFFIXES = (
    frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
    | (_AVIF if _READS_AVIF else frozenset())
    | (_HEIF if _READS_HEIF else frozenset())
)
"""File name suffixes of supported formats, in lower case."""

OTHER_SUFFIXES = (
    _AVIF | _HEIF | _RAW | {".exr", ".j2k", ".jp2", ".jxl", ".psd", ".svg", ".xcf"}
) - SUFFIXES
"""File name suffixes of unsupported image formats."""


def describe_left_out(names: Iterable[str]) -> str:
    """Summarize files in unsupported formats and folder links in one line.

    Names that end with a slash are links to folders, which are not followed.

    Examples
    --------
    >>> describe_left_out(["a.dng", "b.jxl", "c.DNG"])
    '3 images in unsupported formats left out (2 .dng, 1 .jxl)'
    >>> describe_left_out(["/photos/2020/"])
    '1 linked folder left out (/photos/2020); add it by its path'
    """
    left_out = list(names)
    links = [name.rstrip("/") for name in left_out if name.endswith("/")]
    counts = Counter(PurePath(name).suffix.lower() for name in left_out if not name.endswith("/"))
    parts = [_describe_formats(counts)] if counts else []
    return "; ".join(parts + ([_describe_links(links)] if links else []))


def _describe_formats(counts: Counter[str]) -> str:
    listed = ", ".join(f"{count} {suffix}" for suffix, count in counts.most_common())
    total = counts.total()
    what = (
        "1 image in an unsupported format"
        if total == 1
        else f"{total} images in unsupported formats"
    )
    return f"{what} left out ({listed}){install_hint(counts)}"


def _describe_links(links: Sequence[str]) -> str:
    first = links[0] if links[0].isprintable() else ascii(links[0])
    if len(links) == 1:
        return f"1 linked folder left out ({first}); add it by its path"
    return f"{len(links)} linked folders left out ({first}, ...); add them by their paths"


def install_hint(suffixes: Iterable[str]) -> str:
    """Return the end of a sentence: the package to install for these suffixes, if there is one.

    Examples
    --------
    >>> install_hint([".dng"])
    ''
    """
    readable = sorted(_HEIF & OTHER_SUFFIXES & set(suffixes))
    return f"; to read {' and '.join(readable)}: pip install pillow-heif" if readable else ""
