"""Computations of the training benchmark, with fake clocks; no speed is tested here."""

import csv
import importlib.util
import inspect
import platform
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training.py"


@pytest.fixture(scope="module")
def bench():
    """The script as a module; it measures on the CPU."""
    spec = importlib.util.spec_from_file_location("training_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pick_device = lambda name: torch.device("cpu")
    return module


@pytest.fixture
def clock(bench, monkeypatch):
    """A clock that tests advance; CPU time passes at a quarter of its speed."""
    now = SimpleNamespace(seconds=100.0)
    clocks = SimpleNamespace(perf_counter=lambda: now.seconds, process_time=lambda: now.seconds / 4)
    monkeypatch.setattr(bench, "time", clocks)
    return now


def run(bench, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(bench, "keep_freed_memory", lambda: None)  # it would outlive the test
    monkeypatch.setattr(sys, "argv", ["training.py", *map(str, arguments)])
    bench.main()
    return capsys.readouterr().out


def small(bench, **others):
    given = {"images": 48, "batch": 8, "backbone": "small", "bits": 6, "steps": 2}
    return bench.make_task(SimpleNamespace(**given | others))


def columns(*rounds):
    """Seconds of rounds, for both clocks; CPU seconds are a tenth."""
    return np.array([[seconds, seconds / 10] for seconds in rounds])


# ---- clocks


def test_rounds_go_forth_and_back(bench, clock):
    calls = []

    def work(name, seconds):
        def do():
            calls.append(name)
            clock.seconds += seconds

        return do

    works = {"a": work("a", 1.0), "b": work("b", 2.0), "c": work("c", 4.0)}
    times = bench.take_turns(works, rounds=3, group=2)
    assert "".join(calls) == "aabbcc" + "ccbbaa" + "aabbcc"
    for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 4.0)):
        assert times[name].tolist() == [[seconds, seconds / 4]] * 3


def test_the_work_after_an_epoch_is_a_mean_over_two_without_what_it_takes_at_first(bench, clock):
    number = count()

    def after_epoch(state):
        epoch = next(number)
        clock.seconds += 1000 * (epoch < 2) + (6 if epoch % 2 else 0)

    hasher = SimpleNamespace(after_epoch=after_epoch)
    assert bench.seconds_after_epoch(hasher, None).tolist() == [3.0, 0.75]


# ---- figures


def test_ratios_are_taken_round_by_round(bench):
    network, step = columns(1.0, 4.0, 2.0), columns(3.0, 4.4, 2.2)
    step[:, 1] = [0.2, 0.6, 0.2]  # the CPU ratios are 2, 1.5 and 1
    row = bench.figures({"network": network, "step": step}, np.zeros(2), 10, batch=33)
    assert row["ratio"] == 1.1  # the ratio of medians would be 1.5
    assert (row["ratio_low"], row["ratio_high"], row["rounds"]) == (1.1, 3.0, 3)
    assert row["ratio_cpu"] == 1.5
    assert row["images_per_second"] == 11
    assert (row["network_ms"], row["step_ms"]) == (2000, 3000)
    assert "ratio_recorded" not in row


def test_the_work_after_an_epoch_is_shared_out_among_its_steps(bench):
    times = {"network": columns(1.0, 1.0), "step": columns(1.0, 1.0)}
    row = bench.figures(times, np.array([5.0, 0.2]), steps_per_epoch=10, batch=3)
    assert (row["ratio"], row["ratio_cpu"]) == (1.5, 1.2)
    assert (row["images_per_second"], row["step_ms"], row["after_epoch_s"]) == (2, 1000, 5.0)


def test_a_recorded_network_has_its_own_ratio(bench):
    times = {"network": columns(4.0), "recorded": columns(2.0), "step": columns(3.0)}
    row = bench.figures(times, np.zeros(2), 10, batch=6)
    assert (row["ratio"], row["ratio_recorded"], row["recorded_ms"]) == (0.75, 1.5, 2000)
    assert "ratio_cpu" not in row


# ---- what is timed


