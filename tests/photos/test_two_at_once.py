"""Concurrent changes of one collection by another process."""

import pytest
from PIL import Image

from bitprint.photos import Photos, collection


@pytest.fixture
def photos(encoder, tmp_path, album):
    with Photos.create(tmp_path / "photos.bp", encoder) as photos:
        photos.add(album)
        yield photos


@pytest.fixture
def meanwhile(photos, monkeypatch):
    """Return a function that runs a task on a second connection after a given call."""

    def arrange(owner, name, task):
        original = getattr(owner, name)

        def interrupted(*arguments):
            result = original(*arguments)
            monkeypatch.setattr(owner, name, original)
            with Photos.open(photos.index.path) as other:
                task(other)
            return result

        monkeypatch.setattr(owner, name, interrupted)

    return arrange


def change(album):
    (album / "cats" / "01.png").rename(album / "dogs" / "tom.png")
    (album / "00.png").unlink()
    Image.new("RGB", (16, 16)).save(album / "new.png")


def names(photos):
    return sorted(path.rpartition("/")[2] for path in photos.index.ids())


def test_sync_after_a_concurrent_sync(photos, album, meanwhile):
    change(album)
    done = []
    meanwhile(collection, "find_moved", lambda other: done.append(other.sync()))
    synced = photos.sync()
    assert (done[0].new, len(done[0].moved), len(done[0].removed)) == (1, 1, 1)
    assert synced == (0, 12, [], [], [], [], 0)
    assert names(photos) == sorted(path.name for path in album.rglob("*.png"))


def test_sync_after_a_concurrent_remove(photos, album, meanwhile):
    change(album)
    meanwhile(
        collection, "find_moved", lambda other: other.remove([album / "cats", album / "00.png"])
    )
    synced = photos.sync()
    # Removed images whose files still exist are added again.
    assert (synced.new, synced.moved, synced.removed) == (5, [], [])
    assert names(photos) == sorted(path.name for path in album.rglob("*.png"))


def test_a_picture_that_came_back_is_not_removed(photos, album, meanwhile):
    kept = (album / "00.png").read_bytes()
    (album / "00.png").unlink()

    def restore(other):
        (album / "00.png").write_bytes(kept)
        other.sync()

    meanwhile(collection, "find_moved", restore)
    assert photos.sync().removed == []
    assert "00.png" in names(photos)


def test_an_unreadable_picture_may_be_removed_by_another(photos, album, meanwhile):
    (album / "00.png").write_bytes(b"")
    meanwhile(photos, "_encode", lambda other: other.remove([album / "00.png"]))
    added = photos.add(album)
    assert (added.new, len(added.skipped)) == (0, 1)
    assert "00.png" not in names(photos)
