"""Picture files: a folder, a CSV or a list of names, as paths with their sizes and dates."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bitprint.data.formats import OTHER_SUFFIXES, SUFFIXES
from bitprint.data.label_csv import read_label_csv
from bitprint.data.names import printable as printable

_DIGESTED = 64 * 1024

Source = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Skipped = list[tuple[str, str]]


class Picture(NamedTuple):
    """A picture file as it was when it was listed."""

    path: str
    """Absolute, with forward slashes."""
    size: int
    """In bytes."""
    modified: int
    """In nanoseconds."""
    labels: tuple[str, ...] = ()


class Listing(NamedTuple):
    """The pictures of a source.

    Examples
    --------
    >>> listing = list_pictures(["/no/such/tom.jpg"])
    >>> listing.skipped
    [('/no/such/tom.jpg', 'no such file')]
    """

    pictures: list[Picture]
    """Ordered by path, each once."""
    skipped: Skipped
    """What cannot be read, each with the reason."""
    folders: list[str]
    """The folders that were searched through; none where files were named one by one."""
    parents: list[str]
    """The folders in which files that were named one by one lie."""
    left_out: list[str]
    """Paths of the pictures in folders whose formats are not read, and of links to folders, which
    end with a slash."""


def list_pictures(source: Source, known: Iterable[str] = ()) -> Listing:
    """List the pictures of a folder, a CSV, a single file, or of names.

    Parameters
    ----------
    source : path, or iterable of paths
        A folder: every picture in it and below it, hidden ones left out; the first-level
        sub-folder that a picture lies in is its label. A CSV: the files in its column `file`,
        relative to the CSV, with their labels, see `bitprint.data.label_csv.read_label_csv`.
        Names: those files. A name that begins with `~` is below the home folder.
    known : iterable of str
        Folders that were listed before. In a folder below one of them pictures have the labels
        that they have there, and a link to one below them leaves nothing out.

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
    """List a folder under the name that it is given by; labels are as seen from a root above.

    Links to folders are not followed, and are left out unless they lead to where pictures are
    listed anyway, below the folder or one that is known.
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
                _look_at(path, inside[:1], pictures, skipped)
            elif suffix in OTHER_SUFFIXES:
                left_out.append(path.as_posix())
    return Listing(sorted(pictures), sorted(skipped), [top.as_posix()], [], sorted(left_out))


def _links(folder: Path, names: Iterable[str], listed: Sequence[Path]) -> list[Path]:
    """Return the links among the sub-folders of a folder which lead out of all that is listed."""
    links = [folder / name for name in names if (folder / name).is_symlink()]
    return [
        link for link in links if not any(link.resolve().is_relative_to(place) for place in listed)
    ]


def look_again(paths: Iterable[str]) -> Listing:
    """List files by the paths they are held under, which may lead through links by now."""
    pictures: list[Picture] = []
    skipped: Skipped = []
    for path in paths:
        _look_at(Path(path), (), pictures, skipped)
    return Listing(sorted(pictures), skipped, [], [], [])


def content_digest(path: str) -> str:
    """SHA-256 of a file's size and its first 64 KiB: tells pictures apart without reading all."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return hashlib.sha256(b"%d " % size + file.read(_DIGESTED)).hexdigest()


def named(name: str | os.PathLike[str]) -> Path:
    """Return the path of a name, with `~` expanded; an empty name raises a ValueError.

    Examples
    --------
    >>> named("~/Pictures") == Path.home() / "Pictures"
    True
    >>> named("")
    Traceback (most recent call last):
    ValueError: the name of a folder or file is empty; write . for the folder that you are in
    """
    if not os.fspath(name):  # which a Path would take for the working directory
        raise ValueError(
            "the name of a folder or file is empty; write . for the folder that you are in"
        )
    return expanded(name)


def expanded(name: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded, unless there is a file whose own name begins with it.

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
    """Return a path from the root on: folders resolved, a file that is a link by its own name."""
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def is_below(path: str, place: str) -> bool:
    """Whether a path is a place or lies below it.

    Examples
    --------
    >>> is_below("/photos/a.jpg", "/photos"), is_below("/photos2/a.jpg", "/photos")
    (True, False)
    """
    return path == place or path.startswith(place.rstrip("/") + "/")


def is_gone(path: str) -> bool:
    """Whether there is no such file any more; one that may not be looked at is still there."""
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
        except OSError as error:  # too long a name for any file
            skipped.append((str(path), str(error.strerror)))
        else:
            _look_at(path, labels, pictures, skipped)
    once: dict[str, Picture] = {}
    for picture in pictures:  # a file may be named in several ways
        before = once.get(picture.path, picture)
        united = dict.fromkeys(before.labels + picture.labels)
        once[picture.path] = picture._replace(labels=tuple(united))
    parents = {Path(path).parent.as_posix() for path in once}
    return Listing(sorted(once.values()), skipped, [], sorted(parents), [])


def _look_at(
    path: Path, labels: tuple[str, ...], pictures: list[Picture], skipped: Skipped
) -> None:
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
