"""Training with several real processes gives the results of one process."""

import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed import HashStore, TCPStore
from typer.testing import CliRunner

import bitprint as bp
from bitprint.cli import app
from bitprint.data import ImageSet, load_digits
from bitprint.methods import METHODS, DeepHasher
from bitprint.nets.batch_norm import BatchNorm
from bitprint.training import distributed
from bitprint.training.distributed import LOST, Workers, current_workers, joined
from bitprint.training.run import RunFolder
from bitprint.training.whole_batch import (
    WholeBatchNorm,
    WholeDropout,
    _whole_batch_layer,
    whole_batches,
)

needs_sigkill = pytest.mark.skipif(
    not hasattr(signal, "SIGKILL"), reason="needs SIGKILL and a fork server"
)
pytestmark = needs_sigkill

DEEP = [name for name, cls in METHODS.items() if issubclass(cls, DeepHasher)]
COUNT = 25  # in batches of 8, so that the second process has no row of the last batch
FEATURES = np.random.default_rng(0).standard_normal((COUNT, 20)).astype(np.float32)
LABELS = np.arange(COUNT) % 3
SEVERAL = (np.random.default_rng(1).random((COUNT, 4)) < 0.4).astype(int)
USUAL = {"bits": 12, "epochs": 3, "batch_size": 8, "device": "cpu"}
# Small learning rates, because large steps amplify rounding differences.
SGD = {"optimizer": "sgd", "lr": 1e-3, "schedule": "constant"}

CASES = {name: ({"method": name, **SGD}, "features") for name in DEEP}
CASES |= {
    "authors": ({"method": "dsdh", "mode": "authors", **SGD}, "features"),
    "balanced": ({"method": "dsdh", "mode": "balanced", **SGD}, "features"),
    "several": ({"method": "dsdh", "mode": "balanced", **SGD}, "several"),
    "batch triplets": ({"method": "dtsh", "triplets": "batch", **SGD}, "features"),
    "momentum": ({"method": "dpsh", "momentum": 0.9, **SGD}, "features"),
    "adamw": ({"method": "dpsh", "optimizer": "adamw", "lr": 1e-3}, "features"),
    "classes in turn": ({"method": "dpsh", "per_class": 3, **SGD}, "features"),
    "batch norm": ({"method": "dpsh", "backbone": "small", **SGD}, "images"),
    "dropout": ({"method": "dtsh", "backbone": "cnnh", **SGD, "lr": 1e-5}, "images"),
    "averaged": ({"method": "dsdh", "backbone": "small", "average": 0.8, **SGD}, "images"),
    "boxes": ({"method": "dsdh", "backbone": "small", "cutmix": 1.0, **SGD}, "images"),
    "two views": (
        {"method": "cibhash", "backbone": "small", "augment": "shift+colour", **SGD},
        "images",
    ),
    "class means": ({"method": "crovca", "supervised": True, **SGD}, "several"),
    "another start": ({"method": "dpsh", **SGD}, "features"),
    "augmented": (
        {"method": "dpsh", "backbone": "small", "augment": "flip+shift+colour+erase", **SGD},
        "images",
    ),
}
RUN = {"mode": "balanced", "epochs": 6, "batch_size": 100, **SGD}
"""Options of the runs that are killed and resumed, on digits."""


def random_images():
    pixels = np.random.default_rng(2).integers(0, 256, (COUNT, 32, 32, 3), np.uint8)
    return ImageSet(pixels, labels=LABELS)


def fit(case, folder=None, **changes):
    """Fit a case; return the hasher, its data and its buffers."""
    options, data = CASES[case]
    options = USUAL | options | changes
    hasher = bp.create(options.pop("method"), **options)
    kept, finish = {}, hasher.finish

    def watched(net, state, feed):
        kept.update({name: value.clone() for name, value in state.tensors.items()})
        finish(net, state, feed)

    hasher.finish = watched
    if case == "another start" and current_workers().rank == 1:
        spoil(hasher)
    items = random_images() if data == "images" else FEATURES
    hasher.fit(items, SEVERAL if data == "several" else LABELS, run=folder)
    return hasher, items, kept


def spoil(hasher):
    """Give this process other initial weights and another rounding between epochs."""

    def make_head(features, classes):
        return nn.Linear(features, hasher.bits)

    def after_epoch(state):
        state.tensors["U"] += 0.01
        return {}

    hasher.make_head, hasher.after_epoch = make_head, after_epoch


def fit_digits(folder, **changes):
    """Fit as `bitprint train digits` does."""
    images = load_digits()
    from bitprint.data import split_for

    rows = split_for(images, 1, 0).training
    options = {"bits": 12, "backbone": "small", "device": "cpu"} | RUN | changes
    return bp.create("dsdh", **options).fit(images.subset(rows), run=folder)


# Processes


