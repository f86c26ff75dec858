import hashlib
import os
from pathlib import Path

import pytest

from bitprint.data.label_csv import has_label_column
from bitprint.photos.files import (
    content_digest,
    is_gone,
    list_pictures,
)
from bitprint.photos.sources import list_some


def write(path, content=b"picture"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(listing, root):
    return [os.path.relpath(picture.path, root) for picture in listing.pictures]


def test_a_folder_and_all_below_it(tmp_path):
    for name in ["b.JPG", "a/c.webp", "a/deep/d.tiff", "e.gif", "notes.txt", ".hidden.jpg"]:
        write(tmp_path / name, name.encode())
    write(tmp_path / ".thumbnails" / "x.jpg")
    (tmp_path / "folder.png").mkdir()
    listing = list_pictures(tmp_path)
    assert names(listing, tmp_path) == ["a/c.webp", "a/deep/d.tiff", "b.JPG", "e.gif"]
    assert [picture.labels for picture in listing.pictures] == [("a",), ("a",), (), ()]
    for picture in listing.pictures:
        facts = Path(picture.path).stat()
        assert (picture.size, picture.modified) == (facts.st_size, facts.st_mtime_ns)
    assert listing.folders == [tmp_path.resolve().as_posix()]
    assert listing.skipped == listing.parents == []


def test_pictures_of_other_formats_are_counted(tmp_path):
    others = ["a/b.DNG", "c.psd", "d.jxl"]
    for name in [*others, "e.mp4", "e.xmp", "notes.txt", ".hidden.dng", ".trash/f.dng"]:
        write(tmp_path / name)
    listing = list_pictures(tmp_path)
    assert (listing.pictures, listing.skipped) == ([], [])
    assert listing.left_out == [(tmp_path / name).as_posix() for name in others]
    with pytest.raises(ValueError, match="no images found") as caught:
        list_some([tmp_path])
    assert ".jpg, .png, " in str(caught.value).replace(".jpe, .jpeg, ", "")
    assert "; 3 images in unsupported formats left out (1 .dng, 1 .psd, 1 .jxl)" in str(
        caught.value
    )


def test_links_lead_to_files_but_not_to_folders(tmp_path):
    write(tmp_path / "elsewhere" / "a.jpg")
    (tmp_path / "album").mkdir()
    (tmp_path / "album" / "link.jpg").symlink_to(tmp_path / "elsewhere" / "a.jpg")
    (tmp_path / "album" / "loop").symlink_to(tmp_path / "album")
    (tmp_path / "album" / "broken.jpg").symlink_to(tmp_path / "nowhere")
    listing = list_pictures(tmp_path / "album")
    assert names(listing, tmp_path) == ["album/link.jpg"]
    assert listing.skipped == [((tmp_path / "album" / "broken.jpg").as_posix(), "no such file")]


def test_linked_folders_are_in_left_out(tmp_path):
    write(tmp_path / "disk" / "2020" / "a.jpg")
    write(tmp_path / "album" / "b.jpg")
    (tmp_path / "album" / "sub").mkdir()
    for name in ("2020", "sub/2020", ".hidden"):
        (tmp_path / "album" / name).symlink_to(tmp_path / "disk" / "2020")
    (tmp_path / "album" / "sub" / "loop").symlink_to(tmp_path / "album")
    links = [f"{tmp_path.as_posix()}/album/{name}/" for name in ("2020", "sub/2020")]
    assert list_pictures(tmp_path / "album").left_out == links
    assert list_some([tmp_path / "album", tmp_path / "disk"]).left_out == []
    (tmp_path / "album" / "b.jpg").unlink()
    with pytest.raises(ValueError, match=r"no images found .*; 2 linked folders left out \(/"):
        list_some([tmp_path / "album"])


def test_a_folder_below_a_known_one_has_the_labels_of_that(tmp_path):
    write(tmp_path / "cats" / "wild" / "a.jpg")
    known = [tmp_path.resolve().as_posix()]
    assert list_pictures(tmp_path / "cats").pictures[0].labels == ("wild",)
    assert list_pictures(tmp_path / "cats", known).pictures[0].labels == ("cats",)


def test_a_csv(tmp_path):
    a, b = write(tmp_path / "a.jpg"), write(tmp_path / "sub" / "b.jpg")
    table = write(
        tmp_path / "list.csv", f"file,labels\nsub/b.jpg,x| y\n{a},\ngone.jpg,z\n".encode()
    )
    listing = list_pictures(table)
    assert names(listing, tmp_path) == ["a.jpg", "sub/b.jpg"]
    assert [picture.labels for picture in listing.pictures] == [(), ("x", "y")]
    assert listing.skipped == [((tmp_path / "gone.jpg").as_posix(), "no such file")]
    assert listing.folders == []
    assert listing.parents == sorted(path.parent.as_posix() for path in (a, b))
    write(table, b"file\na.jpg\na.jpg\n")
    assert names(list_pictures(table), tmp_path) == ["a.jpg"]


def test_a_csv_of_another_system_or_typed_by_hand(tmp_path):
    write(tmp_path / "sub" / "a.jpg")
    write(tmp_path / "b.jpg")
    rows = ["file,label", "sub\\a.jpg,x", " b.jpg ,y", "sub\\gone.jpg,z", "c" * 300 + ",z"]
    table = write(tmp_path / "list.csv", "\r\n".join(rows).encode())
    listing = list_pictures(table)
    assert names(listing, tmp_path) == ["b.jpg", "sub/a.jpg"]
    assert [picture.labels for picture in listing.pictures] == [("y",), ("x",)]
    assert [reason for _, reason in listing.skipped] == ["no such file", "File name too long"]


def test_a_csv_may_name_files_with_spaces_and_backslashes(tmp_path):
    for name in (" a.jpg", "a.jpg", "sub\\b.jpg", "sub/b.jpg"):
        write(tmp_path / name)
    table = write(tmp_path / "list.csv", b"file\n a.jpg\nsub\\b.jpg\n")
    assert names(list_pictures(table), tmp_path) == [" a.jpg", "sub\\b.jpg"]


def test_csv_errors(tmp_path):
    table = write(tmp_path / "list.csv", b"path\na.jpg\n")
    with pytest.raises(ValueError, match=r"list\.csv: the header needs a column file"):
        list_pictures(table)
    write(table, b"file,label\n,x\n")
    with pytest.raises(ValueError, match=r"list\.csv, line 2: the file name is missing"):
        list_pictures(table)
    write(table, b"file,label\n ,x\n")
    with pytest.raises(ValueError, match=r"list\.csv, line 2: the file name is missing"):
        list_pictures(table)
    write(table, b"file,label\na.jpg,x\nb.jpg," + b"y" * 200_000 + b"\n")
    with pytest.raises(ValueError, match=r"list\.csv, line 3: not CSV \(field larger than"):
        list_pictures(table)
    write(table, b"file," + b"y" * 200_000 + b"\n")
    with pytest.raises(ValueError, match=r"list\.csv, line 1: not CSV"):
        list_pictures(table)


def labels_by_name(table):
    return {Path(picture.path).name: picture.labels for picture in list_pictures(table).pictures}


def test_a_csv_with_a_row_for_each_label(tmp_path):
    write(tmp_path / "a.jpg")
    table = write(tmp_path / "list.csv", b"file,label\na.jpg,cat\na.jpg,dog|cat\n./a.jpg,\n")
    assert labels_by_name(table) == {"a.jpg": ("cat", "dog")}


@pytest.mark.parametrize("header", ["file,Label", "file, label", " FILE ,Labels", '"file","label"'])
def test_a_csv_whose_columns_are_written_otherwise(tmp_path, header):
    write(tmp_path / "a.jpg")
    table = write(tmp_path / "list.csv", f"{header}\na.jpg,cat\n".encode())
    assert labels_by_name(table) == {"a.jpg": ("cat",)}
    assert has_label_column(table)


def test_empty_cells_at_the_end_do_no_harm(tmp_path):
    write(tmp_path / "a.jpg")
    table = write(tmp_path / "list.csv", b"file,label\na.jpg,cat,, \n")
    assert labels_by_name(table) == {"a.jpg": ("cat",)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"file,label\na.jpg,x\na.jpg,cat,dog\n", r"list\.csv, line 3: more cells than columns"),
        (b"file,label\na.jpg,caf\xe9\n", r"line 2: the label caf\\udce9 is not UTF-8; save"),
        (b"file;label\na.jpg;cat\n", r"list\.csv: columns are separated by ;; use commas"),
        (b'"file";"label"\na.jpg;cat\n', "columns are separated by ;; use commas"),
        (b"file\tlabel\na.jpg\tcat\n", "columns are separated by tabs; use commas"),
        (b"file,label,Label\na.jpg,cat,dog\n", "header has the column label more than once"),
    ],
)
def test_a_csv_that_would_lose_labels_is_refused(tmp_path, content, message):
    write(tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=message):
        list_pictures(write(tmp_path / "list.csv", content))


