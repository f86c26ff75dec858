import shutil
from pathlib import Path

import pytest


@pytest.fixture
def table(album, tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("file,label\nalbum/00.png,a\nalbum/03.png,b\nalbum/cats/01.png,c\n")
    return path


def names(paths):
    return sorted(Path(path).name for path in paths)


def test_a_folder_of_named_pictures_that_is_missing_is_refused(photos, album, table):
    photos.add(table)
    away = album.rename(album.with_name("album.off"))
    with pytest.raises(FileNotFoundError, match="album: folder not found; mount"):
        photos.sync()
    assert (len(photos.index), photos.index.labels()) == (3, ["a", "b", "c"])
    away.rename(album)
    assert photos.sync() == (0, 3, [], [], [], [], 0)


def test_a_folder_of_named_pictures_that_is_empty_is_refused(photos, album, table):
    photos.add(table)
    for path in (album / "cats").iterdir():  # its parent still contains images
        path.unlink()
    with pytest.raises(ValueError, match=r"cats: all images of this folder are missing \(1\)"):
        photos.sync()
    assert len(photos.index) == 3
    (album / "cats").rmdir()
    with pytest.raises(FileNotFoundError, match="cats: folder not found; mount"):
        photos.sync()
    photos.remove([album / "cats"])
    (album / "00.png").unlink()
    assert names(photos.sync().removed) == ["00.png"]


def test_the_only_named_picture_of_a_folder_with_others_may_be_deleted(photos, album, table):
    photos.add(table)
    (album / "cats" / "01.png").unlink()
    assert any((album / "cats").iterdir())
    assert names(photos.sync().removed) == ["01.png"]


def test_named_pictures_that_have_all_moved_are_followed(photos, album, table, tmp_path):
    photos.add(table)
    (tmp_path / "archive").mkdir()
    for name in ("00.png", "03.png", "cats/01.png"):
        (album / name).rename(tmp_path / "archive" / Path(name).name)
    shutil.rmtree(album)
    synced = photos.sync(tmp_path / "archive")
    assert (len(synced.moved), synced.new, synced.removed) == (3, 0, [])
    assert photos.index.labels() == ["a", "b", "c"]


def test_an_inbox_that_was_emptied_into_an_archive(photos, album):
    photos.add(album / "cats", album / "dogs")
    for path in sorted((album / "cats").iterdir()):
        path.rename(album / "dogs" / path.name)
    synced = photos.sync()
    assert (len(synced.moved), synced.unchanged, synced.removed) == (4, 4, [])
    assert photos.sync() == (0, 8, [], [], [], [], 0)
    for path in (album / "dogs").glob("*"):
        path.unlink()
    with pytest.raises(ValueError, match="dogs: all images of this folder are missing"):
        photos.sync()


def test_pictures_of_a_sub_folder_that_is_empty_stay(photos, album, tmp_path):
    (album / "cats" / "2020").mkdir()
    (album / "cats" / "01.png").rename(album / "cats" / "2020" / "01.png")
    photos.add(album)
    shutil.move(album / "cats", tmp_path / "disk")
    (album / "cats").mkdir()  # the mount point
    (album / "00.png").unlink()
    synced = photos.sync()
    [(place, reason)] = synced.skipped
    assert place == (album.resolve() / "cats").as_posix()
    assert reason.startswith("folder is empty, 4 of its images stay in the index; mount its disk")
    assert (names(synced.removed), len(photos.index)) == (["00.png"], 11)
    (album / "cats").rmdir()
    shutil.move(tmp_path / "disk", album / "cats")
    assert photos.sync() == (0, 11, [], [], [], [], 0)


def test_pictures_behind_a_link_that_leads_nowhere_stay(photos, album, tmp_path):
    photos.add(album)
    (album / "cats").rename(tmp_path / "disk")
    (album / "cats").symlink_to(tmp_path / "disk")
    (tmp_path / "disk").rename(tmp_path / "disk.off")
    synced = photos.sync()
    assert [Path(place).name for place, _ in synced.skipped] == ["cats"]
    assert (synced.removed, len(photos.index)) == ([], 12)


def test_a_sub_folder_that_was_deleted_is_forgotten(photos, album):
    photos.add(album)
    shutil.rmtree(album / "cats")
    synced = photos.sync()
    assert (len(synced.removed), synced.skipped, len(photos.index)) == (4, [], 8)
