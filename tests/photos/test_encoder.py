import json

import numpy as np
import pytest
from PIL import Image

from bitprint.data import draw_shapes
from bitprint.data.images import ImageSet
from bitprint.features import deep_features, gist
from bitprint.methods import create
from bitprint.methods.itq import ITQ
from bitprint.photos.encoder import Encoder, Features

SCENES = draw_shapes(30, size=32)


def small_dsdh():
    hasher = create("dsdh", bits=8, backbone="small", epochs=1, device="cpu")
    return hasher.fit(draw_shapes(30, size=16))


def test_pictures_of_any_size_become_squares(encoder):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 25, 3), np.uint8)
    square = np.asarray(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BICUBIC))
    expected = encoder.hasher.encode(ImageSet(square[None]))
    assert encoder.encode([pixels]) == expected
    assert encoder.encode([square, pixels])[1] == expected
    assert len(encoder.encode([])) == 0
    with pytest.raises(ValueError, match="an image must be a uint8 array of shape"):
        encoder.encode([pixels[..., 0]])


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (Features("pixels", 32), lambda pixels: pixels.reshape(len(pixels), -1) / np.float32(255)),
        (Features("gist", 32), gist),
        (Features("small", 32), lambda pixels: deep_features(pixels, "small")),
    ],
)
def test_features_by_name(features, expected):
    vectors = expected(SCENES.pixels)
    assert np.array_equal(features(SCENES.pixels), vectors)
    hasher = create("itq", bits=16).fit(vectors)
    encoder = Encoder(hasher, features)
    assert encoder.encode(list(SCENES.pixels)) == hasher.encode(vectors)
    assert encoder.describe() == f"ITQ, 16 bits, on {features.name} features"


def test_features_size_defaults_to_the_network_input():
    assert Features("efficientnet-lite0").size == 224
    assert Features("efficientnet-lite0", 64).size == 64


@pytest.mark.parametrize("method", ["itq on gist", "lsh on pixels", "dsdh"])
def test_files_bring_back_the_same_encoder(method, tmp_path):
    if method == "dsdh":
        encoder = Encoder(small_dsdh())
        assert encoder.describe() == "DSDH, 8 bits, trained end to end on small"
        assert encoder.size == 16
    elif method == "itq on gist":
        encoder = Encoder(create("itq", bits=16).fit(gist(SCENES)), Features("gist", 32), 30)
    else:
        encoder = Encoder(create("lsh", bits=16).fit(SCENES))
    twin = Encoder.from_files(encoder.files)
    assert twin.identity == encoder.identity
    assert (twin.bits, twin.size, twin.pictures) == (encoder.bits, encoder.size, encoder.pictures)
    assert twin.encode(list(SCENES.pixels)) == encoder.encode(list(SCENES.pixels))


def test_a_run_folder_gives_the_codes_that_its_hasher_gives(tmp_path):
    vectors = deep_features(SCENES.pixels, "small")
    hasher = create("itq", bits=16).fit(vectors)
    hasher.save(tmp_path / "run", features="small", size=32)
    encoder = Encoder.load(tmp_path / "run")
    assert encoder.encode(list(SCENES.pixels)) == hasher.encode(vectors)
    hasher.save(tmp_path / "run", features="small")
    assert Encoder.load(tmp_path / "run").size == 256


def test_identity_covers_weights_size_and_features():
    first, second = create("itq", bits=16), create("itq", bits=16, seed=1)
    vectors = gist(SCENES)
    identity = Encoder(first.fit(vectors), Features("gist", 32)).identity
    assert identity.startswith("ITQ, 16 bits, on gist features (")
    assert Encoder(create("itq", bits=16).fit(vectors), Features("gist", 32)).identity == identity
    assert Encoder(second.fit(vectors), Features("gist", 32)).identity != identity
    assert Encoder(first.fit(vectors[:20]), Features("gist", 32)).identity != identity
    assert Encoder(first.fit(vectors), Features("gist", 64)).identity != identity


def test_encoder_of_unsuitable_models_raises():
    with pytest.raises(ValueError, match="nmlsh encodes queries differently"):
        Encoder(create("nmlsh", bits=8).fit(SCENES))
    with pytest.raises(ValueError, match="fitted on 512 features, which are not the pixels"):
        Encoder(create("itq", bits=8).fit(gist(SCENES)))
    labels = np.arange(30) % 2
    vectors = create("dsdh", bits=8, epochs=1, device="cpu").fit(gist(SCENES), labels)
    with pytest.raises(ValueError, match="expects feature vectors, not images"):
        Encoder(vectors)


def test_encoder_of_a_deep_model_on_features(tmp_path):
    labels = np.arange(30) % 2
    features = Features("gist", 32)
    hasher = create("dsdh", bits=8, epochs=2, device="cpu").fit(features(SCENES.pixels), labels)
    hasher.save(tmp_path, features="gist", size=32)
    encoder = Encoder.load(tmp_path)
    assert encoder.describe() == "DSDH, 8 bits, on gist features"
    assert encoder.encode_squares(SCENES.pixels) == hasher.encode(features(SCENES.pixels))
    assert Encoder.from_files(encoder.files).identity == encoder.identity


def test_loaded_encoder_keeps_its_files(tmp_path, monkeypatch):
    """Options written by another version must not change the identity."""
    saved = []
    original = ITQ._export
    monkeypatch.setattr(ITQ, "_export", lambda self: saved.append(self) or original(self))
    create("itq", bits=16).fit(SCENES).save(tmp_path, features="pixels", data="mine")
    document = json.loads((tmp_path / "model.json").read_bytes())
    document["options"].pop("seed")
    (tmp_path / "model.json").write_text(json.dumps(document))
    saved.clear()
    encoder = Encoder.load(tmp_path)
    twin = Encoder.from_files(encoder.files)
    assert twin.identity == encoder.identity
    assert twin.files == encoder.files
    stored = json.loads(encoder.files["model.json"])
    assert stored["options"] == document["options"]
    assert stored["about"] == {"features": "pixels", "size": 32, "pictures": None}
    assert saved == []


def test_identity_is_computed_when_asked_for(monkeypatch):
    saved = []
    original = ITQ._export
    monkeypatch.setattr(ITQ, "_export", lambda self: saved.append(self) or original(self))
    encoder = Encoder(create("itq", bits=16).fit(SCENES))
    encoder.encode(list(SCENES.pixels))
    assert saved == []
    assert encoder.identity == encoder.identity
    assert len(saved) == 1
