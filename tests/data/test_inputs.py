"""Conversion of the input of `fit` and `encode`, and its errors."""

import io
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from PIL import Image
from torch.utils import data as torch_data

import bitprint as bp
from bitprint.data import decode_image, load_folder
from bitprint.data.inputs import read_inputs

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 8, 10, 3), np.uint8)
FEATURES = RNG.standard_normal((6, 5)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def pixels_of(data, shape=None):
    """Read what must be images; return their pixels in order."""
    items, _ = read_inputs(data, shape)
    assert isinstance(items, bp.ImageSet)
    return items.read(slice(None))


def resized(pixels, height, width):
    """One image, resized by Pillow alone."""
    image = Image.fromarray(pixels)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def check_refused(data, message, error=ValueError, **options):
    """Reading must raise a one-line error that matches `message`."""
    with pytest.raises(error, match=message) as caught:
        read_inputs(data, **options)
    assert "\n" not in str(caught.value)
    assert ". " not in str(caught.value)


class Pairs:
    """A dataset that is not a subclass of torch's."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        if not 0 <= row < len(self.items):
            raise AssertionError("a row that does not exist")
        return self.items[row]


class Wrapped(Pairs, torch_data.Dataset):
    """The same as a torch dataset."""


class Stream(torch_data.IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


@pytest.fixture
def files(tmp_path):
    """Six images of different sizes in a list of paths, each larger than 16 pixels."""
    paths = []
    for row, side in enumerate([20, 30, 40, 20, 30, 40]):
        pixels = RNG.integers(0, 256, (side, side + 5, 3), np.uint8)
        paths.append(tmp_path / "files" / "abc"[row % 3] / f"{row}.png")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(paths[-1])
    return paths


# ---- arrays of images


def test_uint8_images_are_not_copied():
    items, labels = read_inputs(IMAGES)
    assert items.pixels is IMAGES
    assert labels is None


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_float_images_are_rounded_to_uint8(kind):
    values = RNG.random((300, 4, 5, 3)).astype(kind)  # more than one conversion block
    values[0, 0, 0] = 0, 1, 0.5
    found = pixels_of(values)
    for place in [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2), (7, 1, 2, 0), (299, 3, 4, 2)]:
        assert found[place] == round(float(values[place]) * 255)
    assert found.dtype == np.uint8


@pytest.mark.parametrize("tensor", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize("floats", [False, True], ids=["uint8", "float"])
def test_images_with_channels_first_are_transposed(tensor, floats):
    first = np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2))
    first = first.astype(np.float32) / 255 if floats else first
    np.testing.assert_array_equal(pixels_of(torch.from_numpy(first) if tensor else first), IMAGES)


def test_tensors_with_a_gradient_or_bfloat16_are_read():
    values = torch.from_numpy(IMAGES).float() / 255
    np.testing.assert_array_equal(pixels_of(values.requires_grad_()), IMAGES)
    half = torch.tensor([[[[0.0, 0.5, 1.0]]]], dtype=torch.bfloat16)
    assert pixels_of(half).tolist() == [[[[0, 128, 255]]]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_a_gpu_are_read():
    np.testing.assert_array_equal(pixels_of(torch.from_numpy(IMAGES).cuda()), IMAGES)


def test_channels_are_last_where_both_axes_fit():
    both = RNG.integers(0, 256, (2, 3, 7, 3), np.uint8)
    np.testing.assert_array_equal(pixels_of(both), both)
    narrow = RNG.integers(0, 256, (2, 3, 7, 1), np.uint8)
    assert pixels_of(narrow).shape == (2, 3, 7, 3)


@pytest.mark.parametrize("shape", [(6, 8, 10), (6, 8, 10, 1), (6, 1, 8, 10), (1, 8, 10)])
def test_gray_images_get_three_equal_channels(shape):
    gray = IMAGES[: shape[0], :, :, 0].reshape(shape)
    found = pixels_of(gray)
    for channel in range(3):
        np.testing.assert_array_equal(found[..., channel], IMAGES[: shape[0], :, :, 0])
    floats = torch.from_numpy(IMAGES[:, None, :, :, 0]).float() / 255
    np.testing.assert_array_equal(pixels_of(floats), pixels_of(IMAGES[..., :1]))


def test_arrays_of_another_size_are_resized_to_the_model():
    found = pixels_of(IMAGES, (4, 6, 3))
    for row in range(6):
        np.testing.assert_array_equal(found[row], resized(IMAGES[row], 4, 6))
    images = bp.ImageSet(IMAGES)
    assert read_inputs(images, (4, 6, 3))[0] is images


def test_no_images_stay_no_images():
    assert pixels_of(IMAGES[:0]).shape == (0, 8, 10, 3)
    assert pixels_of(IMAGES[:0], (4, 6, 3)).shape == (0, 4, 6, 3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (IMAGES.astype(np.float32), r"must be in \[0, 1\], got values from 0 to 255: divide by"),
        (IMAGES / 128.0 - 1, r"omit the normalization, which Bitprint applies"),
        (np.full((2, 4, 4, 3), np.nan), "float images contain NaN"),
        (np.full((2, 4, 4, 3), np.inf), r"must be in \[0, 1\], got values from inf to inf"),
        (IMAGES.astype(np.int64), r"got int64: use images\.astype\(np\.uint8\)"),
        (IMAGES > 9, "images must be uint8, or floats in"),
        (IMAGES[0], r"got uint8 of shape \(8, 10, 3\): use images\[None\] for one image"),
        (IMAGES[0] / 255.0, r"use images\[None\] for one image"),
        (IMAGES[0, :, :, :1], r"use images\[None\] for one image"),
        (IMAGES[0].transpose(2, 0, 1), r"images\[\.\.\., None\] for N gray images"),
        (IMAGES[..., 0] / 255.0, r"x\.reshape\(len\(x\), -1\) for features"),
        (
            np.zeros((2, 8, 8, 4), np.uint8),
            r"images must have shape \(N, height, width, 3\) or \(N, 3,",
        ),
        (
            np.zeros((2, 0, 8, 3), np.uint8),
            r"images must have shape .* got uint8 of shape \(2, 0, 8, 3",
        ),
        (
            np.zeros((2, 2, 8, 8, 3), np.uint8),
            r"images must have shape .* got uint8 of shape \(2, 2, 8",
        ),
    ],
)
def test_arrays_that_are_no_images_are_refused(values, message):
    check_refused(values, message)
    if np.asarray(values).dtype != bool:
        check_refused(torch.from_numpy(np.ascontiguousarray(values)), message)


# ---- features


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x,
        lambda x: x.astype(np.float64),
        lambda x: x.tolist(),
        list,
        tuple,
        torch.from_numpy,
        lambda x: torch.from_numpy(x).requires_grad_(),
        lambda x: list(torch.from_numpy(x)),
        pd.DataFrame,
        Pairs,
        lambda x: torch_data.TensorDataset(torch.from_numpy(x)),
    ],
)
def test_features_are_read_from_many_kinds(convert):
    items, labels = read_inputs(convert(FEATURES))
    assert items.dtype == np.float32
    np.testing.assert_array_equal(items, FEATURES)
    assert labels is None


def test_features_by_dlpack_are_read():
    class Elsewhere:
        def __dlpack__(self, **options):
            return FEATURES.__dlpack__(**options)

        def __dlpack_device__(self):
            return FEATURES.__dlpack_device__()

    np.testing.assert_array_equal(read_inputs(Elsewhere())[0], FEATURES)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (FEATURES[0], r"use x\[None\] for one vector, .* got float32 of shape \(5,\)"),
        (torch.tensor([0, 2, 1]), "class numbers as labels; got int64"),
        (np.float32(3), r"got float32 of shape \(\)"),
        (scipy.sparse.csr_array(FEATURES), r"sparse .* use features\.toarray\(\)"),
        (scipy.sparse.dok_array(FEATURES), r"sparse .* use features\.toarray\(\)"),
        (torch.from_numpy(FEATURES).to_sparse(), r"sparse .* use x\.to_dense\(\)"),
        (np.where(FEATURES > 0, np.nan, 1), "features contain NaN or infinity"),
        (np.array([["a", 1.0]], object), "features must be numbers"),
        (np.array([["a", "b"]]), "features must be numbers"),
        ([[1.0, 2.0], [3.0]], "neither images nor feature vectors of one length"),
        ([{"image": 1}], "use x"),
        ([1.0, None], "Reshape your data"),
    ],
)
def test_values_that_are_no_features_are_refused(values, message):
    check_refused(values, message)


# ---- other kinds


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "there is no data"),
        ({"image": IMAGES}, r"got a dict: pass its images or features, such as x\['image'\]"),
        ((image for image in IMAGES), r"got a generator: pass a list of its items, list\(x\)"),
        ({1, 2}, r"got a set: pass a list"),
        (dict(a=1).values(), r"got dict_values: pass a list"),
        (b"\x89PNG", r"got bytes: pass the path of an image, or PIL\.Image\.open"),
        (io.BytesIO(), r"got BytesIO: pass the path"),
        (bp, "got module: pass images"),
        ([], "there are no items: pass at least one"),
        (Pairs([]), "there are no items: pass at least one"),
        ([IMAGES], "pass an array of many images without a list"),
        ([FEATURES, LABELS], "item 0: one image must have shape"),
        ([Image.new("RGB", (8, 8)), 3], "item 1: one image must have shape"),
    ],
)
def test_other_kinds_of_data_are_refused(values, message):
    check_refused(values, message)


# ---- files, folders and Pillow's images


def test_one_file_is_one_image(files):
    expected = decode_image(files[0], 256)[None]
    np.testing.assert_array_equal(pixels_of(files[0]), expected)
    np.testing.assert_array_equal(pixels_of(str(files[0])), expected)


def test_files_below_the_home_folder_are_found(files, monkeypatch):
    monkeypatch.setenv("HOME", str(files[0].parent))
    assert pixels_of("~/0.png").shape == (1, 256, 256, 3)


@pytest.mark.parametrize("size", [(16, 16), (12, 18)])
@pytest.mark.parametrize("convert", [list, lambda x: np.array(x, str), pd.Series])
def test_files_are_resized_to_the_size_of_the_model(files, size, convert):
    found = pixels_of(convert(list(map(str, files))), (*size, 3))
    for row, path in enumerate(files):
        expected = resized(np.asarray(Image.open(path)), *size)
        np.testing.assert_array_equal(found[row], expected)


def test_images_of_pillow_have_the_pixels_of_their_files(files):
    opened = [Image.open(path) for path in files]
    np.testing.assert_array_equal(pixels_of(opened, (16, 16, 3)), pixels_of(files, (16, 16, 3)))
    arrays = [np.asarray(image) for image in opened]
    np.testing.assert_array_equal(pixels_of(arrays, (16, 16, 3)), pixels_of(files, (16, 16, 3)))
    mixed = [files[0], opened[1], arrays[2]]
    np.testing.assert_array_equal(pixels_of(mixed, (9, 9, 3)), pixels_of(files[:3], (9, 9, 3)))


def test_a_large_jpeg_opened_by_pillow_equals_its_file(tmp_path):
    Image.fromarray(RNG.integers(0, 256, (300, 400, 3), np.uint8)).save(tmp_path / "a.jpg")
    image = Image.open(tmp_path / "a.jpg")
    expected = pixels_of(tmp_path / "a.jpg", (16, 16, 3))
    np.testing.assert_array_equal(pixels_of(image, (16, 16, 3)), expected)
    assert image.size == (400, 300)
    whole = np.asarray(Image.open(tmp_path / "a.jpg"))
    np.testing.assert_array_equal(np.asarray(image), whole)  # it can still be decoded at full size
    assert (resized(whole, 16, 16) != expected[0]).any()  # so that the comparison is meaningful


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "I;16", "CMYK", "LA"])
def test_images_of_pillow_in_other_modes_become_rgb(mode):
    image = Image.fromarray(IMAGES[0]).convert("L").convert(mode)
    file = io.BytesIO()
    image.save(file, "TIFF")
    np.testing.assert_array_equal(pixels_of(image)[0], decode_image(file, (8, 10)))


def test_images_of_one_size_keep_it_and_others_become_256():
    same = [Image.fromarray(image) for image in IMAGES]
    np.testing.assert_array_equal(pixels_of(same), IMAGES)
    np.testing.assert_array_equal(pixels_of(list(IMAGES)), IMAGES)
    np.testing.assert_array_equal(pixels_of(same[0]), IMAGES[:1])
    others = [*IMAGES[:2], IMAGES[2, :5], IMAGES[3]]
    found = pixels_of(others)
    for row, image in enumerate(others):
        np.testing.assert_array_equal(found[row], resized(image, 256, 256))


def test_arrays_in_a_list_have_channels_first_or_none():
    first = [torch.from_numpy(image.transpose(2, 0, 1).copy()).float() / 255 for image in IMAGES]
    np.testing.assert_array_equal(pixels_of(first), IMAGES)
    gray = pixels_of(list(IMAGES[..., 0]))
    np.testing.assert_array_equal(gray, pixels_of(IMAGES[..., :1]))
    objects = np.empty(2, object)
    objects[:] = [IMAGES[0], IMAGES[1]]
    np.testing.assert_array_equal(pixels_of(objects), IMAGES[:2])


def test_a_folder_is_read_as_by_its_loader(files):
    folder = files[0].parents[1]
    items, labels = read_inputs(str(folder))
    expected = load_folder(folder)
    assert items.ids.tolist() == expected.ids.tolist()
    assert labels.tolist() == expected.labels.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(items.pixels, expected.pixels)
    small, _ = read_inputs(folder, (12, 18, 3))
    by_name = dict(zip(small.ids, small.pixels, strict=True))
    for path in files:
        expected_pixels = resized(np.asarray(Image.open(path)), 12, 18)
        np.testing.assert_array_equal(by_name[f"{path.parent.name}/{path.name}"], expected_pixels)


def test_files_of_a_folder_that_are_damaged_are_warned_of(files):
    files[0].write_bytes(b"no image")
    with pytest.warns(
        UserWarning, match=r"skipped 1 images that cannot be read; the first, a/0\.png"
    ):
        items, _ = read_inputs(files[0].parents[1])
    assert len(items) == 5


def test_paths_that_are_no_images_are_refused(files, tmp_path):
    (tmp_path / "text.jpg").write_text("no image")
    check_refused(str(tmp_path / "text.jpg"), r"text\.jpg: not a readable image")
    check_refused([files[0], tmp_path / "text.jpg"], r"text\.jpg: not a readable image")
    check_refused(
        [files[0], Image.new("L", (4, 4)), str(tmp_path)], "is a folder: pass a single folder"
    )
    check_refused([files[0], tmp_path], "is a folder: pass a single folder, or a list of image")
    for missing in (
        "cat",
        ["dog", "cat"],
        "x" * 10_000,
        "a\0b",
        "~nobody-here/a",
        "https://example.org/a.jpg",
    ):
        check_refused(missing, "no such file or folder; pass the path", FileNotFoundError)


def test_images_of_pillow_that_are_closed_are_refused(files, tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.jpg")
    for path in (files[0], tmp_path / "a.jpg"):
        with Image.open(path) as image:
            pass
        check_refused([image], "item 0: not a readable image", shape=(8, 8, 3))


def test_images_for_a_model_of_features_are_refused_early(files):
    message = r"trained on feature vectors of length 5, .* pass features of"
    for data in (files, files[0].parents[1], IMAGES, list(IMAGES), Image.new("L", (3, 3))):
        check_refused(data, message, shape=(5,))
    np.testing.assert_array_equal(read_inputs(FEATURES, (5,))[0], FEATURES)


# ---- datasets and loaders


def item_kinds():
    tensors = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())
    return {
        "PIL": [Image.fromarray(image) for image in IMAGES],
        "arrays": list(IMAGES),
        "uint8 tensors": list(tensors),
        "float tensors": list(tensors.float() / 255),
    }


@pytest.mark.parametrize("kind", item_kinds())
@pytest.mark.parametrize("wrap", [Pairs, Wrapped, Stream])
def test_datasets_give_images_and_labels_in_order(kind, wrap):
    images = item_kinds()[kind]
    items, labels = read_inputs(wrap(list(zip(images, LABELS.tolist(), strict=True))))
    np.testing.assert_array_equal(items.pixels, IMAGES)
    assert labels.tolist() == LABELS.tolist()
    items, labels = read_inputs(wrap(images))
    np.testing.assert_array_equal(items.pixels, IMAGES)
    assert labels is None


def test_a_dataset_of_vectors_gives_features_and_labels():
    dataset = torch_data.TensorDataset(torch.from_numpy(FEATURES), torch.from_numpy(LABELS))
    items, labels = read_inputs(dataset)
    np.testing.assert_array_equal(items, FEATURES)
    np.testing.assert_array_equal(labels, LABELS)
    items, labels = read_inputs(torch_data.Subset(dataset, [4, 1]))
    np.testing.assert_array_equal(items, FEATURES[[4, 1]])
    assert labels.tolist() == [1, 1]


def test_label_vectors_of_a_dataset_become_a_matrix():
    hot = torch.eye(3)[torch.from_numpy(LABELS)]
    _, labels = read_inputs(Pairs(list(zip(IMAGES, hot, strict=True))))
    np.testing.assert_array_equal(labels, hot)


def test_odd_labels_of_a_dataset_do_not_stop_encoding():
    odd = [{}, None, "cat", [1, 2], 3.5, torch.zeros(2)]
    items, labels = read_inputs(Pairs(list(zip(IMAGES, odd, strict=True))))
    assert len(items) == 6
    assert len(labels) == 6


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"batch_size": None}])
def test_a_loader_gives_its_dataset_in_order(options):
    dataset = torch_data.TensorDataset(torch.from_numpy(FEATURES), torch.from_numpy(LABELS))
    items, labels = read_inputs(torch_data.DataLoader(dataset, **{"batch_size": 4} | options))
    np.testing.assert_array_equal(items, FEATURES)
    np.testing.assert_array_equal(labels, LABELS)


def test_a_loader_of_a_stream_gives_its_items():
    stream = Stream(list(zip(IMAGES, LABELS, strict=True)))
    items, labels = read_inputs(torch_data.DataLoader(stream, batch_size=4))
    np.testing.assert_array_equal(items.pixels, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)


def test_a_loader_of_some_rows_is_refused():
    dataset = torch_data.TensorDataset(torch.from_numpy(FEATURES))
    sampler = torch_data.SubsetRandomSampler([0, 1])
    message = r"by a SubsetRandomSampler: .* torch\.utils\.data\.Subset\(dataset, rows\)"
    check_refused(torch_data.DataLoader(dataset, sampler=sampler), message)
    batches = torch_data.BatchSampler(sampler, 2, drop_last=False)
    check_refused(torch_data.DataLoader(dataset, batch_sampler=batches), message)


def test_datasets_of_other_items_are_refused():
    check_refused(Pairs([{"image": IMAGES[0]}]), r"items of this dataset have type dict: pass a")
    normalized = (torch.rand(3, 8, 8) - 0.45) / 0.22
    check_refused(Pairs([(normalized, 1)]), r"item 0: float images must be in \[0, 1\]")
    check_refused(Pairs([(IMAGES[0], 1), (FEATURES[0], 1)]), "item 1: one image must have shape")

    class Endless(torch_data.Dataset):
        def __getitem__(self, row):
            return IMAGES[0]

    check_refused(Endless(), "Endless has no length: define __len__")


# ---- hashers


@pytest.fixture(scope="module", params=["itq", "ksh", "dpsh"])
def create(request):
    """Create an unsupervised, a supervised and a deep hasher."""
    options = {"backbone": "small", "epochs": 1, "device": "cpu"} if request.param == "dpsh" else {}
    return lambda: bp.create(request.param, bits=8, **options)


@pytest.fixture(scope="module")
def trained(create):
    """A hasher that was fitted on images of 12 x 16."""
    pixels = np.random.default_rng(1).integers(0, 256, (9, 12, 16, 3), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create().fit(pixels, np.arange(9) % 3)


def test_hashers_encode_files_images_and_arrays_alike(trained, files, tmp_path):
    expected = trained.encode(
        bp.ImageSet(np.stack([decode_image(path, (12, 16)) for path in files]))
    )
    assert trained.encode(files) == expected
    assert trained.encode([Image.open(path) for path in files]) == expected
    assert trained.encode(Pairs([(Image.open(path), -1) for path in files])) == expected
    assert trained.encode(str(files[2])) == expected[2:3]
    assert trained.encode(Image.open(files[2])) == expected[2:3]
    assert trained.encode_queries(files[2]) == expected[2:3]
    in_order = sorted(range(6), key=lambda row: str(files[row]))
    codes = trained.encode(files[0].parents[1])
    assert [codes[row : row + 1] for row in range(6)] == [expected[r : r + 1] for r in in_order]
    trained.save(tmp_path / "model")
    assert bp.load(tmp_path / "model").encode(files) == expected


def test_hashers_encode_floats_with_channels_first(trained):
    pixels = RNG.integers(0, 256, (4, 12, 16, 3), np.uint8)
    expected = trained.encode(bp.ImageSet(pixels))
    assert trained.encode(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255) == expected
    assert trained.project(pixels / 255).shape == (4, 8)


@pytest.mark.filterwarnings("ignore:dpsh gives the same code")
def test_fit_takes_labels_of_a_dataset_or_those_given(create):
    pixels = RNG.integers(0, 256, (9, 8, 8, 3), np.uint8)
    labels = np.arange(9) % 3
    others = np.arange(9) % 2
    expected = create().fit(bp.ImageSet(pixels), labels).encode(pixels)
    dataset = Wrapped(list(zip(pixels, labels, strict=True)))
    loader = torch_data.DataLoader(dataset, shuffle=True)
    assert create().fit(dataset).encode(pixels) == expected
    assert create().fit(loader).encode(pixels) == expected
    misleading = Wrapped(list(zip(pixels, others, strict=True)))
    assert create().fit(misleading, labels).encode(pixels) == expected
    if create().supervision == "labels":
        with pytest.raises(ValueError, match="9 images but 8 labels"):
            create().fit(dataset, labels[:8])


@pytest.mark.parametrize("name", ["itq", "dpsh"])
@pytest.mark.filterwarnings("ignore:dpsh gives the same code")
def test_fit_takes_a_folder_with_labels(name, tmp_path):
    for row in range(4):
        path = tmp_path / "ab"[row % 2] / f"{row}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    options = {"backbone": "small", "epochs": 1, "device": "cpu"} if name == "dpsh" else {}
    hasher = bp.create(name, bits=4, **options).fit(str(tmp_path))
    assert tuple(hasher.input_shape_) == (256, 256, 3)
    assert hasher.encode(tmp_path) == hasher.encode(load_folder(tmp_path))
    if name == "dpsh":
        assert hasher.label_names_ == ["a", "b"]


def test_a_shallow_hasher_of_features_refuses_images():
    """768 features can be the pixels of 16 x 16 images, but need not be."""
    features = RNG.standard_normal((20, 768))
    hasher = bp.create("itq", bits=8).fit(features)
    with pytest.raises(ValueError, match=r"trained on feature vectors of length 768"):
        hasher.encode(Image.new("RGB", (16, 16)))
    del hasher.input_shape_  # as in models of earlier versions
    with pytest.raises(ValueError, match=r"trained on feature vectors of length 768"):
        hasher.encode(Image.new("RGB", (16, 16)))
    assert len(hasher.encode(features)) == 20


@pytest.mark.parametrize("shape", [[8, 8], [8, 8, 4], "8x8", [-8, -8, 3], [8.0, 8.0, 3], None])
def test_a_stored_shape_that_cannot_be_is_refused(shape, tmp_path):
    hasher = bp.create("itq", bits=8).fit(RNG.integers(0, 256, (20, 8, 8, 3), np.uint8))
    hasher.save(tmp_path)
    assert bp.load(tmp_path).input_shape_ == (8, 8, 3)
    hasher.input_shape_ = shape
    hasher.save(tmp_path)
    with pytest.raises(ValueError, match="does not match 192 features"):
        bp.load(tmp_path)


def test_the_module_imports_neither_torch_nor_torchvision():
    code = (
        "import sys, numpy; from bitprint.data.inputs import read_inputs;"
        "read_inputs([[1.0, 2.0]]); read_inputs(numpy.zeros((2, 8, 8, 3), numpy.uint8));"
        "print([name for name in ('torch', 'torchvision', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_names_as_labels_of_a_dataset_are_learned():
    pixels = RNG.integers(0, 256, (8, 8, 8, 3), np.uint8)
    dataset = Wrapped(list(zip(pixels, ["cat", "dog"] * 4, strict=True)))
    expected = bp.create("ksh", bits=4).fit(pixels, [0, 1] * 4)
    assert bp.create("ksh", bits=4).fit(dataset).encode(pixels) == expected.encode(pixels)
    deep = bp.create("dpsh", bits=4, backbone="small", epochs=1, device="cpu").fit(dataset)
    assert deep.label_names_ == ["cat", "dog"]


@pytest.mark.filterwarnings("ignore:dpsh gives the same code")
def test_train_reads_a_stream_once():
    notes = []
    stream = Stream(iter(list(zip(IMAGES, LABELS, strict=True))))  # empty when read again
    options = {"backbone": "small", "epochs": 1, "device": "cpu", "progress": False}
    hasher = bp.train(stream, bits=4, method="dpsh", note=notes.append, **options)
    assert notes
    assert len(hasher.encode(IMAGES)) == 6


def test_train_computes_features_of_a_dataset():
    hasher = bp.train(Pairs(list(IMAGES[:, :, :8])), bits=4, method="itq", features="gist")
    assert hasher.n_features_in_ == 512
