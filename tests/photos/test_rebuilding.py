"""Encode a collection again with another model."""

import shutil

import numpy as np
import pytest
from PIL import Image

import bitprint as bp
from bitprint.data import draw_shapes
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.photos.rebuilding import rebuild

SCENES = draw_shapes(40, size=16)


@pytest.fixture
def collection(album, photos):
    """Return the path of a closed collection with labels, folders and a user's attachment."""
    photos.add(album)
    photos.index.attach({"note/owner": b"Ada"})
    photos.close()
    return photos.index.path


@pytest.fixture
def longer():
    return bp.create("itq", bits=64).fit(SCENES)


def contents(path):
    with Photos.open(path) as photos:
        ids = photos.index.ids().tolist()
        items = {name: photos.index.items([name])[0] for name in ids}
        return items, photos.roots, photos.index.attachments("note/"), photos.encoder.describe()


def test_rebuild_keeps_everything_but_the_model(collection, longer, album):
    items, roots, notes, _ = contents(collection)
    added = rebuild(collection, model=longer)
    assert (added.new, added.skipped) == (12, [])
    found = contents(collection)
    assert found[:3] == (items, roots, notes)
    assert found[3] == "ITQ, 64 bits, on pixels features"
    with Photos.open(collection) as photos:
        path = album / "cats" / "01.png"
        assert photos.index.codes([path.as_posix()]) == Encoder(longer).encode(
            [np.asarray(Image.open(path))]
        )
        assert photos.sync().unchanged == 12
    assert [file.name for file in collection.parent.glob("photos.bp*")] == ["photos.bp"]


def test_missing_files_stop_a_rebuild_before_it_begins(collection, longer, album):
    before = collection.read_bytes()
    shutil.rmtree(album / "dogs")
    with pytest.raises(FileNotFoundError, match=r"4 images cannot be read; the first, .*dogs"):
        rebuild(collection, model=longer)
    assert collection.read_bytes() == before


def test_an_interrupted_rebuild_is_resumed(collection, longer):
    with pytest.raises(KeyboardInterrupt):
        rebuild(collection, model=longer, progress=_interrupt)
    assert contents(collection)[3] == "ITQ, 32 bits, on pixels features"
    rebuild(collection, model=longer)
    assert contents(collection)[3] == "ITQ, 64 bits, on pixels features"


def test_an_open_collection_is_not_replaced(collection, longer):
    with Photos.open(collection) as photos:
        with pytest.raises(ValueError, match="another process, such as a server, has this"):
            rebuild(collection, model=longer)
        assert len(photos) == 12
    assert rebuild(collection, model=longer).new == 0  # the codes are stored already
    assert contents(collection)[3] == "ITQ, 64 bits, on pixels features"


def test_a_change_meanwhile_is_reported(collection, longer, album):
    def remove_one(done, total):
        if done == total:
            with Photos.open(collection) as photos:
                photos.remove([album / "dogs"])

    with pytest.raises(ValueError, match="changed the collection in the meantime"):
        rebuild(collection, model=longer, progress=remove_one)
    rebuild(collection, model=longer)
    items, *_ = contents(collection)
    assert len(items) == 8  # the removed images do not come back
    assert not any("/dogs/" in name for name in items)


def test_a_draft_whose_log_is_not_merged_does_not_replace_the_collection(collection, longer):
    before = contents(collection)
    with pytest.raises(KeyboardInterrupt):
        rebuild(collection, model=longer, progress=_interrupt)
    with (
        Photos.open(collection.with_name("photos.bp.rebuilt")),
        pytest.raises(OSError, match=r"photos\.bp\.rebuilt: could not be completed"),
    ):
        rebuild(collection, model=longer)
    assert contents(collection) == before
    rebuild(collection, model=longer)
    assert contents(collection)[3] == "ITQ, 64 bits, on pixels features"


def _interrupt(done, total):
    raise KeyboardInterrupt


def test_an_address_is_refused(longer):
    with pytest.raises(ValueError, match="only collections in files can be rebuilt"):
        rebuild("postgresql://localhost/photos", model=longer)
