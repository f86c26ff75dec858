"""A label CSV has the same meaning in `load_folder` (training) and `list_pictures` (index)."""

import re
from pathlib import Path

import pytest
from PIL import Image

from bitprint.data.folder import load_folder
from bitprint.data.label_csv import has_label_column, read_label_csv
from bitprint.photos.files import list_pictures


@pytest.fixture
def album(tmp_path):
    for name in ("a.png", "b.png", "sub/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), 128).save(tmp_path / name)
    return tmp_path


def write(album, *rows):
    table = album / "list.csv"
    table.write_bytes("\n".join(rows).encode("utf-8", "surrogateescape"))
    return table


def trained(album, table):
    """The labels of every image of a training set, by name."""
    images = load_folder(album, labels=table, size=8)
    if images.labels.ndim == 1:
        rows = [{images.label_names[number]} for number in images.labels]
    else:
        rows = [{images.label_names[c] for c in row.nonzero()[0]} for row in images.labels]
    return dict(zip(images.ids.tolist(), rows, strict=True))


def indexed(album, table):
    """The labels of every image of an index, by name."""
    pictures = list_pictures(table).pictures
    root = album.resolve()
    return {Path(p.path).relative_to(root).as_posix(): set(p.labels) for p in pictures}


@pytest.mark.parametrize(
    "rows",
    [
        ("file,label", "a.png,cat", "b.png,dog", "a.png,pet"),
        ("file,label", "a.png,cat|pet", "b.png,dog"),
        ("file,labels", "./a.png,pet", "b.png, dog ", "a.png,cat|pet"),
        ("label,FILE", "cat|pet, a.png", "dog,b.png "),
    ],
)
def test_rows_of_one_file_are_merged_everywhere(album, rows):
    table = write(album, *rows)
    expected = {"a.png": {"cat", "pet"}, "b.png": {"dog"}}
    assert trained(album, table) == expected
    assert indexed(album, table) == expected


def test_backslashes_and_other_names_mean_one_file(album):
    table = write(album, "file,label", "sub\\c.png,x", "sub/c.png,y", "sub//c.png,z")
    assert trained(album, table) == indexed(album, table) == {"sub/c.png": {"x", "y", "z"}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("file,label", ",x"), "line 2: the file name is missing"),
        (("file,label", "a.png"), "line 2: cells are missing"),
        (("file,label", "a.png,x,y"), r"line 2: more cells than columns; join labels by \|"),
        (("file,label", "a.png,caf\udce9"), r"line 2: the label caf\\udce9 is not UTF-8"),
        (("file;label", "a.png;x"), "columns are separated by ;; use commas"),
        (("name,label", "a.png,x"), "header needs a column file, found name, label"),
        (("file,label,split", "a.png,x,test"), "line 2: .* query, train, database, got 'test'"),
        (
            ("file,label,split", "a.png,x,train", "b.png,x,query", "a.png,y,query"),
            "line 4: the split of a.png is query here but train in line 2",
        ),
        (("file,label", "a.png,x", "b.png," + "y" * 200_000), "line 3: not CSV"),
    ],
)
def test_what_is_refused_is_refused_everywhere(album, rows, message):
    table = write(album, *rows)
    with pytest.raises(ValueError, match=rf"list\.csv.*{message}"):
        load_folder(album, labels=table, size=8)
    with pytest.raises(ValueError, match=rf"list\.csv.*{message}"):
        list_pictures(table)


def refuse(album, name, *, line=3):
    """Check that a row of a CSV is refused in training and in an index."""
    table = write(album, "file,label", "a.png,x", f"{name},x")
    message = (
        rf"list\.csv, line {line}: {re.escape(name)} is not in the folder {re.escape(str(album))}"
    )
    for read in (lambda: load_folder(album, labels=table, size=8), lambda: list_pictures(table)):
        with pytest.raises(ValueError, match=f"^.*{message}, which must contain all files of"):
            read()


@pytest.fixture
def secret(album):
    """A file beside the folder, and a link to its folder in the folder."""
    place = album.parent / f"{album.name}-outside"
    place.mkdir()
    Image.new("L", (8, 8), 128).save(place / "secret.png")
    (album / "linked").symlink_to(place)
    return place / "secret.png"


def test_files_outside_the_folder_are_refused_everywhere(album, secret):
    outside = secret.parent.name
    for name in (
        f"../{outside}/secret.png",
        f"sub/../../{outside}/secret.png",
        f"..\\{outside}\\secret.png",
        "linked/secret.png",
        "linked/no/such.png",
        f"linked/../{outside}/secret.png",
        f"{album}/../{outside}/secret.png",
        f"{album}/linked/secret.png",
        str(secret),
        "/etc/passwd",
        "..",
        ".",
        "/",
        "sub/../a.png",
    ):
        refuse(album, name)


def test_a_name_that_begins_like_the_folder_is_refused(album, secret):
    assert str(secret).startswith(str(album))
    refuse(album, str(secret))


def test_absolute_names_in_the_folder_are_relative_to_it(album, tmp_path_factory):
    other = tmp_path_factory.mktemp("links") / "album"
    other.symlink_to(album)
    table = write(album, "file,label", f"{album}/a.png,x", f"{other}/sub/c.png,y", "./a.png,z")
    expected = {"a.png": {"x", "z"}, "sub/c.png": {"y"}}
    assert trained(album, table) == trained(other, table) == indexed(album, table) == expected


def test_links_to_files_and_within_the_folder_are_read(album, secret):
    """As in a folder without a CSV."""
    (album / "photo.png").symlink_to(secret)
    (album / "again").symlink_to(album / "sub")
    table = write(album, "file,label", "photo.png,x", "again/c.png,y")
    assert trained(album, table) == {"photo.png": {"x"}, "again/c.png": {"y"}}
    assert indexed(album, table) == {"photo.png": {"x"}, "sub/c.png": {"y"}}


def test_a_csv_beside_the_folder_names_files_below_itself(tmp_path, album):
    table = write(album, "file,label", "sub/c.png,x")
    assert indexed(album, table) == {"sub/c.png": {"x"}}
    assert trained(album / "sub", write(album, "file,label", "c.png,x")) == {"c.png": {"x"}}


def test_the_split_of_merged_rows_is_theirs(album):
    rows = ["file,label,split", "a.png,x,train", "b.png,x,query", "a.png,y, train "]
    images = load_folder(album, labels=write(album, *rows), size=8)
    assert images.split.tolist() == ["train", "query"]


def test_names_that_are_no_text_are_read(album):
    table = write(album, "file,label", "caf\udce9.png,x")
    assert list(read_label_csv(table, album).files) == ["caf\udce9.png"]


def test_a_csv_without_labels_is_for_an_index_alone(album):
    table = write(album, "file,tags", "a.png,x", "a.png,y")
    assert indexed(album, table) == {"a.png": set()}
    assert not has_label_column(table)
    with pytest.raises(ValueError, match="header needs a column label"):
        load_folder(album, labels=table, size=8)
