"""Formats of picture files: those that are read here, and those that are known and left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import PurePath

from PIL import features

PLAIN = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats whose files decode to the size that they announce; a stranger's are read too."""

_READS_AVIF = "avif" in features.modules and features.check_module("avif")
_READS_HEIF = find_spec("pillow_heif") is not None
if _READS_HEIF:
    import pillow_heif

    # Files are decoded side by side already. A thumbnail inside may show anything else.
    pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False)

FORMATS = PLAIN + ("AVIF",) * _READS_AVIF + ("HEIF",) * _READS_HEIF
"""Formats that are read here, by Pillow's names."""

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
"""How the names of files end that are read, in small letters."""

OTHER_SUFFIXES = (
    _AVIF | _HEIF | _RAW | {".exr", ".j2k", ".jp2", ".jxl", ".psd", ".svg", ".xcf"}
) - SUFFIXES
"""How the names of pictures end that are not read."""


def say_left_out(names: Iterable[str]) -> str:
    """Say in one line how many pictures of formats that are not read there are.

    Names that end with a slash are those of links to folders, which are not followed.

    Examples
    --------
    >>> say_left_out(["a.dng", "b.jxl", "c.DNG"])
    '3 pictures of other formats left out (2 .dng, 1 .jxl)'
    >>> say_left_out(["/photos/2020/"])
    '1 linked folder left out (/photos/2020), which can be added by its name'
    """
    left_out = list(names)
    links = [name.rstrip("/") for name in left_out if name.endswith("/")]
    counts = Counter(PurePath(name).suffix.lower() for name in left_out if not name.endswith("/"))
    said = [_say_formats(counts)] if counts else []
    return "; ".join(said + ([_say_links(links)] if links else []))


def _say_formats(counts: Counter[str]) -> str:
    listed = ", ".join(f"{count} {suffix}" for suffix, count in counts.most_common())
    total = counts.total()
    what = "1 picture of another format" if total == 1 else f"{total} pictures of other formats"
    return f"{what} left out ({listed}){advice(counts)}"


def _say_links(links: Sequence[str]) -> str:
    first = links[0] if links[0].isprintable() else ascii(links[0])
    if len(links) == 1:
        return f"1 linked folder left out ({first}), which can be added by its name"
    return f"{len(links)} linked folders left out ({first}, ...), which can be added by their names"


def advice(suffixes: Iterable[str]) -> str:
    """Say how files with these suffixes can be read after all, as the end of a sentence.

    Examples
    --------
    >>> advice([".dng"])
    ''
    """
    readable = sorted(_HEIF & OTHER_SUFFIXES & set(suffixes))
    return f"; to read {' and '.join(readable)}: pip install pillow-heif" if readable else ""
