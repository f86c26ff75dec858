import os
import signal
import time
import traceback
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bitprint.data import decode_image, draw_shapes
from bitprint.data.formats import SUFFIXES
from bitprint.data.images import ImageSet
from bitprint.methods import create
from bitprint.photos import Photos, encoding, holds_pictures, learning
from bitprint.photos.encoder import Encoder
from bitprint.photos.files import Listing, list_pictures
from bitprint.search.index import Index
from fuzz.bombs import png


@pytest.fixture
def encoded(monkeypatch):
    """Record the batch sizes of encoded images."""
    counts = []
    original = Encoder.encode_squares

    def counted(self, pictures):
        counts.append(len(pictures))
        return original(self, pictures)

    monkeypatch.setattr(Encoder, "encode_squares", counted)
    return counts


def content(photos):
    """Return code and labels of all images of a collection by path."""
    ids = sorted(photos.index.ids())
    codes = [code.packed.tobytes() for code in photos.index.codes(ids)]
    items = photos.index.items(ids)
    assert [item.path for item in items] == ids
    return dict(zip(ids, zip(codes, [item.labels for item in items], strict=True), strict=True))


def expected_content(encoder, files):
    """Return the same for `files` (labels by path), encoding files individually."""
    expected = {}
    for path, labels in files.items():
        pixels = decode_image(path, encoder.size)
        code = encoder.hasher.encode(ImageSet(pixels[None]))
        expected[Path(path).as_posix()] = (code.packed.tobytes(), labels)
    return expected


def album_files(album):
    return {path: path.relative_to(album).parts[:-1][:1] for path in album.resolve().rglob("*.png")}


def test_a_folder_is_encoded_file_by_file(photos, encoder, album):
    added = photos.add(album)
    assert added == (12, 0, [], [], 0)
    assert content(photos) == expected_content(encoder, album_files(album))
    assert photos.index.labels() == ["cats", "dogs"]
    assert photos.roots == [album.resolve()]


def test_renamed_index_file_contains_everything(photos, encoder, album, tmp_path):
    photos.add(album)
    photos.close()
    (tmp_path / "photos.bp").rename(tmp_path / "renamed.bp")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["album", "renamed.bp"]
    with Photos.open(tmp_path / "renamed.bp") as opened:
        assert opened.encoder.identity == encoder.identity == opened.index.model
        assert opened.encoder.describe() == "ITQ, 32 bits, on pixels features"
        assert content(opened) == expected_content(encoder, album_files(album))
        assert opened.roots == [album.resolve()]


FORMATS = ["jpg", "png", "webp", "gif", "bmp", "tiff"]
FORMATS += [kind for kind in ("avif", "heic") if f".{kind}" in SUFFIXES]


def test_every_format_and_every_orientation(photos, encoder, tmp_path):
    pixels = draw_shapes(1, size=64).pixels[0][:, :48]
    upright = Image.fromarray(pixels)
    turned = upright.transpose(Image.Transpose.ROTATE_90)  # undone by the EXIF tag
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in FORMATS:
        upright.save(tmp_path / f"upright.{kind}")
    for kind, options in [("png", {}), ("webp", {"lossless": True}), ("tiff", {})]:
        turned.save(tmp_path / f"turned.{kind}", exif=exif, **options)
    upright.save(tmp_path / "animated.gif", save_all=True, append_images=[turned])
    total = len(FORMATS) + 4
    assert photos.add(tmp_path) == (total, 0, [], [], 0)
    ids, distances = photos.index.search(encoder.encode([pixels]), k=total)
    nearest = dict(zip([Path(name).name for name in ids[0]], distances[0].tolist(), strict=True))
    lossless = ["upright.png", "upright.bmp", "upright.tiff"]
    lossless += ["turned.png", "turned.webp", "turned.tiff"]
    assert {name: nearest[name] for name in lossless} == dict.fromkeys(lossless, 0)
    assert max(nearest.values()) < 8


