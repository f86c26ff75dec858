import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bitprint.photos.encoder import Encoder


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a CSV of album files with labels."""

    def write(**labels):
        path = tmp_path / "list.csv"
        rows = [f"album/{name},{label}\n" for name, label in labels.items()]
        path.write_text("file,label\n" + "".join(rows))
        return path

    return write


def labels(photos):
    """Return the labels of all labeled images by file name."""
    ids = photos.index.ids()
    items = zip(ids, photos.index.items(ids), strict=True)
    return {Path(id_).name: item.labels for id_, item in items if item.labels}


def never(self, pictures):
    raise AssertionError("a picture was encoded again")


def test_a_csv_that_has_changed_gives_other_labels(photos, album, table, monkeypatch):
    photos.add(table(**{"00.png": "cat", "03.png": "cat", "06.png": "cat"}))
    before = photos.index.codes(sorted(photos.index.ids()))
    monkeypatch.setattr(Encoder, "encode_squares", never)
    changed = table(**{"00.png": "dog", "03.png": "cat", "06.png": "dog|sofa"})
    assert photos.add(changed) == (0, 3, [], [], 2)
    assert labels(photos) == {"00.png": ("dog",), "03.png": ("cat",), "06.png": ("dog", "sofa")}
    assert photos.index.codes(sorted(photos.index.ids())) == before
    assert photos.add(changed) == (0, 3, [], [], 0)


def test_labels_that_come_after_the_pictures(photos, album, table, monkeypatch):
    photos.add(album / "cats")
    assert labels(photos) == {}
    assert photos.add(album) == (8, 4, [], [], 4)
    assert {labels(photos)[f"{number:02d}.png"] for number in (1, 4, 7, 10)} == {("cats",)}
    monkeypatch.setattr(Encoder, "encode_squares", never)
    assert photos.add(table(**{"00.png": "tom", "cats/01.png": "tom"})).relabelled == 2
    assert (labels(photos)["00.png"], labels(photos)["01.png"]) == (("tom",), ("tom",))


def test_a_source_without_labels_leaves_them(photos, album, table):
    photos.add(table(**{"00.png": "tom", "03.png": "tom"}))
    os.utime(album / "00.png", (2e9, 2e9))
    for source in (album, [album / "00.png"], table(**{"00.png": ""})):
        assert photos.add(source).relabelled == 0
        assert (labels(photos)["00.png"], labels(photos)["03.png"]) == (("tom",), ("tom",))


def test_the_latest_source_that_gives_labels_counts(photos, album, table):
    photos.add(album, table(**{"cats/01.png": "tom"}))
    assert labels(photos)["01.png"] == ("tom",)
    assert photos.add(album).relabelled == 1
    assert labels(photos)["01.png"] == ("cats",)


def test_sync_keeps_labels_that_came_from_no_folder(photos, album, table):
    named = ["00.png", "03.png", "cats/01.png", "cats/04.png", "cats/07.png"]
    photos.add(album, table(**dict.fromkeys(named, "tom")))
    os.utime(album / "00.png", (2e9, 2e9))
    (album / "03.png").rename(album / "three.png")
    os.utime(album / "cats" / "01.png", (2e9, 2e9))
    (album / "cats" / "04.png").rename(album / "cats" / "four.png")
    (album / "cats" / "07.png").rename(album / "dogs" / "seven.png")
    synced = photos.sync()
    assert (synced.new, len(synced.moved), synced.relabelled) == (2, 3, 0)
    tom = ["00.png", "01.png", "four.png", "seven.png", "three.png"]
    assert sorted(name for name, some in labels(photos).items() if some == ("tom",)) == tom
    assert photos.sync() == (0, 12, [], [], [], [], 0)


def test_labels_of_a_folder_change_with_it(photos, album):
    photos.add(album)
    (album / "cats" / "01.png").rename(album / "one.png")
    (album / "00.png").rename(album / "cats" / "zero.png")
    (album / "dogs" / "02.png").rename(album / "cats" / "two.png")
    photos.sync()
    moved = [labels(photos).get(f"{name}.png") for name in ("one", "zero", "two")]
    assert moved == [None, ("cats",), ("cats",)]
    (album / "cats").rename(album / "tigers")
    photos.sync(album)
    assert photos.index.labels() == ["dogs", "tigers"]


def test_a_folder_around_what_is_held_gives_its_labels_with_sync(photos, album):
    photos.add(album / "cats")
    synced = photos.sync(album)
    assert (synced.new, synced.unchanged, synced.relabelled) == (8, 4, 4)
    assert labels(photos)["01.png"] == ("cats",)


def renew(old, new):
    """Rename a file by copying it, which changes its modification time."""
    new.write_bytes(old.read_bytes())
    old.unlink()


def test_labels_follow_a_file_that_was_renamed_with_a_new_date(photos, album, table):
    photos.add(album, table(**{"00.png": "tom", "cats/01.png": "tom"}))
    renew(album / "00.png", album / "zero.png")
    renew(album / "cats" / "01.png", album / "dogs" / "one.png")
    renew(album / "cats" / "04.png", album / "dogs" / "four.png")
    synced = photos.sync()
    assert (synced.new, synced.unchanged, len(synced.moved), synced.removed) == (3, 9, 3, [])
    given = labels(photos)
    assert [given[f"{name}.png"] for name in ("zero", "one", "four")] == [
        ("tom",),
        ("tom",),
        ("dogs",),
    ]
    assert photos.sync() == (0, 12, [], [], [], [], 0)


@pytest.mark.parametrize("folder", ["held", "new"])
def test_labels_of_one_of_several_copies_with_a_new_date_are_not_guessed(
    photos, album, table, folder
):
    if folder == "held":
        (album / "copy.png").write_bytes((album / "00.png").read_bytes())
    photos.add(album, table(**{"00.png": "tom"}))
    if folder == "new":
        (album / "copy.png").write_bytes((album / "00.png").read_bytes())
    renew(album / "00.png", album / "zero.png")
    synced = photos.sync()
    assert (synced.moved, len(synced.removed)) == ([], 1)
    assert "tom" not in photos.index.labels()


def test_a_file_that_changed_beyond_its_beginning_is_encoded_again(photos, tmp_path):
    pixels = np.zeros((256, 256, 3), np.uint8)
    folder = tmp_path / "bitmaps"
    folder.mkdir()
    Image.fromarray(pixels).save(folder / "a.bmp")
    photos.add(folder)
    before = photos.index.codes(photos.index.ids())
    pixels[:100, :128] = 255  # BMP stores the bottom row first
    Image.fromarray(pixels).save(folder / "b.bmp")
    os.utime(folder / "b.bmp", (2e9, 2e9))
    (folder / "a.bmp").unlink()
    synced = photos.sync()
    assert (len(synced.moved), synced.new) == (1, 1)
    assert photos.index.codes(photos.index.ids()) != before


def test_a_renamed_file_that_cannot_be_read_does_not_stop_the_others(photos, album, monkeypatch):
    photos.add(album)
    (album / "00.png").rename(album / "closed.png")
    (album / "03.png").rename(album / "three.png")
    original = Path.open

    def closed(self, *arguments, **options):
        if self.name == "closed.png":
            raise PermissionError(13, "Permission denied", str(self))
        return original(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", closed)
    synced = photos.sync()
    assert [Path(new).name for _, new in synced.moved] == ["three.png"]
    assert [(Path(path).name, reason) for path, reason in synced.skipped] == [
        ("closed.png", "Permission denied")
    ]
    assert len(photos.index) == 11
