import os

import numpy as np
import pytest
from PIL import Image

from bitprint.data import data_home, decoded, decoding
from bitprint.data.decoded import decode_files


@pytest.fixture
def folder(tmp_path):
    """Seven flat gray images; the third file is not an image."""
    root = tmp_path / "pictures"
    root.mkdir()
    for number in range(7):
        Image.new("L", (9, 7), 10 * number).save(root / f"{number}.png")
    (root / "2.png").write_bytes(b"nothing")
    return root, [f"{number}.png" for number in range(7)]


def check_decoded(pixels, rows, skipped):
    assert rows.tolist() == [0, 1, 3, 4, 5, 6]
    assert [name for name, _ in skipped] == ["2.png"]
    for row in rows:
        assert (pixels[row] == 10 * row).all()


def test_many_files_in_memory(folder, monkeypatch):
    monkeypatch.setattr(decoded, "_CHUNK", 3)
    seen = []
    pixels, rows, skipped = decode_files(*folder, 8, progress=lambda *now: seen.append(now))
    check_decoded(pixels, rows, skipped)
    assert seen == [(done, 7) for done in range(1, 8)]


def test_the_cache_is_used_again(folder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    pixels, rows, skipped = decode_files(*folder, 8, cache=cache)
    assert isinstance(pixels, np.memmap)
    check_decoded(pixels, rows, skipped)
    files = sorted(path.name for path in cache.iterdir())
    assert [name.rpartition(".")[2] for name in files] == ["json", "npy"]

    def fail(*_):
        raise AssertionError("decoded a second time")

    monkeypatch.setattr(decoding, "decode_image", fail)
    seen = []
    check_decoded(*decode_files(*folder, 8, cache=cache, progress=lambda *now: seen.append(now)))
    assert seen == [(7, 7)]


def test_names_that_are_no_text_are_cached(tmp_path):
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    names = [os.fsdecode(b"\xff.png"), "b.png"]
    Image.new("L", (9, 7), 50).save(root / names[0])
    for _ in range(2):
        pixels, rows, skipped = decode_files(root, names, 8, cache=tmp_path / "cache")
        assert (pixels[0] == 50).all()
        assert (rows.tolist(), skipped) == ([0], [("b.png", "no such file")])


def test_a_changed_file_is_decoded_again_and_the_old_cache_goes(folder, tmp_path):
    cache = tmp_path / "cache"
    decode_files(*folder, 8, cache=cache)
    decode_files(*folder, 16, cache=cache)
    Image.new("L", (10, 7), 255).save(folder[0] / "5.png")
    pixels, _, _ = decode_files(*folder, 8, cache=cache)
    assert (pixels[5] == 255).all()
    assert len(list(cache.glob("*-8-*.npy"))) == 1
    assert len(list(cache.glob("*-16-*.npy"))) == 1
    (folder[0] / "6.png").unlink()
    _, rows, skipped = decode_files(*folder, 8, cache=cache)
    assert rows.tolist() == [0, 1, 3, 4, 5]
    assert skipped[1] == ("6.png", "no such file")


def test_an_interrupted_decode_leaves_nothing(folder, tmp_path):
    cache = tmp_path / "cache"

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_files(*folder, 8, cache=cache, progress=interrupt)
    assert list(cache.iterdir()) == []


def test_a_damaged_cache_is_named(folder, tmp_path):
    cache = tmp_path / "cache"
    decode_files(*folder, 8, cache=cache)
    [file] = cache.glob("*.npy")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"damaged .*; delete this file"):
        decode_files(*folder, 8, cache=cache)


def test_too_little_space_raises_before_decoding(folder, tmp_path, monkeypatch):
    usage = decoded.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(decoded.shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(ValueError, match="choose another cache folder or a smaller size"):
        decode_files(*folder, 8, cache=tmp_path / "cache")


def test_large_sets_are_cached_in_the_data_home(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(decoded, "_IN_MEMORY", 7 * 8 * 8 * 3 - 1)
    pixels, rows, skipped = decode_files(*folder, 8)
    check_decoded(pixels, rows, skipped)
    assert len(list((data_home() / "decoded").glob("*.npy"))) == 1