def test_add_unreadable_files_lists_them_as_skipped(photos, album):
    (album / "text.jpg").write_text("hello")
    (album / "empty.png").write_bytes(b"")
    whole = (album / "00.png").read_bytes()
    (album / "cut.png").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        added = photos.add(album)
        assert [Path(path).name for path, _ in added.skipped] == [
            "cut.png",
            "empty.png",
            "text.jpg",
        ]
        assert all(reason for _, reason in added.skipped)
    assert added.unchanged == len(photos.index) == 12


def test_images_that_are_too_large_are_skipped_and_no_query(photos, album):
    hostile = album / "tall.png"
    hostile.write_bytes(png(1, 64_000_000))
    reason = "too large: 1 x 64000000 pixels, more than 65,535 on one side; resize it"
    added = photos.add(album)
    assert (added.new, added.skipped) == (12, [(hostile.as_posix(), reason)])
    with pytest.raises(ValueError, match=rf"tall\.png: not a readable image \({reason}\)"):
        photos.search(hostile)


def test_add_encodes_only_new_and_changed_images(photos, encoder, album, encoded):
    photos.add(album)
    assert sum(encoded) == 12
    encoded.clear()
    assert photos.add(album) == (0, 12, [], [], 0)
    assert encoded == []
    Image.fromarray(draw_shapes(50, size=16).pixels[49]).save(album / "cats" / "01.png")
    (album / "new.png").write_bytes((album / "00.png").read_bytes())
    assert photos.add(album) == (2, 11, [], [], 0)
    assert sum(encoded) == 2
    assert content(photos) == expected_content(encoder, album_files(album))


def test_a_change_that_keeps_the_size_is_noticed_by_the_date(photos, encoder, tmp_path):
    path = tmp_path / "a.bmp"
    for number, pixels in enumerate(draw_shapes(2, size=16).pixels):
        Image.fromarray(pixels).save(path)
        os.utime(path, ns=(0, 10**18 + number))
        assert photos.add(tmp_path) == (1, 0, [], [], 0)
        assert content(photos) == expected_content(encoder, {path.resolve(): ()})


def test_a_picture_that_became_unreadable_is_no_longer_found(photos, album):
    photos.add(album)
    (album / "00.png").write_bytes(b"")
    assert [Path(path).name for path, _ in photos.add(album).skipped] == ["00.png"]
    assert len(photos.index) == 11
    assert (album / "00.png").resolve().as_posix() not in photos.index.ids()


def test_add_restores_codes_removed_from_the_index(photos, album):
    photos.add(album)
    photos.index.remove(photos.index.ids()[:3])
    assert photos.add(album) == (3, 9, [], [], 0)


