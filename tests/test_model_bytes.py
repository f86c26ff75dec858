"""Models as bytes: `to_bytes` and `load_bytes`."""

import hashlib
import pickle

import numpy as np
import pytest
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

import bitprint as bp
from bitprint.data import draw_shapes

FEATURES = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
LABELS = np.arange(60) % 3


@pytest.mark.parametrize("name", ["itq", "sdh", "fasth", "dsdh"])
def test_bytes_give_the_same_codes(name):
    options = {"epochs": 1, "device": "cpu"} if name == "dsdh" else {}
    hasher = bp.create(name, bits=4, **options).fit(FEATURES, LABELS)
    twin = bp.load_bytes(hasher.to_bytes())
    assert type(twin) is type(hasher)
    assert np.array_equal(twin.project(FEATURES), hasher.project(FEATURES))


def test_bytes_contain_the_saved_files(tmp_path):
    hasher = bp.create("itq", bits=4).fit(FEATURES)
    hasher.save(tmp_path, data="drawn")
    parts = read_tensors(hasher.to_bytes(data="drawn"))
    for name in ("model.json", "model.safetensors"):
        assert parts[name].tobytes() == (tmp_path / name).read_bytes()


def test_a_network_on_pictures_as_bytes():
    pictures = draw_shapes(30, size=16)
    hasher = bp.create("dsdh", bits=8, backbone="small", epochs=1, device="cpu").fit(pictures)
    assert bp.load_bytes(hasher.to_bytes()).encode(pictures) == hasher.encode(pictures)


def test_damaged_bytes_are_refused():
    data = bp.create("lsh", bits=2).fit(FEATURES[:4, :3]).to_bytes()
    content = 8 + int.from_bytes(data[:8], "little")  # after the header of the container
    for place in range(content, len(data), 7):
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(ValueError, match="checksum of the model does not match"):
            bp.load_bytes(damaged)
    for size in range(0, len(data), 50):
        with pytest.raises(ValueError, match="not a complete serialized model"):
            bp.load_bytes(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a model",
        pickle.dumps({"model": 1}),
        write_tensors({"weights": np.zeros(3)}),
    ],
)
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match=r"not a (complete )?serialized model"):
        bp.load_bytes(data)


def test_weights_of_another_model_are_refused():
    parts = read_tensors(bp.create("lsh", bits=2).fit(FEATURES).to_bytes())
    other = read_tensors(bp.create("lsh", bits=2, seed=1).fit(FEATURES).to_bytes())
    parts["model.safetensors"] = other["model.safetensors"]
    with pytest.raises(ValueError, match="checksum of the model does not match"):
        bp.load_bytes(write_tensors(parts))
    digests = [
        hashlib.sha256(parts[n].tobytes()).digest() for n in ("model.json", "model.safetensors")
    ]
    digest = hashlib.sha256(b"".join(digests)).digest()
    parts["sha256"] = np.frombuffer(digest, np.uint8)
    with pytest.raises(ValueError, match=r"model\.safetensors: the checksum does not match"):
        bp.load_bytes(write_tensors(parts))


def test_a_hasher_that_is_not_fitted_has_no_bytes():
    with pytest.raises(ValueError, match="not fitted"):
        bp.create("itq", bits=4).to_bytes()
