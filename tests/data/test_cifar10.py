import hashlib
import os

import numpy as np
import pytest

from bitprint.data import cifar10
from bitprint.data.cifar10 import FILES, load_cifar10

IMAGES = 20


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Six files of 20 images each, whose MD5s replace the official ones."""
    rng = np.random.default_rng(0)
    content = {}
    for name in FILES:
        rows = rng.integers(0, 256, (IMAGES, 3073), np.uint8)
        rows[:, 0] = np.arange(IMAGES) % 10
        content[name] = rows
        (tmp_path / name).write_bytes(rows.tobytes())
    sums = {name: hashlib.md5(rows.tobytes()).hexdigest() for name, rows in content.items()}
    monkeypatch.setattr(cifar10, "FILES", sums)
    return tmp_path, content


def test_planes_become_pixels(small):
    root, content = small
    seen = []
    images = load_cifar10(root, progress=lambda *now: seen.append(now))
    assert images.pixels.shape == (6 * IMAGES, 32, 32, 3)
    assert images.name == images.protocol == "cifar10"
    assert images.label_names[9] == "truck"
    assert images.ids[IMAGES + 1] == "data_batch_2/1"
    assert images.ids[-1] == f"test_batch/{IMAGES - 1}"
    rows = np.concatenate(list(content.values()))
    assert np.array_equal(images.labels, rows[:, 0])
    rng = np.random.default_rng(1)
    for _ in range(200):
        row, y, x, channel = rng.integers(0, (6 * IMAGES, 32, 32, 3))
        assert images.pixels[row, y, x, channel] == rows[row, 1 + 1024 * channel + 32 * y + x]
    assert seen == [(done, 6) for done in range(1, 7)]


def test_one_changed_byte_is_noticed(small):
    root, content = small
    damaged = content["data_batch_3.bin"].copy()
    damaged[7, 100] ^= 1
    (root / "data_batch_3.bin").write_bytes(damaged.tobytes())
    with pytest.raises(ValueError, match=r"data_batch_3\.bin: not the official file"):
        load_cifar10(root)


def test_a_missing_file_is_named(small):
    root, _ = small
    (root / "test_batch.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"test_batch\.bin: no such file; run: bitprint"):
        load_cifar10(root)


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "cifar10")):
        load_cifar10()


def test_the_real_set():
    root = os.environ.get("BITPRINT_CIFAR10")
    if not root:
        pytest.skip("BITPRINT_CIFAR10 names no folder with the official .bin files")
    images = load_cifar10(root)
    assert images.pixels.shape == (60_000, 32, 32, 3)
    assert np.bincount(images.labels).tolist() == [6_000] * 10
    training = images.pixels[:50_000]
    mean = [training[..., channel].mean() / 255 for channel in range(3)]
    assert np.round(mean, 4).tolist() == [0.4914, 0.4822, 0.4465]