def test_names_and_csv(photos, encoder, album, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("file,label\nalbum/cats/01.png,tom\nalbum/00.png,\n")
    assert photos.add(table) == (2, 0, [], [], 0)
    assert photos.add([str(album / "03.png"), str(album / "no.png")]).new == 1
    root = album.resolve()
    files = {root / "cats/01.png": ("tom",), root / "00.png": (), root / "03.png": ()}
    assert content(photos) == expected_content(encoder, files)
    assert photos.roots == [root]


def test_odd_names(photos, encoder, tmp_path):
    album = tmp_path / "album"
    album.mkdir()
    names = [
        b"two words.png",
        b"'quo\"tes'.png",
        b"new\nline.png",
        b"\xff\xfe.png",
        b"<script>.png",
    ]
    for name, pixels in zip(names, draw_shapes(5, size=16).pixels, strict=True):
        Image.fromarray(pixels).save(album / "plain.png")
        (album / "plain.png").rename(album / os.fsdecode(name + b".png"))
    assert photos.add(album) == (5, 0, [], [], 0)
    assert content(photos) == expected_content(
        encoder, dict.fromkeys(album.resolve().iterdir(), ())
    )
    assert photos.add(album) == (0, 5, [], [], 0)
    assert photos.sync() == (0, 5, [], [], [], [], 0)


def test_sync_finds_moved_changed_and_deleted_images(photos, encoder, album, encoded):
    photos.add(album)
    encoded.clear()
    root = album.resolve()
    (album / "cats" / "01.png").rename(album / "dogs" / "tom.png")
    (album / "00.png").unlink()
    (album / "03.png").write_bytes((album / "06.png").read_bytes())
    Image.fromarray(draw_shapes(50, size=16).pixels[49]).save(album / "new.png")
    synced = photos.sync()
    assert (synced.new, synced.unchanged, synced.skipped) == (2, 9, [])
    assert synced.moved == [(f"{root}/cats/01.png", f"{root}/dogs/tom.png")]
    assert synced.removed == [f"{root}/00.png"]
    assert sum(encoded) == 2
    assert content(photos) == expected_content(encoder, album_files(album))
    assert photos.sync() == (0, 12, [], [], [], [], 0)


def test_sync_of_a_folder_without_top_level_files(photos, album):
    for path in album.glob("*.png"):
        path.unlink()
    photos.add(album)
    assert photos.sync() == (0, 8, [], [], [], [], 0)
    assert photos.roots == [album.resolve()]


def test_sync_same_size_and_date_is_not_a_move(photos, encoder, album):
    photos.add(album)
    facts = (album / "00.png").stat()
    (album / "00.png").unlink()
    Image.new("RGB", (16, 16)).save(album / "other.png")
    with (album / "other.png").open("ab") as file:
        file.write(bytes(facts.st_size - (album / "other.png").stat().st_size))
    os.utime(album / "other.png", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    synced = photos.sync()
    assert (synced.new, len(synced.removed), synced.moved) == (1, 1, [])
    assert content(photos) == expected_content(encoder, album_files(album))


def test_a_copy_is_encoded_and_the_original_stays(photos, album):
    photos.add(album)
    facts = (album / "00.png").stat()
    (album / "copy.png").write_bytes((album / "00.png").read_bytes())
    os.utime(album / "copy.png", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    synced = photos.sync()
    assert (synced.new, synced.unchanged, synced.moved, synced.removed) == (1, 12, [], [])


def test_sync_of_the_new_place_follows_a_moved_folder(photos, encoder, album, encoded):
    photos.add(album)
    encoded.clear()
    moved = album.rename(album.with_name("renamed"))
    with pytest.raises(FileNotFoundError, match="album: folder not found; mount"):
        photos.sync()
    synced = photos.sync(moved)
    assert (len(synced.moved), synced.new, synced.removed) == (12, 0, [])
    assert encoded == []
    assert photos.roots == [moved.resolve()]
    assert content(photos) == expected_content(encoder, album_files(moved))
    assert photos.sync() == (0, 12, [], [], [], [], 0)


def test_sync_unmounted_disk_keeps_images(photos, album):
    photos.add(album)
    for path in album.rglob("*.png"):
        path.unlink()
    for call in (photos.sync, lambda: photos.sync(album)):
        with pytest.raises(
            ValueError, match=r"all images of this folder are missing \(12\); mount"
        ):
            call()
    assert len(photos.index) == 12


def test_sync_of_one_folder_leaves_others_alone(photos, encoder, album):
    photos.add(album)
    (album / "cats" / "01.png").unlink()
    (album / "00.png").unlink()
    Image.new("RGB", (16, 16)).save(album / "cats" / "new.png")
    assert len(photos.sync(album / "cats").removed) == 1
    assert len(photos.index) == 12
    new = (album / "cats" / "new.png").resolve().as_posix()
    assert photos.index.items([new])[0].labels == ("cats",)
    assert photos.roots == [album.resolve()]


def test_sync_updates_individually_added_files(photos, album, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("file,label\nalbum/00.png,a\nalbum/03.png,b\nalbum/06.png,c\n")
    photos.add(table)
    (album / "00.png").unlink()
    (album / "03.png").write_bytes((album / "06.png").read_bytes())
    synced = photos.sync()
    assert (synced.new, synced.unchanged, len(synced.removed)) == (1, 1, 1)
    assert photos.index.labels() == ["b", "c"]


def move_and_link(folder, place):
    """Move a folder to another disk and replace it by a link."""
    place.mkdir()
    folder.rename(place / folder.name)
    folder.symlink_to(place / folder.name)


def test_sync_updates_images_of_a_linked_sub_folder(photos, encoder, album, tmp_path):
    photos.add(album)
    files = album_files(album)
    move_and_link(album / "cats", tmp_path / "disk2")
    assert photos.sync() == (0, 12, [], [], [], [], 0)
    Image.fromarray(draw_shapes(50, size=16).pixels[49]).save(album / "cats" / "01.png")
    (album / "cats" / "04.png").unlink()
    del files[album.resolve() / "cats" / "04.png"]
    synced = photos.sync(album)
    assert (synced.new, synced.unchanged, len(synced.removed)) == (1, 10, 1)
    assert content(photos) == expected_content(encoder, files)
    for path in [*album.glob("*.png"), *album.glob("dogs/*.png")]:
        path.unlink()
    (album / "dogs").rmdir()
    assert len(photos.sync().removed) == 8


def test_sync_updates_images_of_a_linked_folder(photos, encoder, album, tmp_path):
    photos.add(album)
    photos.add([album / "00.png"])
    files = album_files(album)
    move_and_link(album, tmp_path / "disk2")
    Image.fromarray(draw_shapes(50, size=16).pixels[49]).save(album / "00.png")
    synced = photos.sync()
    assert (synced.new, synced.unchanged, synced.removed) == (1, 11, [])
    assert content(photos) == expected_content(encoder, files)
    assert photos.roots == [tmp_path / "album"]


def test_sync_updates_individual_files_in_a_linked_folder(photos, album, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("file,label\nalbum/cats/01.png,tom\nalbum/cats/04.png,tom\n")
    photos.add(table)
    move_and_link(album / "cats", tmp_path / "disk2")
    os.utime(album / "cats" / "01.png", (2e9, 2e9))
    synced = photos.sync()
    assert (synced.new, synced.unchanged, synced.removed) == (1, 1, [])
    assert [item.labels for item in photos.index.items(photos.index.ids())] == [("tom",)] * 2


def test_a_picture_that_became_a_folder_is_gone(photos, album):
    photos.add(album)
    (album / "00.png").unlink()
    (album / "00.png").mkdir()
    (album / "03.png").rename(album / "00.png" / "03.png")
    synced = photos.sync()
    root = album.resolve()
    assert synced.removed == [f"{root}/00.png"]
    assert synced.moved == [(f"{root}/03.png", f"{root}/00.png/03.png")]
    assert len(photos.index) == 11


def test_sync_unreadable_folder_is_reported_once(photos, album, monkeypatch):
    photos.add(album)
    closed = str(album.resolve() / "cats")
    original = os.scandir, Path.stat

    def scandir(path):
        if str(path) == closed:
            raise PermissionError(13, "Permission denied", closed)
        return original[0](path)

    def stat(self, **options):
        if self.parent == Path(closed):
            raise PermissionError(13, "Permission denied", str(self))
        return original[1](self, **options)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(Path, "stat", stat)
    synced = photos.sync()
    assert synced.skipped == [(closed, "Permission denied")]
    assert (synced.unchanged, synced.removed, len(photos.index)) == (8, [], 12)


def test_remove(photos, album, monkeypatch):
    photos.add(album)
    monkeypatch.chdir(album)
    with pytest.raises(ValueError, match=r"contains no image or folder no\.png"):
        photos.remove(["00.png", "no.png"])
    assert len(photos.index) == 12
    assert photos.remove(["00.png", "cats", album / "cats" / "01.png"]) == 5
    assert len(photos.index) == 7
    assert photos.add(album).new == 5
    assert photos.remove(["."]) == 12
    assert (len(photos.index), photos.roots) == (0, [])
    assert sorted(photos.index.attachments()) == [
        "model/model.json",
        "model/model.safetensors",
        "places.json",
    ]


def test_another_model_is_refused(photos, encoder, tmp_path):
    encoder.hasher.save(tmp_path / "same")
    photos.check_model(tmp_path / "same")
    create("itq", bits=32, seed=1).fit(draw_shapes(40, size=16)).save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"photos\.bp: .* computed by ITQ.* cannot be compared"):
        photos.check_model(tmp_path / "other")


def test_open_with_changed_weights_raises(photos, tmp_path):
    weights = photos.index.attachments("model/")
    other = Encoder(create("itq", bits=32, seed=1).fit(draw_shapes(40, size=16)))
    photos.index.attach({f"model/{name}": content for name, content in other.files.items()})
    assert photos.index.attachments("model/") != weights
    with (
        Photos.open(photos.index.path) as opened,
        pytest.raises(ValueError, match="but this installation computes those of"),
    ):
        opened.encoder.encode([])


def test_an_index_of_codes_is_not_a_collection(tmp_path):
    with Index.create(tmp_path / "codes.bp", bits=8) as index:
        assert not holds_pictures(index)
    with pytest.raises(ValueError, match=r"codes\.bp: contains codes without a model"):
        Photos.open(tmp_path / "codes.bp")
    assert [path.name for path in tmp_path.iterdir()] == [
        "codes.bp"
    ]  # no log file of an open index


def test_nothing_to_add_is_an_error(photos, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: no images found"):
        photos.add(tmp_path / "empty")
    with pytest.raises(ValueError, match="empty: no images found"):
        Photos.learn(tmp_path / "new.bp", tmp_path / "empty")
    (tmp_path / "empty" / "a.jpg").write_text("no picture")
    with pytest.raises(ValueError, match=r"none of the 1 images can be read; the first, .*a\.jpg"):
        Photos.learn(tmp_path / "new.bp", tmp_path / "empty", features="pixels", bits=8)
    assert not (tmp_path / "new.bp").exists()


def test_sync_of_an_empty_folder_is_an_error_unless_it_is_known(photos, album, tmp_path):
    photos.add(album)
    (tmp_path / "empty").mkdir()
    for folders in ([tmp_path / "empty"], [album, tmp_path / "empty"]):
        with pytest.raises(ValueError, match="empty: no images found"):
            photos.sync(*folders)
    assert photos.roots == [album.resolve()]
    (album / "birds").mkdir()
    assert photos.sync(album / "birds") == (0, 0, [], [], [], [], 0)


def in_child(task):
    """Run a task in a child process; return its process id and a pipe from it."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            task(sending)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(sending)
    return child, os.fdopen(receiving, "rb", buffering=0)


def test_killed_and_continued_equals_uninterrupted(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "BATCH", 8)
    monkeypatch.setattr(encoding, "SECONDS", 0)
    album = tmp_path / "album"
    album.mkdir()
    for number, pixels in enumerate(draw_shapes(100, size=16).pixels):
        Image.fromarray(pixels).save(album / f"{number:03d}.png")
    path = tmp_path / "killed.bp"
    Photos.create(path, encoder).close()

    def work(pipe):
        with Photos.open(path) as photos:
            photos.add(album, progress=lambda done, total: os.write(pipe, b"."))

    sizes = []
    for pause in (0.0, 0.003, 0.006):
        child, pipe = in_child(work)
        with pipe:
            # When the second part is encoded, the first is stored.
            pipe.read(1)
            pipe.read(1)
            time.sleep(pause)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        with Photos.open(path) as photos:
            sizes.append(len(photos.index))
    assert sizes == sorted(sizes)
    assert sizes[0] >= 8
    assert all(size % 8 == 0 or size == 100 for size in sizes)
    with Photos.open(path) as photos, Photos.create(tmp_path / "whole.bp", encoder) as whole:
        assert photos.add(album) == (100 - sizes[-1], sizes[-1], [], [], 0)
        whole.add(album)
        assert photos.index.ids().tolist() == whole.index.ids().tolist()
        assert content(photos) == content(whole)


def test_a_model_is_learned_from_the_pictures_once(tmp_path, album, monkeypatch):
    """An interrupted call is resumed without decoding images again."""
    monkeypatch.setattr(learning, "BATCH", 5)
    monkeypatch.setattr(encoding, "SECONDS", 0)
    original = learning.compute_ahead

    def interrupted(*arguments):
        yield from islice(original(*arguments), 2)
        raise KeyboardInterrupt

    path = tmp_path / "photos.bp"
    monkeypatch.setattr(learning, "compute_ahead", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Photos.learn(path, album, bits=16, features="pixels")
    assert not path.exists()
    monkeypatch.setattr(learning, "compute_ahead", original)
    reports = []
    monkeypatch.setattr(encoding, "compute_ahead", _never)
    with Photos.learn(
        path, album, bits=16, features="pixels", progress=lambda *report: reports.append(report)
    ) as photos:
        assert reports == [(12, 12)]
        assert photos.encoder.pictures == 12
        assert photos.add(album) == (12, 0, [], [], 0)
        pixels = np.stack([decode_image(name, 256) for name in photos.index.ids()])
        vectors = pixels.reshape(12, -1) / np.float32(255)
        expected = create("itq", bits=16).fit(vectors).encode(vectors)
        assert photos.index.codes(photos.index.ids()) == expected
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["album", "photos.bp"]


def test_work_of_some_seconds_is_kept_when_it_is_interrupted(photos, album, monkeypatch):
    """Simulate a slow machine: each batch of two images takes one second."""
    clock = count()
    monkeypatch.setattr(encoding, "monotonic", lambda: next(clock))
    monkeypatch.setattr(encoding, "SECONDS", 3)
    monkeypatch.setattr(encoding, "BATCH", 2)

    def interrupt(done, total):
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        photos.add(album, progress=interrupt)
    assert len(photos.index) == 6
    assert photos.add(album) == (6, 6, [], [], 0)


def _never(paths, *arguments):
    assert not paths
    return iter(())


def test_add_of_a_listing_does_not_list_again(album, tmp_path, monkeypatch):
    listing = list_pictures(album)
    monkeypatch.setattr(os, "walk", None)
    with Photos.learn(tmp_path / "photos.bp", listing, bits=8, features="pixels") as photos:
        assert photos.add(listing) == (12, 0, [], [], 0)
        assert photos.roots == [album.resolve()]
        held = [picture.path for picture in listing.pictures]
        assert sorted(photos.index.ids()) == held
        labels = [item.labels for item in photos.index.items(held)]
        assert labels == [picture.labels for picture in listing.pictures]
        with pytest.raises(ValueError, match="the list: no images found"):
            photos.add(Listing([], [], [], [], []))


def test_a_large_folder_is_sampled(album, tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "SAMPLE", 5)
    with Photos.learn(tmp_path / "a.bp", album, bits=8, features="pixels") as photos:
        assert photos.encoder.pictures == 5
        assert photos.add(album) == (12, 0, [], [], 0)
    with Photos.learn(tmp_path / "b.bp", album, bits=8, features="pixels") as twin:
        assert twin.index.model == photos.index.model


def test_damaged_features_are_refused(album, tmp_path):
    folder = tmp_path / "photos.bp.features"
    folder.mkdir()
    (folder / "000000.npz").write_bytes(b"PK not a zip")
    with pytest.raises(ValueError, match=r"000000\.npz: damaged .*; delete this file"):
        Photos.learn(tmp_path / "photos.bp", album, bits=8, features="pixels")


def test_the_default_model_finds_the_same_picture_in_another_file(tmp_path):
    """Use EfficientNet-Lite0 and ITQ with 256 bits, learned from 12 images."""
    album = tmp_path / "album"
    album.mkdir()
    for number, pixels in enumerate(draw_shapes(12, size=160, seed=3).pixels):
        Image.fromarray(pixels).save(album / f"{number:02d}.jpg", quality=90)
    with Photos.learn(tmp_path / "photos.bp", album) as photos:
        assert photos.add(album).new == 12
        assert photos.encoder.describe() == "ITQ, 256 bits, on efficientnet-lite0 features"
        smaller = [
            np.asarray(Image.open(path).resize((120, 120))) for path in sorted(album.iterdir())
        ]
        ids, _ = photos.index.search(photos.encoder.encode(smaller), k=1)
        assert [Path(name).name for name in ids[:, 0]] == [f"{n:02d}.jpg" for n in range(12)]
