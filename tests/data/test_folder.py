import numpy as np
import pytest
from PIL import Image

from bitprint.data.folder import load_folder


def paint(path, shade=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (12, 10), shade).save(path)


@pytest.fixture
def classes(tmp_path):
    root = tmp_path / "pets"
    for shade, name in enumerate(["cat/b.png", "cat/deep/a.PNG", "dog/x.png", "dog/y.jpg"]):
        paint(root / name, shade)
    return root


def test_subfolders_are_classes(classes):
    images = load_folder(classes, size=8)
    assert images.ids.tolist() == ["cat/b.png", "cat/deep/a.PNG", "dog/x.png", "dog/y.jpg"]
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert images.label_names == ["cat", "dog"]
    assert images.name == "pets"
    assert images.size == (8, 8)
    assert images.read(slice(None))[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_other_and_hidden_files_do_not_count(classes):
    (classes / "dog" / "notes.txt").write_text("good dog")
    paint(classes / "dog" / "._x.png")
    paint(classes / ".thumbnails" / "x.png")
    (classes / "empty.png").mkdir()
    assert len(load_folder(classes, size=8)) == 4


def test_a_flat_folder_has_no_labels(tmp_path):
    for name in ("b.png", "a.png"):
        paint(tmp_path / name)
    images = load_folder(tmp_path, size=8)
    assert images.labels is None
    assert images.label_names is None
    assert images.ids.tolist() == ["a.png", "b.png"]


def test_images_beside_the_class_folders_have_no_label(classes):
    paint(classes / "loose.png")
    images = load_folder(classes, size=8)
    assert images.labels.tolist() == [[1, 0], [1, 0], [0, 1], [0, 1], [0, 0]]


def test_unreadable_images_are_listed(classes):
    (classes / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    images = load_folder(classes, size=8)
    assert len(images) == 4
    assert images.read(slice(None))[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    [(name, reason)] = images.skipped
    assert name == "cat/broken.jpg"
    assert reason


def test_cache_gives_the_same_set(classes, tmp_path):
    (classes / "cat" / "broken.jpg").write_bytes(b"")
    memory = load_folder(classes, size=8)
    for _ in range(2):
        cached = load_folder(classes, size=8, cache=tmp_path / "cache")
        assert isinstance(cached.pixels, np.memmap)
        assert np.array_equal(cached.read(slice(None)), memory.read(slice(None)))
        assert cached.fingerprint() == memory.fingerprint()
        assert cached.skipped == memory.skipped


def test_images_in_unsupported_formats_are_listed(classes):
    for name in ("cat/b.dng", "a.JXL", "cat/.c.dng", "notes.txt"):
        (classes / name).write_bytes(b"...")
    (classes / "folder.dng").mkdir()
    images = load_folder(classes, size=8)
    assert images.left_out == ["a.JXL", "cat/b.dng"]
    assert images.subset([0]).left_out == ()


def test_folder_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no images found"):
        load_folder(tmp_path)
    (tmp_path / "a.dng").write_bytes(b"")
    with pytest.raises(ValueError, match=r"1 image in an unsupported format left out \(1 \.dng\)$"):
        load_folder(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"none of the 1 images can be read; the first, a\.png"):
        load_folder(tmp_path)


def write_csv(folder, text):
    path = folder / "labels.csv"
    path.write_text(text, "utf-8")
    return path


def test_csv_with_one_label_each(classes):
    path = write_csv(classes, "file,label\ndog/x.png,soft\ncat/b.png,loud\n")
    images = load_folder(classes, labels=path, size=8)
    assert images.ids.tolist() == ["cat/b.png", "dog/x.png"]
    assert images.labels.tolist() == [0, 1]
    assert images.label_names == ["loud", "soft"]


def test_csv_whose_columns_are_written_otherwise(classes):
    path = write_csv(classes, "File, Label\ndog/x.png,soft\n")
    assert load_folder(classes, labels=path, size=8).label_names == ["soft"]


def test_csv_with_several_labels(classes):
    text = "\ufefflabels,other,file\nred|big,1,dog\\x.png\n big ,2,cat/b.png\n,3,dog/y.jpg\n"
    images = load_folder(classes, labels=write_csv(classes, text), size=8)
    assert images.label_names == ["big", "red"]
    assert images.ids.tolist() == ["cat/b.png", "dog/x.png", "dog/y.jpg"]
    assert images.labels.tolist() == [[1, 0], [1, 1], [0, 0]]


def test_csv_without_a_split(classes):
    path = write_csv(classes, "file,label\ndog/x.png,soft\n")
    assert load_folder(classes, labels=path, size=8).split is None
    assert load_folder(classes, size=8).split is None


def test_csv_with_a_split(classes):
    """The split stays aligned with the images, which are sorted and partly unreadable."""
    (classes / "cat" / "broken.jpg").write_bytes(b"")
    text = (
        "file,split,labels\ndog/y.jpg,query,a\ncat/broken.jpg,train,a\n"
        "dog/x.png, train ,a|b\ncat/b.png,database,b\n"
    )
    images = load_folder(classes, labels=write_csv(classes, text), size=8)
    assert images.ids.tolist() == ["cat/b.png", "dog/x.png", "dog/y.jpg"]
    assert images.split.tolist() == ["database", "train", "query"]
    assert images.subset([2, 0]).split.tolist() == ["query", "database"]


def test_csv_files_that_do_not_exist_are_listed(classes):
    path = write_csv(classes, "file,label\ndog/x.png,a\ndog/gone.png,b\n")
    images = load_folder(classes, labels=path, size=8)
    assert images.ids.tolist() == ["dog/x.png"]
    assert images.label_names == ["a"]
    assert images.skipped == [("dog/gone.png", "no such file")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the header needs a column file, found nothing"),
        ("name,label\na,b\n", "header needs a column file, found name, label"),
        ("file,tags\na,b\n", r"labels\.csv: the header needs a column label"),
        ("file;label\na;b\n", r"labels\.csv: columns are separated by ;; use commas"),
        ("file,label\ncat/b.png,a,b\n", r"labels\.csv, line 2: more cells than columns"),
        ("file,label,Label\ncat/b.png,a,b\n", "header has the column label more than once"),
        ("file,label\n", "contains no files"),
        ("file,label\na.png\n", "line 2: cells are missing"),
        ("file,label\n../b.png,a\n", r"line 2: \.\./b\.png is not in the folder .*, which must"),
        ("file,label\n,a\n", "line 2: the file name is missing"),
        ('"na\nme",label\na,b\n', r"found na\\nme, label$"),
        ('file,label\n"../a\nb",c\n', r"line 3: \.\./a\\nb is not in the folder"),
        (
            "file,label,split\ncat/b.png,a,train\ndog/x.png,a,test\n",
            r"labels\.csv, line 3: the split .* must be one of query, train, database, got 'test'",
        ),
        ("file,label,split\ncat/b.png,a\n", "line 2: .* query, train, database, got ''"),
        (
            "file,label,split\ncat/b.png,a,query\ncat/b.png,a,train\n",
            "line 3: the split of cat/b.png is train here but query in line 2; use the same",
        ),
        ("file,label\nx.png,a\ny.png,a\n", "none of its 2 files is in .*; the first is x.png"),
    ],
)
def test_csv_errors(classes, text, message):
    with pytest.raises(ValueError, match=message):
        load_folder(classes, labels=write_csv(classes, text), size=8)


def test_csv_that_is_missing_or_not_text(classes):
    with pytest.raises(FileNotFoundError, match=r"no\.csv: no such CSV file"):
        load_folder(classes, labels=classes / "no.csv")
    with pytest.raises(ValueError, match=r"b\.png: the header needs a column file, found "):
        load_folder(classes, labels=classes / "cat" / "b.png")
