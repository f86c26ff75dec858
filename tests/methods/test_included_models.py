"""The models that are included in Bitprint."""

import shutil

import numpy as np
import pytest

import bitprint as bp
from bitprint.methods._store import PUBLISHED, find_model, read_description
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder

MODELS = {"coco-64": 64, "photos-256": 256}


@pytest.mark.parametrize(("name", "bits"), MODELS.items())
def test_they_are_loaded_by_name_from_anywhere(name, bits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hasher = bp.load(name)
    features = np.random.default_rng(0).standard_normal((50, 1280)).astype(np.float32)
    codes = hasher.encode(features)
    assert (len(codes), codes.bits) == (50, bits)
    assert len(np.unique(codes.packed, axis=0)) > 40


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = bp.create("itq", bits=4).fit(np.random.default_rng(0).normal(size=(20, 6)))
    mine.save("coco-64")
    assert bp.load("coco-64").bits == 4
    shutil.rmtree("coco-64")
    assert bp.load("coco-64").bits == 64


@pytest.mark.parametrize("name", ["elsewhere/coco-64", "/coco-64", "../coco-64", "README.md", ".."])
def test_only_the_name_selects_the_included_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model(name).parent != PUBLISHED
    with pytest.raises(FileNotFoundError, match="not a model folder"):
        bp.load(name)


@pytest.mark.parametrize("name", MODELS)
def test_about_describes_the_training(name):
    about = read_description(name)["about"]
    assert (about["data"], about["features"]) == ("coco14k", "efficientnet-lite0")
    assert {file.name for file in (PUBLISHED / name).iterdir()} == {
        "model.json",
        "model.safetensors",
    }


@pytest.mark.parametrize("name", MODELS)
def test_pictures_are_indexed_and_found_without_training(name, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(4):
        coarse = rng.integers(0, 256, (4, 4, 3), np.uint8)
        picture = Image.fromarray(coarse).resize((80, 60), Image.Resampling.NEAREST)
        picture.save(tmp_path / f"{number}.png")
    with Photos.create(tmp_path / "photos.bp", Encoder.load(name)) as photos:
        photos.add(tmp_path)
        with Image.open(tmp_path / "2.png") as picture:
            codes = photos.encoder.encode([np.asarray(picture)])
        (ids,), (distances,) = photos.index.search(codes, k=1)
    assert (ids[0], distances[0]) == ((tmp_path / "2.png").as_posix(), 0)
