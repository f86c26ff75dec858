import os
from pathlib import Path

import pytest

from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder


@pytest.fixture
def photos(encoder, tmp_path):
    with Photos.create(tmp_path / "photos.bp", encoder) as photos:
        yield photos


@pytest.fixture
def table(tmp_path):
    """A function that writes a CSV: names of files in the album with their labels."""

    def write(**labels):
        path = tmp_path / "list.csv"
        rows = [f"album/{name},{label}\n" for name, label in labels.items()]
        path.write_text("file,label\n" + "".join(rows))
        return path

    return write


def labels(photos):
    """The labels of every picture that has some, by the name of its file."""
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
    os.utime(album / "00.png", (1e9, 1e9))
    for source in (album, [album / "00.png"], table(**{"00.png": ""})):
        assert photos.add(source).relabelled == 0
        assert (labels(photos)["00.png"], labels(photos)["03.png"]) == (("tom",), ("tom",))


def test_the_latest_source_that_gives_labels_counts(photos, album, table):
    photos.add(album, table(**{"cats/01.png": "tom"}))
    assert labels(photos)["01.png"] == ("tom",)
    assert photos.add(album).relabelled == 1
    assert labels(photos)["01.png"] == ("cats",)
