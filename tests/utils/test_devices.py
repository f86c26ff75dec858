"""Selecting a device by name, and one error for unknown or unavailable devices."""

import json

import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.utils.devices import pick_device

NO_GPU = "torch finds no GPU"


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def test_device_auto_is_a_gpu_if_available(two_gpus):
    assert pick_device("auto") == torch.device("cuda")


def test_device_auto_is_the_cpu_without_a_gpu(no_gpu):
    assert pick_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1", torch.device("cuda", 1)])
def test_device_with_a_number_is_that_gpu(two_gpus, name):
    assert pick_device(name) == torch.device(name)


def test_device_mps_is_accepted_if_available(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("mps") == torch.device("mps")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "unknown device 'gpu': use auto, cpu, cuda, cuda:1 or mps"),
        ("meta", "unknown device 'meta'"),
        ("cuda:-1", "unknown device 'cuda:-1'"),
        ("", "unknown device ''"),
        (None, "unknown device 'None'"),
        (0, "unknown device '0'"),
        ("cuda", NO_GPU),
        ("cuda:1", NO_GPU),
        ("mps", NO_GPU),
    ],
)
def test_unavailable_device_is_refused(no_gpu, name, message):
    with pytest.raises(ValueError, match=message) as error:
        pick_device(name)
    assert "\n" not in str(error.value)


def test_device_beyond_the_last_gpu_is_refused(two_gpus):
    with pytest.raises(ValueError, match=r"device is cuda:2, but torch finds 2 GPU\(s\)"):
        pick_device("cuda:2")


def test_model_stored_with_another_device_loads_here(no_gpu, tmp_path):
    hasher = bp.create("dpsh", 12, epochs=1, device=torch.device("cpu").type)
    hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    document["options"]["device"] = "cuda:1"
    (tmp_path / "model.json").write_text(json.dumps(document))
    loaded = bp.load(tmp_path)
    assert loaded.device == "auto"
    assert loaded.encode(np.eye(6)) == hasher.encode(np.eye(6))
