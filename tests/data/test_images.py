import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from bitprint.data import SHAPES_COUNT, draw_shapes, load_digits, open_images
from bitprint.data.images import ImageSet


def numbered(count, height=4, width=6):
    """Images in which every pixel of image i is i."""
    return np.repeat(np.arange(count, dtype=np.uint8), height * width * 3).reshape(
        count, height, width, 3
    )


def numbers(images):
    return images.read(slice(None))[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((3, 4, 4, 3), np.float32),
        np.zeros((3, 4, 4, 3), np.int64),
        np.zeros((3, 4, 4), np.uint8),
        np.zeros((3, 4, 4, 1), np.uint8),
        np.zeros((3, 4, 4, 4), np.uint8),
        np.zeros((3, 3, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.uint8),
    ],
)
def test_pixels_have_one_form(pixels):
    message = r"images must be uint8 of shape \(N, height, width, 3\), got"
    with pytest.raises(ValueError, match=message):
        ImageSet(pixels)


@pytest.mark.parametrize(
    "pixels", [torch.zeros(2, 3, 4, 4), [[0]], np.zeros((2, 3, 4, 4), np.float32)]
)
def test_pixels_of_another_kind_name_the_converter(pixels):
    with pytest.raises(ValueError, match=r"convert .* by bitprint\.data\.inputs\.read_inputs\(x\)"):
        ImageSet(pixels)


def test_repr_of_an_image_set_is_one_line():
    images = ImageSet(numbered(3), labels=[0, 1, 1], name="toys")
    assert repr(images) == "ImageSet('toys': 3 images of 4 x 6, 2 classes)"
    assert repr(ImageSet(numbered(3))) == "ImageSet('images': 3 images of 4 x 6, no labels)"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"labels": [0, 1]}, "3 images but 2 labels"),
        ({"labels": [0, 1, -1]}, "class numbers must be integers >= 0"),
        ({"labels": [[0, 1], [1, 1], [0, 2]]}, "a label matrix must contain only 0 and 1"),
        ({"ids": ["a", "b"]}, "3 images but 2 ids"),
        ({"rows": [0, 3]}, r"rows must be in 0\.\.2"),
        ({"rows": [-1, 0]}, r"rows must be in 0\.\.2"),
        ({"rows": [0, 1], "ids": ["a", "b", "c"]}, "2 images but 3 ids"),
        ({"rows": [0, 1], "labels": [0, 1, 2]}, "2 images but 3 labels"),
    ],
)
def test_facts_must_fit_the_images(facts, message):
    with pytest.raises(ValueError, match=message):
        ImageSet(numbered(3), **facts)


def test_what_is_not_given_is_filled_in():
    images = ImageSet(numbered(3))
    assert len(images) == 3
    assert images.size == (4, 6)
    assert images.labels is None
    assert images.ids.tolist() == ["0", "1", "2"]
    assert images.rows.tolist() == [0, 1, 2]


def test_labels_are_given_one_form():
    assert ImageSet(numbered(3), labels=[0.0, 2.0, 1.0]).labels.dtype == np.int64
    assert ImageSet(numbered(3), labels=np.eye(3, dtype=bool)).labels.dtype == np.uint8


def test_class_names_become_label_names():
    images = ImageSet(numbered(3), labels=["emu", "cat", "emu"])
    assert (images.labels.tolist(), images.label_names) == ([1, 0, 1], ["cat", "emu"])
    assert images.subset([0]).labels.tolist() == [1]
    given = ImageSet(numbered(3), labels=["emu", "cat", "emu"], label_names=["emu", "fox", "cat"])
    assert (given.labels.tolist(), given.label_names) == ([0, 2, 0], ["emu", "fox", "cat"])


