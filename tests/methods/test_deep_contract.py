"""The contract of all deep methods, with regular and unusual data."""

import csv
import multiprocessing
import os
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone

import bitprint as bp
from bitprint.methods import METHODS, DeepHasher

DEEP = [name for name, cls in METHODS.items() if issubclass(cls, DeepHasher)]
BITS = 12
EPOCHS = 4
STEPS = 3 * EPOCHS  # 24 items in batches of 8
FEATURES = np.random.default_rng(0).standard_normal((24, 20)).astype(np.float32)
LABELS = np.arange(24) % 3
SEVERAL = (np.random.default_rng(1).random((24, 4)) < 0.4).astype(int)
SEVERAL[:2] = 0  # without any label

every_method = pytest.mark.parametrize("name", DEEP)


def create(name, bits=BITS, **options):
    usual = {"epochs": EPOCHS, "batch_size": 8, "optimizer": "adamw", "lr": 1e-3, "device": "cpu"}
    usual |= {"backbone": "mlp"}
    return bp.create(name, bits, **(usual | options))


def before_each_step(hasher, action):
    """Make `hasher` call `action` before each training step."""
    cls = type(hasher)

    def loss(self, *arguments):
        action()
        return cls.loss(self, *arguments)

    hasher.__class__ = type(cls.__name__, (cls,), {"loss": loss})
    return hasher


