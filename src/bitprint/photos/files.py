"""List the image files of a folder, a CSV or a list of names, with sizes and dates."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bitprint.data.formats import OTHER_SUFFIXES, SUFFIXES
from bitprint.data.label_csv import read_label_csv

_DIGESTED = 64 * 1024

Source = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Skipped = list[tuple[str, str]]


class Picture(NamedTuple):
    """An image file at the time of listing."""

    path: str
    """Absolute path with forward slashes."""
    size: int
    """Size in bytes."""
    modified: int
    """Modification time in nanoseconds."""
    labels: tuple[str, ...] = ()


class Listing(NamedTuple):
    """The images of a source.

    Examples
    --------
    >>> listing = list_pictures(["/no/such/tom.jpg"])
    >>> listing.skipped
    [('/no/such/tom.jpg', 'no such file')]
    """

    pictures: list[Picture]
    """Image files, sorted by path, without duplicates."""
    skipped: Skipped
    """Path and reason of each file that cannot be read."""
    folders: list[str]
    """The folders that were searched; empty if files were given individually."""
    parents: list[str]
    """The folders of the files that were given individually."""
    left_out: list[str]
    """Paths of images in unsupported formats, and of linked folders (with a final slash)."""


def list_pictures(source: Source, known: Iterable[str] = ()) -> Listing:
    """List the images of a folder, a CSV, a single file or a list of files.

    Parameters
    ----------
    source : path, or iterable of paths
        A folder: all images in it and its sub-folders except hidden ones; the label of an image is
        the first-level sub-folder it is in. A CSV: the files in its column `file`, relative to the
        CSV, with their labels, see `bitprint.data.label_csv.read_label_csv`. An iterable: these
        files. `~` at the beginning of a path is the home folder.
    known : iterable of str
        Folders that were listed before. The labels of images in a sub-folder of one of them are
        relative to the outermost of these folders. Links to their sub-folders are not reported in
        `left_out`.

    Returns
    -------
    Listing

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "cats").mkdir()
    ...     _ = (Path(folder) / "cats" / "tom.jpg").write_bytes(b"...")
    ...     [(Path(p.path).name, p.size, p.labels) for p in list_pictures(folder).pictures]
    [('tom.jpg', 3, ('cats',))]
    """
    if not isinstance(source, str | os.PathLike):
        return _list_named((named(name), ()) for name in source)
    path = named(source)
    if path.is_dir():
        folder = path.resolve()
        listed = [Path(root) for root in known]
        above = [root for root in listed if folder.is_relative_to(root)]
        return list_folder(folder, min(above, default=folder), listed)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such folder or file")
    if path.suffix.lower() == ".csv":
        files = read_label_csv(path, path.parent).files
        return _list_named((path.parent / name, row.labels) for name, row in files.items())
    return _list_named([(path, ())])


def list_folder(top: Path, root: Path, known: Iterable[Path] = ()) -> Listing:
    """List a folder without resolving its path; labels are relative to `root`.

    Links to folders are not followed. They are reported in `left_out`, unless they lead to a folder
    below `top` or below a known folder, whose images are listed anyway.
    """
    listed = [top.resolve(), *known]
    pictures: list[Picture] = []
    skipped: Skipped = []
    left_out: list[str] = []

    def unreadable(error: OSError) -> None:
        skipped.append((str(error.filename), str(error.strerror)))

    for folder, below, names in os.walk(top, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(".")]
        inside = Path(folder).relative_to(root).parts
        left_out += [f"{link.as_posix()}/" for link in _links(Path(folder), below, listed)]
        for name in names:
            path = Path(folder) / name
            suffix = path.suffix.lower()
            if name.startswith("."):
                continue
            if suffix in SUFFIXES:
                _stat(path, inside[:1], pictures, skipped)
            elif suffix in OTHER_SUFFIXES:
                left_out.append(path.as_posix())
    return Listing(sorted(pictures), sorted(skipped), [top.as_posix()], [], sorted(left_out))


def _links(folder: Path, names: Iterable[str], listed: Sequence[Path]) -> list[Path]:
    """Return the sub-folders that are links to places outside the listed folders."""
    links = [folder / name for name in names if (folder / name).is_symlink()]
    return [
        link for link in links if not any(link.resolve().is_relative_to(place) for place in listed)
    ]


def list_stored(paths: Iterable[str]) -> Listing:
    """List files by their stored paths, which may contain links by now."""
    pictures: list[Picture] = []
    skipped: Skipped = []
    for path in paths:
        _stat(Path(path), (), pictures, skipped)
    return Listing(sorted(pictures), skipped, [], [], [])


def content_digest(path: str) -> str:
    """Return the SHA-256 of the size and the first 64 KiB of a file."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return hashlib.sha256(b"%d " % size + file.read(_DIGESTED)).hexdigest()


def named(name: str | os.PathLike[str]) -> Path:
    """Return the path of a name with `~` expanded; raise ValueError if the name is empty.

    Examples
    --------
    >>> named("~/Pictures") == Path.home() / "Pictures"
    True
    >>> named("")
    Traceback (most recent call last):
    ValueError: a file or folder name is empty; use . for the current folder
    """
    if not os.fspath(name):  # Path("") is the working directory
        raise ValueError("a file or folder name is empty; use . for the current folder")
    return expanded(name)


def expanded(name: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded, unless a file with this literal name exists.

    Examples
    --------
    >>> expanded("~no-such-user.jpg").name
    '~no-such-user.jpg'
    """
    text = os.fspath(name)
    if text.startswith("~") and not os.path.lexists(text):
        return Path(os.path.expanduser(text))  # noqa: PTH111 (Path's raises for unknown users)
    return Path(text)


def absolute(path: Path) -> Path:
    """Return the absolute path; links to folders are resolved, a link to a file is kept."""
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def is_below(path: str, place: str) -> bool:
    """Return whether a path equals `place` or is below it.

    Examples
    --------
    >>> is_below("/photos/a.jpg", "/photos"), is_below("/photos2/a.jpg", "/photos")
    (True, False)
    """
    return path == place or path.startswith(place.rstrip("/") + "/")


def is_gone(path: str) -> bool:
    """Return whether a file no longer exists; an inaccessible file is not gone."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _list_named(names: Iterable[tuple[str | os.PathLike[str], tuple[str, ...]]]) -> Listing:
    pictures: list[Picture] = []
    skipped: Skipped = []
    for name, labels in names:
        path = Path(name)
        if "\0" in str(path):
            skipped.append((str(path), "no such file"))
            continue
        try:
            path = absolute(path)
        except OSError as error:  # such as a name that is too long
            skipped.append((str(path), str(error.strerror)))
        else:
            _stat(path, labels, pictures, skipped)
    once: dict[str, Picture] = {}
    for picture in pictures:  # several names may refer to one file
        before = once.get(picture.path, picture)
        united = dict.fromkeys(before.labels + picture.labels)
        once[picture.path] = picture._replace(labels=tuple(united))
    parents = {Path(path).parent.as_posix() for path in once}
    return Listing(sorted(once.values()), skipped, [], sorted(parents), [])


def _stat(path: Path, labels: tuple[str, ...], pictures: list[Picture], skipped: Skipped) -> None:
    """Append a file to the images or, with a reason, to the skipped files."""
    name = path.as_posix()
    try:
        facts = path.stat()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        skipped.append((name, "no such file" if missing else str(error.strerror)))
        return
    if stat.S_ISREG(facts.st_mode):
        pictures.append(Picture(name, facts.st_size, facts.st_mtime_ns, labels))
    else:
        skipped.append((name, "not a file"))