def test_it_cannot_be_changed_by_accident():
    images = ImageSet(numbered(3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        images.labels = np.zeros(3)


@pytest.mark.parametrize("rows", [[4, 0, 2], [3, 3], np.arange(5) % 2 == 0, [], [-1], range(2)])
def test_a_subset_is_made_of_the_rows(rows):
    labels = np.array([5, 6, 7, 8, 9])
    images = ImageSet(
        numbered(5), labels, ids=list("abcde"), label_names=list("0123456789"), name="five"
    )
    part = images.subset(rows)
    wanted = np.arange(5)[np.asarray(rows, None if len(rows) else int)].tolist()
    assert len(part) == len(wanted)
    assert numbers(part) == wanted
    assert part.labels.tolist() == labels[wanted].tolist()
    assert part.ids.tolist() == ["abcde"[row] for row in wanted]
    assert (part.name, part.label_names) == ("five", images.label_names)


def test_subsets_share_the_pixels_of_their_parent():
    images = ImageSet(numbered(9), labels=np.arange(9))
    part = images.subset([8, 1, 5, 3])
    nested = part.subset([3, 0])
    deepest = nested.subset([False, True])
    assert numbers(nested) == [3, 8]
    assert numbers(deepest) == [8]
    assert nested.labels.tolist() == [3, 8]
    assert nested.ids.tolist() == ["3", "8"]
    for each in (part, nested, deepest):
        assert np.shares_memory(each.pixels, images.pixels)
        assert each.pixels.shape == images.pixels.shape


def test_a_subset_of_a_memory_map_reads_nothing(tmp_path):
    numbered(9).tofile(tmp_path / "pixels")
    pixels = np.memmap(tmp_path / "pixels", np.uint8, "r", shape=(9, 4, 6, 3))
    part = ImageSet(pixels).subset([7, 2])
    assert isinstance(part.pixels, np.memmap)
    assert np.shares_memory(part.pixels, pixels)
    assert numbers(part) == [7, 2]


def test_a_multi_label_set_has_multi_label_subsets():
    labels = np.array([[1, 0], [1, 1], [0, 0]])
    part = ImageSet(numbered(3), labels).subset([2, 1])
    assert part.labels.tolist() == [[0, 0], [1, 1]]


def test_only_the_whole_set_lists_skipped_files():
    images = ImageSet(numbered(3), skipped=[("broken.png", "not an image")])
    assert images.subset([0]).skipped == ()


@pytest.mark.parametrize("rows", [[2, 0], slice(1, 3), np.array([1]), [], slice(0, 0)])
def test_reading_gives_those_images(rows):
    images = ImageSet(numbered(5)).subset([4, 3, 2])
    rows = np.asarray(rows, int) if isinstance(rows, list) else rows
    pixels = images.read(rows)
    expected = np.array([4, 3, 2])[rows]
    assert pixels.dtype == np.uint8
    assert pixels.shape == (len(expected), 4, 6, 3)
    assert (pixels == expected[:, None, None, None]).all()


def test_subset_of_a_loaded_set_keeps_its_fields():
    about = {"protocol": "cifar10", "backbone": "small", "mirrored_alike": False}
    part = ImageSet(numbered(3), [[1], [0], [1]], **about).subset([0, 1])
    for each in (part, part.labelled()):
        assert {name: getattr(each, name) for name in about} == about
    assert part.fingerprint() == ImageSet(numbered(2), [[1], [0]]).fingerprint()


def test_loaded_sets_suggest_network_and_mirroring():
    digits, shapes = load_digits(), draw_shapes(2)
    assert (digits.backbone, digits.mirrored_alike) == ("small", False)
    assert (shapes.backbone, shapes.mirrored_alike) == ("small", True)
    plain = ImageSet(numbered(1))
    assert (plain.protocol, plain.backbone, plain.mirrored_alike) == (None, None, True)


# Fingerprints


def test_the_same_set_has_the_same_fingerprint(tmp_path):
    numbered(4).tofile(tmp_path / "pixels")
    mapped = np.memmap(tmp_path / "pixels", np.uint8, "r", shape=(4, 4, 6, 3))
    images = ImageSet(numbered(4), labels=[0, 1, 1, 0])
    assert images.fingerprint() == ImageSet(mapped, labels=[0, 1, 1, 0]).fingerprint()
    assert images.fingerprint() == images.subset([0, 1, 2, 3]).fingerprint()
    assert images.fingerprint() == images.subset([3, 2, 1, 0]).subset([3, 2, 1, 0]).fingerprint()


def test_every_other_set_has_another_fingerprint():
    labels = [0, 1, 1, 0]
    images = ImageSet(numbered(4), labels)
    others = [
        images,
        images.subset([1, 0, 2, 3]),
        images.subset([0, 1, 2]),
        ImageSet(numbered(4)),
        ImageSet(numbered(4), [0, 1, 1, 1]),
        ImageSet(numbered(4), [0, 1, 0, 1]),
        ImageSet(numbered(4), np.eye(4)),
        ImageSet(numbered(4), labels, ids=list("0124")),
        ImageSet(numbered(4), labels, ids=list("1023")),
        ImageSet(numbered(4), labels, name="others"),
        ImageSet(numbered(4, height=5), labels),
        ImageSet(numbered(4, width=4), labels),
    ]
    assert len({other.fingerprint() for other in others}) == len(others)


def test_names_that_are_no_text_have_a_fingerprint_and_others_keep_theirs():
    stray, plain = (ImageSet(numbered(2), ids=["a", name]) for name in ("\udce9", "é"))
    assert stray.fingerprint() != plain.fingerprint()
    assert plain.fingerprint() == (
        "21a564997b1b0a713e5cfd56855dbac47f3525ba3263d3df52f9431e261a8d55"
    )


def test_class_numbers_and_a_matrix_of_the_same_bytes_differ():
    vector = ImageSet(numbered(2), labels=np.array([1, 0]))
    matrix = ImageSet(numbered(2), labels=np.array([1, 0]).view(np.uint8).reshape(2, 8))
    assert vector.labels.tobytes() == matrix.labels.tobytes()
    assert vector.fingerprint() != matrix.fingerprint()


def test_other_pixels_with_the_same_names_differ():
    """A run must not resume with other images; plain arrays have no file names."""
    images, darker = numbered(4), numbered(4)
    darker[2] = 0
    assert ImageSet(images).fingerprint() != ImageSet(darker).fingerprint()


def test_numbers_serve_as_ids():
    images = ImageSet(numbered(3), ids=[7, 8, 9])
    assert images.subset([2]).ids.tolist() == ["9"]
    assert images.fingerprint() == ImageSet(numbered(3), ids=["7", "8", "9"]).fingerprint()


# Opening by name


def test_open_digits():
    digits = open_images("digits")
    assert digits.name == "digits"
    assert digits.fingerprint() == load_digits().fingerprint()
    assert np.array_equal(digits.pixels, load_digits().pixels)


def test_open_shapes():
    shapes = open_images("shapes")
    assert len(shapes) == SHAPES_COUNT
    assert shapes.labels.ndim == 2
    assert np.array_equal(shapes.pixels[:50], draw_shapes(50).pixels)


def test_open_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))
    for shade, name in enumerate(["cat/a.png", "dog/b.png"]):
        (tmp_path / "pets" / name).parent.mkdir(parents=True)
        Image.new("RGB", (9, 7), (shade, 0, 0)).save(tmp_path / "pets" / name)
    done = []
    images = open_images(
        str(tmp_path / "pets"), progress=lambda count, total: done.append((count, total))
    )
    assert images.ids.tolist() == ["cat/a.png", "dog/b.png"]
    assert images.labels.tolist() == [0, 1]
    assert numbers(images) == [0, 1]
    assert done[-1] == (2, 2)
    assert (tmp_path / "home").is_dir()
    (tmp_path / "labels.csv").write_text("file,label\ndog/b.png,brave\n")
    some = open_images(tmp_path / "pets", labels=tmp_path / "labels.csv")
    assert some.ids.tolist() == ["dog/b.png"]
    assert some.label_names == ["brave"]


def test_a_name_that_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="imagenet: no such folder"):
        open_images("imagenet")


def test_labelled_images():
    plain = ImageSet(numbered(3), labels=[2, 0, 0])
    assert plain.labelled() is plain
    full = ImageSet(numbered(2), labels=[[1, 1], [0, 1]])
    assert full.labelled() is full
    assert len(ImageSet(numbered(3)).labelled()) == 0
    several = ImageSet(numbered(3), labels=[[1, 1], [0, 0], [0, 1]]).labelled()
    assert (numbers(several), several.labels.tolist()) == ([0, 2], [[1, 1], [0, 1]])
    single = ImageSet(numbered(3), labels=[[0, 0], [0, 1], [1, 0]]).labelled()
    assert (numbers(single), single.labels.tolist()) == ([1, 2], [1, 0])