def table(run):
    """Return the metrics of a run, without times."""
    with (run / "metrics.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def check_same_run(some, other):
    assert table(some) == table(other)
    for file in ("model.safetensors", "model.json"):
        assert (some / file).read_bytes() == (other / file).read_bytes()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Uninterrupted runs of all methods, in folders with their names."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("straight")
    for name in DEEP:
        create(name).fit(FEATURES, LABELS, run=folder / name)
    return folder


# ---- saved, interrupted, killed


@every_method
def test_a_saved_model_gives_the_same_codes(name, straight, tmp_path):
    hasher = create(name).fit(FEATURES, LABELS)
    hasher.save(tmp_path)
    for folder in (tmp_path, straight / name):
        loaded = bp.load(folder)
        assert type(loaded) is type(hasher)
        assert loaded.encode(FEATURES) == hasher.encode(FEATURES)
        np.testing.assert_array_equal(loaded.project(FEATURES), hasher.project(FEATURES))


@every_method
def test_training_changes_the_network_and_ends_finite(name, straight):
    begun = create(name, lr=0.0, weight_decay=0.0).fit(FEATURES, LABELS).net_.state_dict()
    trained = bp.load(straight / name).net_.state_dict()
    assert all(torch.isfinite(value).all() for value in trained.values())
    assert any(not torch.equal(value, begun[key]) for key, value in trained.items())
    assert len(table(straight / name)) == EPOCHS


@every_method
def test_an_interrupted_run_ends_like_one_that_was_not(name, straight, tmp_path):
    steps = []

    def interrupt():
        steps.append(1)
        if len(steps) == STEPS - 4:  # in the third epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        before_each_step(create(name), interrupt).fit(FEATURES, LABELS, run=tmp_path)
    assert not (tmp_path / "model.json").exists()
    again = []
    hasher = before_each_step(create(name), lambda: again.append(1))
    hasher.fit(FEATURES, LABELS, run=tmp_path)
    assert 0 < len(again) < STEPS
    check_same_run(tmp_path, straight / name)


def fit_and_die(name, folder, step):
    """Train a method and kill this process at the given step."""
    torch.set_num_threads(1)
    steps = []

    def die():
        steps.append(1)
        if len(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    before_each_step(create(name), die).fit(FEATURES, LABELS, run=folder)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL and a fork server")
@every_method
def test_a_killed_run_ends_like_one_that_was_not(name, straight, tmp_path):
    """Kill at a random step; no checkpoint exists in the first epoch."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["bitprint.methods", "torch._dynamo", "pytest"])
    step = random.randint(2, STEPS)
    victim = server.Process(target=fit_and_die, args=(name, tmp_path, step))
    victim.start()
    victim.join(300)
    if victim.is_alive():
        victim.kill()
    assert victim.exitcode == -signal.SIGKILL, f"step {step}"
    create(name).fit(FEATURES, LABELS, run=tmp_path)
    check_same_run(tmp_path, straight / name)


# ---- parameters


@every_method
def test_a_clone_learns_the_same(name, straight):
    hasher = create(name)
    parameters = hasher.get_params()
    assert {"bits", "backbone", "training", "device", "seed"} <= set(parameters)
    twin = clone(hasher)
    assert twin.get_params() == parameters
    twin.fit(FEATURES, LABELS)
    assert twin.encode(FEATURES) == bp.load(straight / name).encode(FEATURES)
    assert twin.get_params() == parameters


@every_method
def test_the_seed_decides(name, straight):
    other = create(name, seed=1).fit(FEATURES, LABELS)
    assert not np.array_equal(other.project(FEATURES), bp.load(straight / name).project(FEATURES))


@pytest.mark.parametrize("name", ["dtsh"])
def test_the_seed_decides_in_several_threads_too(name):
    """DTSH uses torch's global generator in each step."""

    def fit(seed):
        hasher = before_each_step(create(name, seed=seed), lambda: time.sleep(0.002))
        return hasher.fit(FEATURES, LABELS).project(FEATURES)

    state = torch.get_rng_state()
    alone = [fit(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fit, range(4)))
    np.testing.assert_array_equal(together, alone)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["dtsh"])
def test_failed_fit_does_not_block_others(name):
    def fail():
        raise KeyError("as a method of one's own may")

    with pytest.raises(KeyError):
        before_each_step(create(name), fail).fit(FEATURES, LABELS)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(create(name).fit, FEATURES, LABELS).result(timeout=300)


# ---- unusual data


def check_usable(hasher, data=FEATURES):
    codes = hasher.encode(data)
    assert (len(codes), codes.bits) == (len(data), hasher.bits)
    assert np.isfinite(hasher.project(data)).all()
    assert np.isfinite([row["loss"] for row in hasher.history_]).all()


@every_method
def test_one_bit(name):
    check_usable(create(name, 1, epochs=2).fit(FEATURES, LABELS))


@every_method
def test_several_labels_per_image(name):
    check_usable(create(name).fit(FEATURES, SEVERAL))


@every_method
def test_class_names_are_learned_as_their_numbers(name, tmp_path):
    words = np.array(["ant", "bee", "cat", "dog"])[: LABELS.max() + 1]
    named = create(name, epochs=1).fit(FEATURES, words[LABELS].tolist(), run=tmp_path)
    assert named.encode(FEATURES) == create(name, epochs=1).fit(FEATURES, LABELS).encode(FEATURES)
    uses_labels = METHODS[name].supervision == "labels"
    assert bp.load(tmp_path).label_names_ == (words.tolist() if uses_labels else None)


@every_method
def test_batches_of_one_image(name):
    check_usable(create(name, epochs=1, batch_size=1).fit(FEATURES, LABELS))


@every_method
@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
def test_batches_of_one_class(name, several):
    labels = np.repeat([0, 1], [23, 1])  # eleven of twelve pairs are of class 0
    labels = np.eye(3, dtype=int)[labels] if several else labels
    check_usable(create(name, epochs=2, batch_size=2).fit(FEATURES, labels))


@every_method
def test_batches_without_two_of_a_class(name):
    check_usable(create(name, epochs=2).fit(FEATURES, np.arange(24)))


@every_method
def test_constant_data_give_one_code_and_a_warning(name):
    with pytest.warns(UserWarning, match=rf"^{re.escape(name)} gives the same code to all of 24 "):
        hasher = create(name, epochs=2).fit(np.ones((24, 20)), LABELS)
    check_usable(hasher)
    codes = hasher.encode(np.ones((24, 20)))
    assert all(codes[row : row + 1] == codes[:1] for row in range(24))


@pytest.mark.filterwarnings("error")
def test_evenly_spaced_sample_avoids_the_warning():
    features = np.repeat(FEATURES[:1], 2000, axis=0)
    features[1000:] *= -1
    hasher = create("dpsh", epochs=2, batch_size=500).fit(features, np.arange(2000) // 1000)
    codes = hasher.encode(features[[0, 999, 1000]])
    assert codes[:1] == codes[1:2] != codes[2:]


@every_method
def test_large_values_stay_finite(name):
    check_usable(create(name, epochs=2).fit(100 * FEATURES, LABELS), 100 * FEATURES)


# ---- devices


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_method
@pytest.mark.parametrize("labels", [LABELS, SEVERAL], ids=["one label", "several labels"])
def test_trained_on_a_gpu_and_used_on_the_cpu(name, labels, tmp_path):
    hasher = create(name, device="cuda", precision="float32").fit(FEATURES, labels)
    check_usable(hasher)
    outputs = hasher.project(FEATURES)
    hasher.save(tmp_path)
    loaded = bp.load(tmp_path)
    loaded.device = "cpu"
    np.testing.assert_allclose(loaded.project(FEATURES), outputs, rtol=1e-3, atol=1e-4)
