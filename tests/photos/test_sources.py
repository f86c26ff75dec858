from bitprint.photos.files import list_pictures
from bitprint.photos.sources import list_some, merge


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"picture")
    return path


def labels(listing):
    return {picture.path: picture.labels for picture in listing.pictures}


def test_a_folder_inside_another_adds_nothing(tmp_path):
    write(tmp_path / "cats" / "wild" / "a.jpg")
    write(tmp_path / "cats" / "b.dng")
    whole = list_pictures(tmp_path)
    for sources in ([tmp_path, tmp_path / "cats"], [tmp_path / "cats", tmp_path]):
        listing = list_some(sources)
        assert listing.pictures == whole.pictures
        assert listing.left_out == whole.left_out
        assert len(listing.folders) == 2


def test_labels_are_kept_whatever_the_order(tmp_path):
    picture = write(tmp_path / "cats" / "a.jpg")
    for sources in ([tmp_path, picture], [picture, tmp_path]):
        assert labels(list_some(sources)) == {picture.as_posix(): ("cats",)}
    table = tmp_path / "list.csv"
    table.write_text("file,label\ncats/a.jpg,tom\n")
    assert labels(list_some([tmp_path, table])) == {picture.as_posix(): ("tom",)}


def test_merging_sorts_pictures_and_names_each_once(tmp_path):
    a, b = write(tmp_path / "a.jpg"), write(tmp_path / "b.jpg")
    merged = merge([list_pictures([b, "/no/c.jpg"]), list_pictures([a, b, "/no/c.jpg"])])
    assert [picture.path for picture in merged.pictures] == [a.as_posix(), b.as_posix()]
    assert merged.skipped == [("/no/c.jpg", "no such file")]
    assert merged.parents == [tmp_path.as_posix()]
