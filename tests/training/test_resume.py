import csv
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.data import ImageSet, load_digits
from bitprint.training import loop

needs_sigkill = pytest.mark.skipif(
    not hasattr(signal, "SIGKILL"), reason="needs SIGKILL and a fork server"
)

EPOCHS = 30

CASES = {
    "paper": {
        "backbone": "small",
        "batch_size": 64,
        "optimizer": "sgd",
        "momentum": 0.9,
        "lr": 0.05,
        "augment": "flip+shift",
    },
    "authors": {
        "backbone": "small",
        "batch_size": 64,
        "optimizer": "adamw",
        "lr": 1e-3,
        "schedule": "cosine",
        "augment": "flip+shift",
    },
    "balanced": {
        "backbone": "mlp",
        "batch_size": 4,
        "optimizer": "adamw",
        "lr": 1e-3,
        "trunk_lr": 1e-4,
        "schedule": "cosine",
    },
}


# Killed at a random number of epochs between two; the first case twice.
KILLS = [("paper", 2, 5), ("paper", 8, 12), ("authors", 2, 12), ("balanced", 2, 12)]


def images(count=256):
    return load_digits().subset(np.arange(count))


def features(count=256):
    return images(count).read(slice(None))[..., 0].reshape(count, -1) / 255


def fit_all(folder, killed=None):
    """Fit every case in a separate run folder and write the codes of the training images.

    The case `killed` waits before its last epoch, so that it does not end before it is killed.
    """
    torch.set_num_threads(1)

    def wait(row):
        if row["epoch"] == EPOCHS - 1:
            signal.pause()

    for mode, options in CASES.items():
        data = features() if options["backbone"] == "mlp" else images()
        hasher = bp.create(
            "dsdh", bits=12, recipe="original", mode=mode, epochs=EPOCHS, device="cpu", **options
        )
        callback = wait if mode == killed else None
        hasher.fit(data, images().labels, run=folder / mode, callback=callback)
        hasher.encode(data).save(folder / mode / "codes")


def epochs_done(run):
    try:
        return len((run / "metrics.csv").read_text().splitlines()) - 1
    except FileNotFoundError:
        return 0


def kill_after(epochs, run, process):
    """Kill `process` as soon as `run` has `epochs` epochs."""
    deadline = time.monotonic() + 300
    while epochs_done(run) < epochs:
        assert process.is_alive(), f"ended by itself after {epochs_done(run)} epochs"
        assert time.monotonic() < deadline, f"no {epochs} epochs in five minutes"
        time.sleep(0.002)
    time.sleep(random.uniform(0, 0.05))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def table(run):
    """Metrics of a run, without the times."""
    with (run / "metrics.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of all cases: trained without interruption, and killed four times."""
    straight, killed = tmp_path_factory.mktemp("straight"), tmp_path_factory.mktemp("killed")
    fresh = multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")  # five starts that import torch once
    server.set_forkserver_preload(["bitprint", "torch._dynamo", "pytest"])
    undisturbed = fresh.Process(target=fit_all, args=(straight,))
    undisturbed.start()
    victim = None
    try:
        for mode, low, high in KILLS:
            victim = server.Process(target=fit_all, args=(killed, mode))
            victim.start()
            kill_after(random.randint(low, high), killed / mode, victim)
            assert not (killed / mode / "model.json").exists()
            assert epochs_done(killed / mode) < EPOCHS
        victim = server.Process(target=fit_all, args=(killed,))
        victim.start()
        for process in (victim, undisturbed):
            process.join(300)
            assert process.exitcode == 0
    finally:
        for process in (victim, undisturbed):
            if process is not None and process.is_alive():
                process.kill()
    return straight, killed


@needs_sigkill
@pytest.mark.parametrize("mode", CASES)
def test_a_killed_run_ends_like_one_that_was_not(runs, mode):
    straight, killed = (folder / mode for folder in runs)
    assert table(killed) == table(straight)
    assert len(table(straight)) == EPOCHS
    assert bp.Codes.load(killed / "codes") == bp.Codes.load(straight / "codes")
    for file in ("model.safetensors", "model.json"):
        assert (killed / file).read_bytes() == (straight / file).read_bytes()


@needs_sigkill
@pytest.mark.parametrize("mode", CASES)
def test_those_runs_changed_the_codes(runs, mode):
    """Untrained codes would be equal too."""
    codes = bp.Codes.load(runs[0] / mode / "codes")
    assert len(np.unique(codes.packed, axis=0)) > 1
    rows = table(runs[0] / mode)
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


# A run that has ended


@pytest.fixture
def finished(tmp_path):
    make(tmp_path)
    return tmp_path


def make(folder, data=None, labels=None, **changes):
    options = {"bits": 12, "mode": "balanced", "epochs": 2, "batch_size": 16, "lr": 0.1}
    hasher = bp.create("dsdh", **(options | {"device": "cpu"} | changes))
    data = features(60) if data is None else data
    labels = images(60).labels if labels is None else labels
    return hasher.fit(data, labels, run=folder)


def test_a_finished_run_is_loaded_and_not_trained(finished, monkeypatch):
    before = bp.load(finished).encode(features())
    weights = (finished / "model.safetensors").read_bytes()
    rows = table(finished)

    def never(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(loop, "_one_epoch", never)
    again = make(finished)
    assert again.encode(features()) == before
    assert [str(row["loss"]) for row in again.history_] == [row["loss"] for row in rows]
    assert (finished / "model.safetensors").read_bytes() == weights


def test_a_run_killed_before_its_model_was_written_writes_it(finished):
    weights = (finished / "model.safetensors").read_bytes()
    (finished / "model.safetensors").unlink()
    (finished / "model.json").unlink()
    make(finished)
    assert (finished / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": 13},
        {"mode": "paper"},
        {"mu": 2.0},
        {"seed": 1},
        {"epochs": 3},
        {"lr": 0.2},
        {"trunk_lr": 0.1},
        {"momentum": 0.5},
        {"schedule": "constant"},
        {"data": features(60) + 1},
        {"labels": images(60).labels[::-1]},
    ],
)
def test_a_folder_of_another_run_is_refused(finished, changes):
    weights = (finished / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="contains a run with other options or other data"):
        make(finished, **changes)
    assert (finished / "model.safetensors").read_bytes() == weights


def test_another_method_is_refused(finished):
    hasher = bp.create("dpsh", bits=12, epochs=2, batch_size=16, lr=0.1, device="cpu")
    with pytest.raises(ValueError, match="contains a run with other options or other data"):
        hasher.fit(features(60), images(60).labels, run=finished)


def test_run_on_other_images_raises(tmp_path):
    options = {"backbone": "small", "epochs": 1}
    pixels = images(60).read(slice(None))
    make(tmp_path, data=pixels, **options)
    with pytest.raises(ValueError, match="contains a run with other options or other data"):
        make(tmp_path, data=255 - pixels, **options)
    make(tmp_path, data=ImageSet(pixels.copy()), **options)


def test_the_device_may_change(finished):
    """A run can start on one device and resume on another."""
    assert len(make(finished, device="auto").history_) == 2


def test_a_numpy_number_of_bits_names_the_same_run(finished):
    assert len(make(finished, bits=np.int64(12)).history_) == 2
