import numpy as np
import pytest
from PIL import Image

from bitprint.data import draw_shapes
from bitprint.photos import Photos, learning
from bitprint.photos.files import Picture
from bitprint.photos.kept import KeptFeatures, discard_kept

PICTURES = [Picture(f"/album/{name}.jpg", 10, 20) for name in ("a", "b\udcff", "c")]


def test_kept_features_match_file_and_digest(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    folder = tmp_path / "kept"
    assert KeptFeatures(folder, "gist").get(PICTURES[0]) is None
    assert not folder.exists()
    kept = KeptFeatures(folder, "gist")
    kept.keep(PICTURES[:2], vectors[:2])
    kept.keep(PICTURES[2:], vectors[2:])
    for opened in (kept, KeptFeatures(folder, "gist")):
        assert [opened.get(picture).tolist() for picture in PICTURES] == vectors.tolist()
        assert opened.get(PICTURES[0]._replace(modified=21)) is None
        assert opened.get(PICTURES[0]._replace(size=11)) is None
        assert opened.get(PICTURES[0]._replace(labels=("x",))).tolist() == [0, 1]
    other = KeptFeatures(folder, "pixels")
    assert other.get(PICTURES[0]) is None
    other.keep(PICTURES[:1], vectors[2:])
    assert KeptFeatures(folder, "pixels").get(PICTURES[0]).tolist() == [4, 5]
    assert KeptFeatures(folder, "gist").get(PICTURES[0]).tolist() == [0, 1]
    discard_kept(folder)
    assert not folder.exists()
    discard_kept(folder)


def test_discard_kept_leaves_other_files(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    others = ["mine.npz", "notes.txt", "000000.npz.old", "000001.npy", "sub/000002.npz"]
    for name in others:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    KeptFeatures(folder, "gist").keep(PICTURES, np.zeros((3, 2), np.float32))
    (folder / "000001.npz.partial").write_text("half of a file")
    assert KeptFeatures(folder, "gist").get(PICTURES[0]) is not None
    discard_kept(folder)
    left = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(others)


def test_index_add_leaves_a_folder_that_it_did_not_make(photos, album, tmp_path):
    folder = tmp_path / "photos.bp.features"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    photos.add(album)
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_kept_features_with_a_file_as_folder_raises(tmp_path, monkeypatch):
    def never(*arguments):
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr(learning, "compute_ahead", never)
    Image.fromarray(draw_shapes(1).pixels[0]).save(tmp_path / "a.png")
    (tmp_path / "photos.bp.features").write_text("mine")
    with pytest.raises(FileExistsError, match=r"photos\.bp\.features: is a file, but a folder"):
        Photos.learn(tmp_path / "photos.bp", tmp_path, bits=2, features="gist")
    assert (tmp_path / "photos.bp.features").read_text() == "mine"
    assert not (tmp_path / "photos.bp").exists()
    discard_kept(tmp_path / "photos.bp.features")
    assert (tmp_path / "photos.bp.features").exists()
