import os

import numpy as np
import pytest
from PIL import Image

from bitprint.data.nuswide import frequent_concepts, load_nuswide, read_nuswide_labels

CONCEPTS = {"sky": [1, 1, 1, 0, 0, 1], "cat": [0, 0, 1, 1, 0, 0], "road": [0, 0, 0, 0, 1, 0]}


@pytest.fixture
def layout(tmp_path):
    """Six images and three concepts in the official layout."""
    (tmp_path / "ImageList").mkdir()
    names = [f"actor\\000{row}_{row}9.jpg" for row in range(6)]
    (tmp_path / "ImageList" / "Imagelist.txt").write_text("\r\n".join(names) + "\r\n")
    labels = tmp_path / "Groundtruth" / "AllLabels"
    labels.mkdir(parents=True)
    for concept, column in CONCEPTS.items():
        (labels / f"Labels_{concept}.txt").write_text("".join(f"{flag}\n" for flag in column))
    for row in range(6):
        file = tmp_path / "Flickr" / "actor" / f"000{row}_{row}9.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 40 * row).save(file, quality=100)
    return tmp_path


def test_labels(layout):
    names, matrix, paths = read_nuswide_labels(layout)
    assert names == ["cat", "road", "sky"]
    assert matrix.T.tolist() == [CONCEPTS[name] for name in names]
    assert paths[3] == "actor/0003_39.jpg"


def check_images(images, rows):
    assert images.name == images.protocol == "nuswide"
    assert images.label_names == ["sky", "cat"]
    assert images.ids.tolist() == [f"actor/000{row}_{row}9.jpg" for row in rows]
    expected = [[CONCEPTS["sky"][row], CONCEPTS["cat"][row]] for row in rows]
    assert images.labels.tolist() == expected
    shades = images.read(slice(None))[:, 0, 0, 0].astype(int)
    assert abs(shades - 40 * np.array(rows)).max() <= 1


def test_images_of_the_frequent_concepts(layout):
    check_images(load_nuswide(layout, size=8, concepts=2), [0, 1, 2, 3, 5])


def test_images_in_one_folder(layout):
    (layout / "Flickr" / "actor").rename(layout / "images")
    (layout / "Flickr").rmdir()
    check_images(load_nuswide(layout, size=8, concepts=2), [0, 1, 2, 3, 5])


def test_missing_and_broken_images_are_listed(layout):
    (layout / "Flickr" / "actor" / "0001_19.jpg").unlink()
    (layout / "Flickr" / "actor" / "0003_39.jpg").write_bytes(b"gone")
    images = load_nuswide(layout, size=8, concepts=2, cache=layout / "cache")
    check_images(images, [0, 2, 5])
    skipped = [name for name, _ in images.skipped]
    assert skipped == ["Flickr/actor/0001_19.jpg", "Flickr/actor/0003_39.jpg"]


def test_what_is_missing_is_named(layout):
    (layout / "Flickr").rename(layout / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"expected in .*Flickr or .*images"):
        load_nuswide(layout, size=8, concepts=2)
    (layout / "Flickr").mkdir()
    with pytest.raises(ValueError, match="none of the 5 images can be read"):
        load_nuswide(layout, size=8, concepts=2)
    (layout / "Groundtruth").rename(layout / "Truth")
    with pytest.raises(FileNotFoundError, match=r"AllLabels: the label files .* are missing"):
        load_nuswide(layout)
    (layout / "ImageList" / "Imagelist.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"Imagelist\.txt: the image list"):
        load_nuswide(layout)


@pytest.mark.parametrize("content", ["1\n0\n", "1\n0\n1\n2\n0\n0\n", "1\n" * 7])
def test_label_files_must_fit_the_list(layout, content):
    (layout / "Groundtruth" / "AllLabels" / "Labels_sky.txt").write_text(content)
    with pytest.raises(ValueError, match=r"Labels_sky\.txt: expected a 0 or 1 for each of the 6"):
        read_nuswide_labels(layout)


def test_equally_frequent_concepts_go_by_name():
    matrix = np.array([[1, 0, 1], [0, 1, 1]], np.uint8)
    columns, rows = frequent_concepts(matrix, ["b", "a", "c"], 2)
    assert columns.tolist() == [2, 1]
    assert rows.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"concepts must be in 1\.\.3, got 4"):
        frequent_concepts(matrix, ["b", "a", "c"], 4)


def test_the_real_labels():
    path = os.environ.get("BITPRINT_NUSWIDE_LABELS")
    if not path:
        pytest.skip("BITPRINT_NUSWIDE_LABELS names no .npz of NUS-WIDE's labels")
    with np.load(path) as real:
        names = real["names81"].tolist()
        columns, rows = frequent_concepts(real["Y81"], names)
        assert [names[column] for column in columns] == real["names21"].tolist()
        assert np.array_equal(rows, real["nuswide21_rows"])
        assert np.array_equal(real["Y81"][:, columns], real["Y21"])
    assert len(rows) == 195_834
