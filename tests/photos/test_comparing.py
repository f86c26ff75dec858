from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance

from bitprint.codes import Codes
from bitprint.data import draw_shapes
from bitprint.photos import compare_pictures, comparing, find_duplicates, likeness
from bitprint.photos.likeness import ALIKE
from bitprint.search.index import Index


def pizza(seed, size=200):
    """Draw a pizza; only the toppings depend on the seed."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (size, size), (120, 90, 60))
    draw = ImageDraw.Draw(image)
    draw.ellipse((10, 10, size - 10, size - 10), fill=(220, 180, 90))
    for x, y, radius in zip(*rng.integers((30, 30, 6), (150, 150, 26), (30, 3)).T, strict=True):
        color = tuple(int(value) for value in rng.choice([(170, 40, 30), (60, 110, 40)]))
        draw.ellipse((x, y, x + radius, y + radius), fill=color)
    return image


def crop(image):
    return image.crop((6, 6, image.width - 6, image.height - 6))


def mark(image):
    marked = image.copy()
    ImageDraw.Draw(marked).rectangle((150, 182, 190, 192), fill="white")
    return marked


COPIES = {
    "again.jpg": (lambda image: image, {"quality": 30}),
    "half.png": (lambda image: image.resize((100, 100)), {}),
    "brighter.jpg": (lambda image: ImageEnhance.Brightness(image).enhance(1.15), {}),
    "cropped.jpg": (crop, {}),
    "marked.jpg": (mark, {}),
}


@pytest.fixture
def index_of(tmp_path):
    """Return a function that creates an index of images with equal 8-bit codes."""
    opened = []

    def make(images, flipped=None):
        for name, image in images.items():
            image.save(tmp_path / name)
        signs = np.ones((len(images), 8))
        for row, bits in (flipped or {}).items():
            signs[row, :bits] = -1
        index = Index.create(tmp_path / "photos.bp", bits=8)
        opened.append(index)
        paths = [tmp_path / name for name in images]
        index.add(list(images), Codes.from_signs(signs), paths=paths)
        return index

    yield make
    for index in opened:
        index.close()


def test_different_pictures_with_one_code_are_split(index_of):
    index = index_of({f"{seed}.jpg": pizza(seed) for seed in range(6)})
    groups = find_duplicates(index)
    assert len(groups[0].ids) == 6
    assert compare_pictures(index, groups) == ([], [], 0)


def test_copies_stay_together(index_of, tmp_path):
    images = {f"{seed}.png": pizza(seed) for seed in range(3)}
    index = index_of(images)
    for name, (change, how) in COPIES.items():
        change(pizza(1)).save(tmp_path / name, **how)
    index.add(list(COPIES), Codes.from_signs(np.ones((5, 8))), [tmp_path / name for name in COPIES])
    groups, skipped, without_file = compare_pictures(index, find_duplicates(index))
    assert groups == [(["1.png", *COPIES], 0)]
    assert (skipped, without_file) == ([], 0)


def test_turned_and_mirrored_copies_stay_together(index_of):
    images = {"a.png": pizza(1), "b.png": pizza(1).rotate(90), "c.png": pizza(2)}
    images |= {"d.png": pizza(1).transpose(Image.Transpose.FLIP_LEFT_RIGHT)}
    index = index_of(images)
    groups = compare_pictures(index, find_duplicates(index)).groups
    assert groups == [(["a.png", "b.png", "d.png"], 0)]


def test_the_camera_s_orientation_is_respected(index_of, tmp_path):
    index = index_of({"upright.png": pizza(1), "lying.png": pizza(1)})
    exif = Image.Exif()
    exif[0x0112] = 6
    pizza(1).rotate(90).save(tmp_path / "lying.png", exif=exif)
    [group] = compare_pictures(index, find_duplicates(index)).groups
    assert group.ids == ["upright.png", "lying.png"]


def test_links_are_as_short_as_the_radius(index_of):
    """The first and the last image are equal, 4 bits apart; the one between them differs."""
    images = {"a.png": pizza(1), "b.png": pizza(2), "c.png": pizza(1)}
    index = index_of(images, flipped={1: 2, 2: 4})
    groups = find_duplicates(index, 2)
    assert groups == [(["a.png", "b.png", "c.png"], 4)]
    assert compare_pictures(index, groups, 2).groups == []
    assert compare_pictures(index, find_duplicates(index, 4), 4).groups == [(["a.png", "c.png"], 4)]


def test_groups_have_their_own_distances_and_the_largest_comes_first(index_of):
    images = {"a.png": pizza(1), "b.png": pizza(2), "c.png": pizza(1)}
    images |= {"d.png": pizza(2), "e.png": pizza(2)}
    index = index_of(images, flipped={2: 1, 3: 2})
    compared = compare_pictures(index, find_duplicates(index))
    assert compared.groups == [(["b.png", "d.png", "e.png"], 2), (["a.png", "c.png"], 1)]


def test_large_groups_are_compared_in_a_temporary_file(index_of, monkeypatch):
    images = {f"{seed}-{copy}.png": pizza(seed) for copy in range(2) for seed in range(4)}
    index = index_of(images, flipped={3: 1, 6: 2})
    groups = find_duplicates(index)
    assert len(groups[0].ids) == 8
    plain = compare_pictures(index, groups)
    monkeypatch.setattr(likeness, "_IN_MEMORY", 0)
    monkeypatch.setattr(likeness, "_IMAGES", 3)
    monkeypatch.setattr(comparing, "_PAIRS", 1)
    assert compare_pictures(index, groups) == plain
    assert len(plain.groups) == 4


def test_compare_missing_and_unreadable_files_are_skipped(index_of, tmp_path):
    names = ["a.png", "gone.png", "copy.png", "broken.png", "folder.png"]
    index = index_of({name: pizza(1) for name in names})
    (tmp_path / "gone.png").unlink()
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (tmp_path / "folder.png").unlink()
    (tmp_path / "folder.png").mkdir()
    groups, skipped, without_file = compare_pictures(index, find_duplicates(index))
    assert groups == [(["a.png", "copy.png"], 0)]
    reasons = {Path(path).name: reason for path, reason in skipped}
    assert list(reasons) == ["gone.png", "broken.png", "folder.png"]
    assert reasons["gone.png"] == "no such file"
    assert reasons["broken.png"] == "unsupported format"
    assert without_file == 0


def test_codes_without_files_are_grouped_by_codes_alone(tmp_path):
    with Index.create(tmp_path / "codes.bp", bits=8) as index:
        index.add(["a", "b", "c"], Codes.from_signs(np.ones((3, 8))))
        groups = find_duplicates(index)
        assert compare_pictures(index, groups) == (groups, [], 3)
        assert groups == [(["a", "b", "c"], 0)]


def test_pictures_and_codes_without_files_do_not_mix(index_of):
    index = index_of({"a.png": pizza(1), "b.png": pizza(1), "c.png": pizza(2)})
    ids = ["plain", "far", "s3"]
    index.add(ids, Codes.from_signs(np.ones((3, 8))), [None, None, "s3://bucket/a.png"])
    compared = compare_pictures(index, find_duplicates(index))
    assert compared == ([(["plain", "far", "s3"], 0), (["a.png", "b.png"], 0)], [], 3)


def test_only_pictures_of_groups_are_opened(index_of, tmp_path):
    images = {"a.png": pizza(1), "alone.png": pizza(2), "b.png": pizza(1)}
    index = index_of(images, flipped={1: 8})
    (tmp_path / "alone.png").unlink()
    seen = []
    compared = compare_pictures(
        index, find_duplicates(index), progress=lambda *now: seen.append(now)
    )
    assert compared == ([(["a.png", "b.png"], 0)], [], 0)
    assert seen == [(2, 2)]


def test_pictures_are_opened_in_batches(index_of):
    scenes = draw_shapes(50, size=32).pixels
    images = {f"{row:03}.png": Image.fromarray(scenes[row // 3]) for row in range(150)}
    index, seen = index_of(images), []
    compared = compare_pictures(
        index, find_duplicates(index), progress=lambda *now: seen.append(now)
    )
    names = list(images)
    threes = [names[start : start + 3] for start in range(0, 150, 3)]
    assert [group.ids for group in compared.groups] == threes
    assert seen == [(64, 150), (128, 150), (150, 150)]


def test_compare_with_another_difference(index_of):
    index = index_of({"a.png": pizza(1), "b.png": mark(pizza(1))})
    groups = find_duplicates(index)
    assert compare_pictures(index, groups, difference=ALIKE).groups == groups
    assert compare_pictures(index, groups, difference=0.0).groups == []


def test_nothing_is_found_in_an_empty_index(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=8) as index:
        assert compare_pictures(index, find_duplicates(index)) == ([], [], 0)