def test_a_csv_names_files_that_are_no_text(tmp_path):
    name = os.fsdecode(b"caf\xe9.jpg")
    write(tmp_path / name)
    table = write(tmp_path / "list.csv", b"file,label\ncaf\xe9.jpg,caf\xc3\xa9\n")
    assert labels_by_name(table) == {name: ("café",)}


def test_names(tmp_path, monkeypatch):
    write(tmp_path / "a.jpg")
    monkeypatch.chdir(tmp_path)
    listing = list_pictures(["a.jpg", "./a.jpg", "b.jpg", ".", "nul\0l.jpg"])
    assert names(listing, tmp_path) == ["a.jpg"]
    reasons = [reason for _, reason in listing.skipped]
    assert reasons == ["no such file", "not a file", "no such file"]
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder or file"):
        list_pictures("nowhere")


def test_digest_covers_size_and_beginning(tmp_path):
    content = os.urandom(70_000)
    digest = hashlib.sha256(b"70000 " + content[: 64 * 1024]).hexdigest()
    assert content_digest(str(write(tmp_path / "a", content))) == digest
    other_end = content[:-1] + bytes([content[-1] ^ 1])
    assert content_digest(str(write(tmp_path / "b", other_end))) == digest
    assert content_digest(str(write(tmp_path / "c", content[:-1]))) != digest


def test_gone_means_that_nothing_is_there(tmp_path):
    file = write(tmp_path / "a.jpg")
    assert not is_gone(str(file))
    assert is_gone(str(tmp_path / "b.jpg"))
    assert is_gone(str(file / "c.jpg"))
    assert is_gone(str(tmp_path))
    (tmp_path / "link.jpg").symlink_to(file)
    assert not is_gone(str(tmp_path / "link.jpg"))
