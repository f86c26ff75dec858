import io
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bitprint.data.images import ImageSet
from bitprint.features import cached_features, deep_features, extract, gist


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path))
    return tmp_path / "features"


def noise(count, seed=0, **facts):
    rng = np.random.default_rng(seed)
    return ImageSet(rng.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8), **facts)


class Means:
    """Mean colors, and the number of calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, images):
        self.calls += 1
        return images.read(slice(None)).mean(axis=(1, 2)).astype(np.float32)


def fail(images):
    raise AssertionError("computed anew")


def test_features_are_computed_once_and_then_mapped(folder):
    means = Means()
    first = cached_features(noise(5), "means", means)
    second = cached_features(noise(5), "means", fail)
    assert (first == means(noise(5))).all()
    assert (second == first).all()
    for features in (first, second):
        assert isinstance(features, np.memmap)
        assert not features.flags.writeable
    assert [file.suffix for file in folder.iterdir()] == [".npy"]


def test_pixels_and_names_tell_features_apart():
    means = Means()
    sets = [noise(300), noise(300, seed=1), noise(299), noise(300).subset(np.arange(300)[::-1])]
    # One pixel of an image that `ImageSet.fingerprint` does not sample.
    changed = noise(300).pixels.copy()
    unseen = np.setdiff1d(np.arange(300), np.linspace(0, 300, 256, endpoint=False).astype(int))[0]
    changed[unseen, 0, 0, 0] ^= 1
    assert ImageSet(changed).fingerprint() == noise(300).fingerprint()
    sets.append(ImageSet(changed))
    for images in sets:
        assert (cached_features(images, "means", means) == means(images)).all()
    assert means.calls == 2 * len(sets)
    with pytest.raises(AssertionError, match="computed anew"):
        cached_features(noise(300), "means v2", fail)


def test_labels_and_ids_do_not_matter():
    cached_features(noise(5), "means", Means())
    named = noise(5, labels=[0, 1, 0, 1, 0], ids=list("abcde"), name="mine")
    assert cached_features(named, "means", fail).shape == (5, 3)
    assert cached_features(noise(8).subset(range(5)), "means", Means()).shape == (5, 3)


def test_an_empty_set():
    for _ in range(2):
        assert cached_features(noise(0), "means", Means()).shape == (0, 3)


def test_a_failure_leaves_nothing(folder, monkeypatch):
    with pytest.raises(AssertionError, match="computed anew"):
        cached_features(noise(5), "means", fail)

    def full_disk(stream, *rest, **options):
        stream.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(OSError, match="no space left"):
        cached_features(noise(5), "means", Means())
    assert not list(folder.iterdir())


def saved(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        saved(np.zeros((5, 3), np.float32))[:-1],
        saved(np.zeros((5, 3), np.float32))[:100],
        saved(np.zeros((4, 3), np.float32)),
        saved(np.zeros((5, 3), np.float64)),
        saved(np.zeros(5, np.float32)),
        saved(np.array([{"a": 1}] * 5), allow_pickle=True),
        pickle.dumps([1, 2, 3]),
        b"PK\x03\x04 not a zip",
    ],
)
def test_a_damaged_file_is_refused_by_name(folder, content):
    cached_features(noise(5), "means", Means())
    (file,) = folder.iterdir()
    file.write_bytes(content)
    with pytest.raises(ValueError, match="delete this file") as caught:
        cached_features(noise(5), "means", fail)
    assert str(file) in str(caught.value)
    file.unlink()
    assert cached_features(noise(5), "means", Means()).shape == (5, 3)


@pytest.mark.parametrize(
    "features", [np.zeros((4, 3), np.float32), np.zeros((5, 3)), np.zeros(5, np.float32)]
)
def test_wrong_features_are_not_cached(folder, features):
    with pytest.raises(ValueError, match=r"float32 of shape \(5, d\), odd returned"):
        cached_features(noise(5), "odd", lambda images: features)
    assert not folder.exists()


def test_extract_by_name(folder):
    images = noise(5)
    expected = images.pixels.reshape(5, -1).astype(np.float32) / np.float32(255)
    assert (extract(images, "pixels") == expected).all()
    assert not folder.exists()
    assert (extract(images, "gist") == gist(images)).all()
    np.testing.assert_array_equal(extract(images, "small"), deep_features(images, "small"))
    names = sorted(file.name for file in folder.iterdir())
    assert [name.split("-")[0] for name in names] == ["gist", "small"]


@pytest.mark.parametrize("name", ["gist", "small"])
def test_extract_reports_progress_when_it_computes(name):
    calls = []
    for _ in range(2):
        extract(noise(5), name, progress=lambda *call: calls.append(call))
    assert calls == [(5, 5)]


def test_the_whole_sets_features_serve_every_subset():
    images = noise(6)
    rows = [4, 1]
    for name in ("pixels", "gist", "small"):
        part = extract(images.subset(rows), name)
        np.testing.assert_allclose(extract(images, name)[rows], part, rtol=0, atol=1e-5)


def test_new_weights_give_new_features(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic"
    )
    model = tmp_path / "model"
    transformers.ResNetModel(config).save_pretrained(model)
    (model / "preprocessor_config.json").write_text(
        '{"do_resize": false, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    old = np.array(extract(noise(3), f"hub:{model}"))
    assert (extract(noise(3), f"hub:{model}") == old).all()
    weights = load_file(model / "model.safetensors")
    weights = {name: value * 2 if value.ndim == 4 else value for name, value in weights.items()}
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    new = extract(noise(3), f"hub:{model}")
    np.testing.assert_array_equal(new, deep_features(noise(3), f"hub:{model}"))
    assert (new != old).any()


def test_unknown_features_are_refused_with_the_list():
    with pytest.raises(
        ValueError, match=r"unknown features 'sift'; choose from pixels, gist, .*hub"
    ):
        extract(noise(2), "sift")
    with pytest.raises(ValueError, match="takes feature vectors"):
        extract(noise(2), "mlp")