def test_the_network_alone_is_built_as_the_method_builds_its_own(bench):
    task = small(bench)
    hasher = bench.make_hasher("dsdh-b", task)
    nets = [bench.build(hasher, task) for _ in range(2)]
    assert nets[0].training
    assert nets[0].head.out_features == 6 + bench.CLASSES  # the method's hash layer
    for one, other in zip(*(net.state_dict().values() for net in nets), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_what_is_called_a_step_trains_and_what_is_called_loss_does_not(bench, monkeypatch):
    task = small(bench)
    hasher = bench.make_hasher("dpsh", task)
    labels = torch.as_tensor(task.images.labels)
    state = bench.State(labels, torch.nn.functional.one_hot(labels).float(), 8)
    hasher.prepare(state)
    nets = []
    build = bench.build
    monkeypatch.setattr(bench, "build", lambda *given: nets.append(build(*given)) or nets[-1])
    batches = bench.endless_batches(task)
    works = bench.method_works(hasher, state, batches, task)
    weight = nets[0].head.weight

    def changed(work):
        before = weight.detach().clone()
        works[work]()
        return not torch.equal(before, weight)

    assert changed("step")
    assert [changed(name) for name in ("augment", "loss", "optimizer")] == [False, False, True]
    assert state.tensors["U"].any(dim=1).sum() >= 8  # the rows of the batch, refreshed
    batches.close()


def test_batches_are_whole_and_never_end(bench):
    batches = bench.endless_batches(small(bench, images=20))
    epochs = [torch.cat([next(batches)[0] for _ in range(2)]) for _ in range(3)]
    assert all(len(rows.unique()) == 16 for rows in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    batches.close()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc")
def test_freed_memory_is_kept(bench):
    source = f"""
import ctypes, platform, resource
{inspect.getsource(bench.keep_freed_memory)}
keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytes([number]) * (1 << 24) for number in range(1, 7)]
    del blocks
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    first, second = map(int, done.stdout.split())
    assert second < first / 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_network_is_recorded_too(bench, monkeypatch):
    monkeypatch.setattr(bench, "pick_device", lambda name: torch.device("cuda"))
    row = bench.measure("dpsh", small(bench, steps=2 * bench.GROUP))
    assert row["ratio_recorded"] > 0
    assert row["gpu_memory_gb"] > 0
    assert row["rounds"] == 2


# ---- the table


def test_table_is_written_row_by_row_and_resumes(bench, monkeypatch, capsys, tmp_path):
    path = tmp_path / "table.csv"
    setting = ["--backbone", "small", "--images", 48, "--batch", 8, "--bits", 6, "--steps", 2]
    run(bench, monkeypatch, capsys, *setting, "--csv", path, "--methods", "dpsh")
    first = path.read_text()
    measured = []
    measure = bench.measure

    def spied(name, task):
        assert path.read_text().count("\n") == 2 + len(measured)
        measured.append(name)
        return measure(name, task)

    monkeypatch.setattr(bench, "measure", spied)
    names = ["dpsh", "dqn", "dsdh authors"]
    printed = run(bench, monkeypatch, capsys, *setting, "--csv", path, "--methods", *names)
    assert measured == ["dqn", "dsdh authors"]
    assert path.read_text().startswith(first)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == names
    for row in rows:
        assert 0 < float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
        assert all(float(row[f"{part}_ms"]) > 0 for part in ("network", "step", "loss", "augment"))
        assert row["rounds"] == "2"
    worst = max(float(row["ratio"]) for row in rows if row["method"] != "dqn")
    assert f"pairwise family: maximum ratio {worst:.2f}, budget 1.10" in printed
    run(bench, monkeypatch, capsys, *setting, "--bits", 5, "--csv", path, "--methods", "dqn")
    assert measured == ["dqn", "dsdh authors", "dqn"]  # again, because the setting differs


def test_a_table_of_something_else_is_left_alone(bench, monkeypatch, capsys, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("method,seconds\ndpsh,1\n")
    with pytest.raises(ValueError, match=r"other\.csv: unexpected columns"):
        run(bench, monkeypatch, capsys, "--csv", path)
    assert path.read_text() == "method,seconds\ndpsh,1\n"


@pytest.mark.parametrize(
    "wrong", [["--images", 4, "--batch", 8], ["--steps", 0], ["--methods", "itq"]]
)
def test_wrong_arguments_exit(bench, monkeypatch, capsys, wrong):
    with pytest.raises(SystemExit):
        run(bench, monkeypatch, capsys, *wrong)


def test_there_is_a_row_for_every_pairwise_method(bench):
    assert set(bench.PAIRWISE) <= set(bench.rows())
    assert len(bench.rows()) == len(set(bench.rows()))