def in_process(rank, size, port, folder, job, arguments):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    with (folder / f"stderr {rank}").open("wb") as file:
        os.dup2(file.fileno(), 2)
    job(rank, folder, *arguments)


def start(job, folder, *arguments, size=2):
    """Start processes with the environment of torchrun."""
    folder.mkdir(exist_ok=True)
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["bitprint.cli", "bitprint.methods", "torch._dynamo", "pytest"])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [
        server.Process(target=in_process, args=(rank, size, store.port, folder, job, arguments))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    return store, processes


def end(started):
    """Wait for processes; return their exit codes."""
    _, processes = started
    deadline = time.monotonic() + 300
    for process in processes:
        process.join(max(0, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
    return codes


def stderr(folder, rank):
    return (folder / f"stderr {rank}").read_text()


def table(run):
    """Metrics of a run, without the times."""
    with (run / "metrics.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


# Several processes against one


def never(*arguments, **options):
    raise AssertionError("only the first process writes")


def fit_all(rank, folder):
    """Fit every case and a whole run on digits; save the results of each process."""
    if rank > 0:
        RunFolder.save = RunFolder.write_metrics = DeepHasher.save = never
    with joined("cpu") as workers:
        assert (workers.rank, workers.size) == (rank, 2)
        assert current_workers() is workers
        for case in CASES:
            hasher, items, kept = fit(case, folder / case)
            figures = np.array([row["loss"] for row in hasher.history_])
            arrays = {f"kept {name}": value.numpy() for name, value in kept.items()}
            arrays |= {"outputs": hasher.project(items), "losses": figures}
            np.savez(folder / f"{case} {rank}.npz", **arrays)
        fit_digits(folder / "digits")
    assert current_workers().size == 1


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    codes = end(start(fit_all, folder))
    assert codes == [0, 0], stderr(folder, 0) + stderr(folder, 1)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_give_what_one_gives(together, case):
    """Except for rounding, which is far less than the change by training."""
    hasher, items, kept = fit(case)
    untrained, _, _ = fit(case, lr=0.0, weight_decay=0.0)
    got = np.load(together / f"{case} 0.npz")
    losses, before = (np.array([row["loss"] for row in h.history_]) for h in (hasher, untrained))
    assert np.abs(got["losses"] - losses).max() <= np.abs(losses - before).max() / 1000
    outputs = hasher.project(items)
    changed = np.abs(outputs - untrained.project(items)).max()
    assert np.abs(got["outputs"] - outputs).max() <= changed / 1000
    for name, value in kept.items():
        np.testing.assert_allclose(got[f"kept {name}"], value, rtol=1e-3, atol=1e-4)
    assert np.array_equal(bp.load(together / case).project(items), got["outputs"])


@pytest.mark.parametrize("case", CASES)
def test_all_processes_have_the_same_to_the_bit(together, case):
    some, other = (np.load(together / f"{case} {rank}.npz") for rank in range(2))
    assert some.files == other.files
    for name in some.files:
        assert np.array_equal(some[name], other[name]), name


def test_a_network_is_saved_as_one_process_saves_it(together, tmp_path):
    """The whole-batch layers are used in training only."""
    for case in ("batch norm", "dropout"):
        fit(case, tmp_path / case)
        documents = [
            json.loads((f / case / "model.json").read_text()) for f in (tmp_path, together)
        ]
        for document in documents:
            del document["sha256"]
        assert documents[0] == documents[1]
        layers = [list(bp.load(f / case).net_.state_dict()) for f in (tmp_path, together)]
        assert layers[0] == layers[1]


# Killed, and resumed

DRIVER = """
import os, signal
from bitprint.cli import main
from bitprint.methods.dsdh import DSDH

loss, steps = DSDH.loss, []

def die(self, outputs, rows, state):
    steps.append(1)
    if os.environ["RANK"] == "1" and len(steps) == 60:
        os.kill(os.getpid(), signal.SIGKILL)
    return loss(self, outputs, rows, state)

DSDH.loss = die
main()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run of `torchrun` whose second process is killed in the fourth epoch."""
    folder = tmp_path_factory.mktemp("killed")
    driver = folder / "driver.py"
    driver.write_text(DRIVER)
    options = [f"--set={name}={value}" for name, value in RUN.items()]
    command = f"-m torch.distributed.run --standalone --nproc-per-node 2 {driver} train digits"
    settings = f"--bits 12 --backbone small --device cpu --out {folder / 'run'}"
    job = subprocess.run(
        [sys.executable, *command.split(), *settings.split(), *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return folder / "run", job


def test_a_killed_process_ends_the_job_with_one_sentence(killed):
    _, job = killed
    assert job.returncode != 0
    assert job.stderr.count(LOST) == 1
    assert f"bitprint: {LOST}" in job.stderr
    own = job.stderr.partition(LOST)[0]
    assert "Traceback" not in own
    assert own.count("training dsdh, 12 bits, on 1612 images") == 1
    assert "Signal 9" in job.stderr  # torchrun names the process


@pytest.mark.parametrize("size", [1, 2])
def test_a_killed_run_resumes(together, killed, tmp_path, size):
    """With the same number of processes exactly; with fewer, except for rounding."""
    run = tmp_path / "run"
    shutil.copytree(killed[0], run)
    assert not (run / "model.json").exists()
    assert 0 < RunFolder(run, "any").kept_epochs < RUN["epochs"]
    if size == 1:
        fit_digits(run)
    else:
        assert end(start(resume, tmp_path, run)) == [0, 0]
    rows, expected = table(run), table(together / "digits")
    assert len(rows) == RUN["epochs"]
    outputs = [bp.load(f).project(load_digits()) for f in (run, together / "digits")]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
    if size == 2:
        assert rows == expected
        assert np.array_equal(*outputs)
        weights = [(f / "model.safetensors").read_bytes() for f in (run, together / "digits")]
        assert weights[0] == weights[1]
    for row, other in zip(rows, expected, strict=True):
        assert float(row["loss"]) == pytest.approx(float(other["loss"]), rel=1e-5)


def resume(rank, folder, run):
    with joined("cpu"):
        fit_digits(run)


# Errors


def fail(rank, folder):
    with joined("cpu"):
        raise ValueError("the same in both")


def test_an_error_of_all_is_raised_in_one(tmp_path):
    assert end(start(fail, tmp_path)) == [1, 1]
    assert [stderr(tmp_path, rank).count("ValueError: the same") for rank in range(2)] in (
        [0, 1],
        [1, 0],
    )


def fail_alone(rank, folder):
    with joined("cpu") as workers:
        if rank == 1:
            raise ValueError("nobody else saw this")
        workers.wait()


def test_only_the_failing_process_reports_its_error(tmp_path):
    assert end(start(fail_alone, tmp_path)) == [1, 1]
    assert "ValueError: nobody else saw this" in stderr(tmp_path, 1)
    assert stderr(tmp_path, 0) == ""


def disagree(rank, folder):
    with joined("cpu"):
        bp.create("dpsh", **USUAL, seed=rank).fit(FEATURES, LABELS)


def test_processes_with_other_options_are_refused(tmp_path):
    assert end(start(disagree, tmp_path)) == [1, 1]
    words = stderr(tmp_path, 0) + stderr(tmp_path, 1)
    assert words.count("ValueError: the processes of this training do not have the same") == 1


def use_own_folders(rank, folder):
    options = USUAL | {"epochs": 2}
    if rank == 0:
        bp.create("dpsh", **options).fit(FEATURES, LABELS, run=folder / "0")
    with joined("cpu"):
        bp.create("dpsh", **options).fit(FEATURES, LABELS, run=folder / str(rank))


def test_run_folder_not_shared_between_machines_raises(tmp_path):
    codes = end(start(use_own_folders, tmp_path))
    words = stderr(tmp_path, 0) + stderr(tmp_path, 1)
    assert codes == [1, 1]
    assert "not all processes read the same checkpoint" in words
    assert "put the run folder on a disk that all machines share" in words


def take_turns(rank, folder):
    with joined("cpu") as workers:
        for number in range(2):
            with workers.in_turn():
                if rank == 0:
                    time.sleep(0.2)
                    (folder / f"cache {number}").touch()
                assert (folder / f"cache {number}").exists()
        with workers.in_turn():
            raise FileNotFoundError("no such folder")


def test_the_first_process_fills_the_caches(tmp_path):
    """If it fails, the others do not wait forever."""
    assert end(start(take_turns, tmp_path)) == [1, 1]
    words = stderr(tmp_path, 0) + stderr(tmp_path, 1)
    assert "AssertionError" not in words
    assert words.count("FileNotFoundError: no such folder") == 1


def wait_for_the_other(rank, folder):
    with joined("cpu") as workers:
        (folder / f"joined {rank}").touch()
        if rank == 0:
            time.sleep(600)
        workers.wait()


def test_sigterm_while_waiting_is_reported(tmp_path):
    """Torchrun sends SIGTERM while the main thread is blocked in a collective operation."""
    started = start(wait_for_the_other, tmp_path)
    deadline = time.monotonic() + 300
    while not all((tmp_path / f"joined {rank}").exists() for rank in range(2)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    for process in started[1][::-1]:
        process.terminate()
    assert end(started) == [1, 1]
    words = stderr(tmp_path, 0) + stderr(tmp_path, 1)
    assert words == f"bitprint: {LOST}\n"


# Pieces


@pytest.mark.parametrize(("count", "size"), [(8, 2), (7, 2), (1, 2), (2, 5), (128, 3)])
def test_parts_make_the_whole(count, size):
    whole = torch.randperm(count)
    parts = [Workers(rank, size).part(whole) for rank in range(size)]
    assert torch.cat(parts).equal(whole)
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1


def test_dropout_draws_as_one_process_does():
    torch.manual_seed(3)
    inputs = torch.randn(7, 40)
    layer = nn.Dropout(0.3)
    torch.manual_seed(5)
    expected, following = layer(inputs), torch.rand(1)
    parts = []
    for rank in range(3):
        workers = Workers(rank, 3)
        workers.batch = 7
        torch.manual_seed(5)
        parts.append(WholeDropout(0.3, workers)(workers.part(inputs)))
        assert torch.rand(1).equal(following)
    assert torch.cat(parts).equal(expected)
    assert WholeDropout(0.3, Workers(0, 3)).eval()(inputs) is inputs


def test_head_norm_of_one_image_uses_running_statistics():
    layer, inputs = BatchNorm(4), torch.randn(1, 4)
    layer(torch.randn(20, 4))
    before = layer.running_mean.clone()
    expected = layer(inputs)
    parts = []
    for rank in range(2):
        workers = Workers(rank, 2)
        workers.batch = 1
        whole = _whole_batch_layer(layer, workers, on_gpu=True)  # also on a GPU
        parts.append(whole(workers.part(inputs)))
    assert torch.cat(parts).equal(expected)
    assert torch.equal(layer.running_mean, before)
    assert expected.equal(layer.eval()(inputs))
    usual = WholeBatchNorm(nn.BatchNorm1d(4), workers)
    with pytest.raises(ValueError, match="increase the batch size"):
        usual(inputs)


class Reshaping(nn.Module):
    """Like a transformer, it cannot take an empty batch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, items):
        return (items * self.weight).view(len(items), 2, -1).sum(dim=1)


def test_a_process_without_rows_adds_nothing_to_any_network(monkeypatch):
    net, workers = Reshaping(), Workers(1, 2)
    with pytest.raises(RuntimeError, match="cannot reshape tensor of 0 elements"):
        net(torch.zeros(0, 4))
    monkeypatch.setattr(workers, "gather", lambda own, count: own)
    outputs = workers.forward(net, torch.zeros(0, 4), 1)
    assert outputs.shape == (0, 2)
    outputs.sum().backward()
    assert net.weight.grad.tolist() == [0, 0, 0, 0]


def test_layers_are_put_back():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Dropout(0.2)))
    before, names = list(net.modules()), list(net.state_dict())
    values = [value.data_ptr() for value in net.state_dict().values()]
    with whole_batches(net, Workers(0, 2)):
        assert type(net[1]) is not nn.BatchNorm1d
        assert type(net[2][0]) is not nn.Dropout
        assert list(net.state_dict()) == names
        assert [value.data_ptr() for value in net.state_dict().values()] == values
    assert list(net.modules()) == before
    with whole_batches(net, Workers()):
        assert list(net.modules()) == before


def test_one_process_does_not_communicate():
    with joined() as workers:
        assert workers.size == 1
        assert not torch.distributed.is_initialized()
    values = torch.ones(3)
    assert workers.sum(values) is values
    workers.wait()
    workers.check_same("mine", "not raised")
    with workers.in_turn():
        pass


def test_methods_without_a_network_are_refused(monkeypatch, tmp_path):
    class Both(Workers):
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(distributed, "joined", lambda device: Both(0, 2))
    monkeypatch.setattr("bitprint.workflows.current_workers", lambda: Both(0, 2))
    result = CliRunner().invoke(app, ["train", "digits", "--method", "itq", "--out", str(tmp_path)])
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "itq trains in one process only: run without torchrun"
    assert not list(Path(tmp_path).iterdir())


@pytest.mark.parametrize(
    ("device", "rank", "words"),
    [
        ("cuda:0", 0, "cuda:0 is one GPU, but there are several processes: use auto or cuda"),
        ("auto", 2, "process 3 on a machine with 2 GPUs; start at most one process"),
    ],
)
def test_too_few_gpus_raise(monkeypatch, device, rank, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    with pytest.raises(ValueError, match=words):
        distributed._take_gpu(device)


def test_each_process_takes_its_own_gpu(monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed._take_gpu("auto")
    assert not distributed._take_gpu("cpu")
    assert taken == [1]


def test_a_lost_process_is_reported_once():
    """Also if both processes report at the same time."""
    store, others = HashStore(), []

    class Interrupted:
        def add(self, key, amount):
            value = store.add(key, amount)
            if not others:
                others.append(Workers(1, 2, store).first_to_report(LOST))
            return value

    first = Workers(0, 2, Interrupted()).first_to_report(LOST)
    assert sorted([first, *others]) == [False, True]
