"""Read the package index that pip uses: the files of a package, their hashes and metadata."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urldefrag, urljoin
from urllib.request import urlopen

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip._internal.commands import create_command


class File(NamedTuple):
    """A wheel or a source archive of the index."""

    name: str
    version: Version
    url: str
    sha256: str
    requires_python: str
    yanked: bool


class _Page(HTMLParser):
    """The files of a page of the index (PEP 503)."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        url, fragment = urldefrag(urljoin(self.url, given.get("href") or ""))
        name = unquote(url.rpartition("/")[2])
        version = version_of(name)
        if tag == "a" and version is not None:
            if not fragment.startswith("sha256="):
                raise ValueError(f"{url}: the index has no SHA-256 hash of this file")
            sha256 = fragment.removeprefix("sha256=")
            python = given.get("data-requires-python") or ""
            self.files.append(File(name, version, url, sha256, python, "data-yanked" in given))


@cache
def files(package: str) -> tuple[File, ...]:
    """Return the wheels and source archives of all versions of a package."""
    url = f"{_index().rstrip('/')}/{package}/"
    page = _Page(url)
    page.feed(_read(url).decode())
    return tuple(page.files)


@cache
def requires(url: str) -> tuple[Requirement, ...]:
    """Return the requirements of a wheel, from the metadata file beside it (PEP 658) if any."""
    try:
        metadata = _read(f"{url}.metadata")
    except HTTPError:
        with zipfile.ZipFile(io.BytesIO(_read(url))) as wheel:
            (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
            metadata = wheel.read(name)
    return tuple(Metadata.from_email(metadata, validate=False).requires_dist or ())


def version_of(name: str) -> Version | None:
    """Return the version in the name of a wheel or a source archive; None for other files.

    Examples
    --------
    >>> version_of("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl")
    <Version('2.13.0+cpu')>
    """
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[1]
        return parse_sdist_filename(name)[1]
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None


def _index() -> str:
    """Return the address of the index: pip's --index-url by its configuration and environment."""
    options, _ = create_command("download").parse_args([])
    return str(options.index_url)


def _read(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        return bytes(answer.read())
