import numpy as np

from bitprint.photos.files import Picture
from bitprint.photos.kept import KeptFeatures, discard_kept

PICTURES = [Picture(f"/album/{name}.jpg", 10, 20) for name in ("a", "b\udcff", "c")]


def test_features_come_back_for_the_same_file_and_kind_alone(tmp_path):
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
