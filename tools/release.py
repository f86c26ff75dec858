"""Build a release of the last commit: `python tools/release.py FOLDER`.

It writes a wheel, a source archive and a bill of materials. Every build of a commit with the same
tools has the same bytes: the files come from git, and their times are that of the commit. To check
this, the command builds twice and compares the results.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import lock
import sbom
from packaging.utils import parse_sdist_filename

ROOT = Path(__file__).parents[1]


def build(folder: Path, seconds: int) -> None:
    """Build the wheel and the source archive of the last commit.

    Parameters
    ----------
    folder : Path
        Folder for the two files.
    seconds : int
        Time of all files in them, in seconds since 1970.
    """
    with tempfile.TemporaryDirectory() as tree:
        _run("git", "clone", "--quiet", str(ROOT), tree)
        command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), tree)
        _run(*command, SOURCE_DATE_EPOCH=str(seconds))
    (archive,) = folder.glob("*.tar.gz")
    archive.write_bytes(normalize(archive, seconds))


def normalize(archive: Path, seconds: int) -> bytes:
    """Return a source archive with sorted files, one time, and no owners.

    setuptools ignores SOURCE_DATE_EPOCH in source archives.
    """
    normalized = archive.with_suffix(".normalized")
    with (
        tarfile.open(archive) as given,
        normalized.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as written,
    ):
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            same = tarfile.TarInfo(member.name)
            same.type, same.size, same.mtime = member.type, member.size, seconds
            same.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            written.addfile(same, given.extractfile(member))
    content = normalized.read_bytes()
    normalized.unlink()
    return content


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 hashes of the files of a folder by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def main() -> None:
    """Build twice, compare, and write the files into the folder."""
    folder = Path(*sys.argv[1:])
    os.umask(0o022)  # the modes of the files are part of the archives
    seconds = int(_run("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        for each in (first, second):
            build(Path(each), seconds)
        if hashes(Path(first)) != hashes(Path(second)):
            raise SystemExit(f"two builds differ: {hashes(Path(first))}, {hashes(Path(second))}")
        folder.mkdir(parents=True, exist_ok=True)
        for path in Path(first).iterdir():
            shutil.copy(path, folder)
    (archive,) = folder.glob("*.tar.gz")
    version = str(parse_sdist_filename(archive.name)[1])
    bill = sbom.render(lock.read(lock.CORE), version, seconds)
    (folder / f"{sbom.NAME}-{version}.cdx.json").write_text(bill, "utf-8")
    for name, sha256 in hashes(folder).items():
        print(f"{sha256}  {name}")


def _run(*command: str, **variables: str) -> str:
    env = os.environ | variables
    return subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
