import csv
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from bitprint.training.run import RunFolder
from bitprint.training.state import State

HISTORY = [{"epoch": 1, "loss": 1 / 3}, {"epoch": 2, "loss": 1e-17, "extra": 2.0}]

OPTIMIZERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
    "momentum": lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda net: torch.optim.AdamW(net.parameters(), lr=0.1),
}


def make_run(optimizer="momentum", seed=0):
    """A network with batch norm, its optimizer, and a state of several kinds of tensors."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    state = State(torch.arange(5), torch.eye(5), batch_size=2)
    state.tensors = {
        "U": torch.randn(5, 2),
        "order": torch.randperm(5),
        "seen": torch.rand(5) < 0.5,
        "scalar": torch.rand(()),
    }
    return net, OPTIMIZERS[optimizer](net), state


def step(net, optimizer, seed):
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    net(inputs).square().sum().backward()
    optimizer.step()


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.dtype == second[name].dtype
        assert value.equal(second[name]), name


@pytest.fixture
def saved(tmp_path):
    """A folder with one checkpoint, and the path of that checkpoint."""
    net, optimizer, state = make_run()
    step(net, optimizer, seed=1)
    RunFolder(tmp_path, "me").save(HISTORY, net, optimizer, state)
    return tmp_path, tmp_path / "checkpoint" / "last.safetensors"


def restore(folder, identity="me"):
    return RunFolder(folder, identity).restore(*make_run(seed=9))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_checkpoint_brings_everything_back(tmp_path, optimizer):
    net, updates, state = make_run(optimizer)
    for seed in range(3):
        step(net, updates, seed)
    RunFolder(tmp_path, "me").save(HISTORY, net, updates, state)

    other, other_updates, other_state = make_run(optimizer, seed=9)
    epochs, history = RunFolder(tmp_path, "me").restore(other, other_updates, other_state)
    assert epochs == 2
    assert history == HISTORY
    assert_same(net.state_dict(), other.state_dict())
    assert_same(state.tensors, other_state.tensors)
    moments, other_moments = updates.state_dict()["state"], other_updates.state_dict()["state"]
    for number, values in moments.items():
        kept = {name: value for name, value in values.items() if value is not None}
        assert_same(kept, other_moments.get(number, {}))
    for seed in range(3, 6):
        step(net, updates, seed)
        step(other, other_updates, seed)
    assert_same(net.state_dict(), other.state_dict())


def test_momentum_and_adam_do_have_something_to_keep(tmp_path):
    for optimizer, names in (("momentum", {"momentum_buffer"}), ("adamw", {"exp_avg", "step"})):
        net, updates, state = make_run(optimizer)
        step(net, updates, seed=0)
        RunFolder(tmp_path / optimizer, "me").save(HISTORY, net, updates, state)
        checkpoint = tmp_path / optimizer / "checkpoint" / "last.safetensors"
        with safe_open(checkpoint, framework="pt") as file:
            stored = {name.split(".")[2] for name in file.keys() if name.startswith("optimizer.")}  # noqa: SIM118
        assert names <= stored


def test_saving_does_not_touch_what_it_saves(tmp_path):
    net, optimizer, state = make_run()
    step(net, optimizer, seed=0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    RunFolder(tmp_path, "me").save(HISTORY, net, optimizer, state)
    assert_same(before, net.state_dict())


def test_tensors_that_share_memory_are_saved_whole(tmp_path):
    net, optimizer, state = make_run()
    state.tensors["part"] = state.tensors["U"][:, :1]
    RunFolder(tmp_path, "me").save(HISTORY, net, optimizer, state)
    other, updates, other_state = make_run(seed=9)
    RunFolder(tmp_path, "me").restore(other, updates, other_state)
    assert_same(state.tensors, other_state.tensors)


def test_restored_tensors_are_aligned_like_torchs_own(tmp_path):
    """Products of unaligned tensors can round differently, which would change a run."""
    net, updates, state = make_run("adamw")
    step(net, updates, seed=0)
    RunFolder(tmp_path, "me").save(HISTORY, net, updates, state)
    RunFolder(tmp_path, "me").restore(net, updates, state)
    moments = [value for values in updates.state.values() for value in values.values()]
    restored = [*state.tensors.values(), *net.state_dict().values(), *moments]
    assert len(restored) > 20
    assert {value.data_ptr() % 64 for value in restored} == {0}


def test_a_new_folder_starts_at_the_beginning(tmp_path):
    net, optimizer, state = make_run()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert RunFolder(tmp_path / "new" / "run", "me").restore(net, optimizer, state) == (0, [])
    assert (tmp_path / "new" / "run").is_dir()
    assert_same(before, net.state_dict())


def test_another_run_is_refused(saved):
    folder, _ = saved
    with pytest.raises(ValueError, match="contains a run with other options or other data; choose"):
        restore(folder, identity="you")


def test_every_truncation_is_refused(saved):
    folder, checkpoint = saved
    content = checkpoint.read_bytes()
    for length in range(0, len(content), 7):
        checkpoint.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"last\.safetensors: not a checkpoint, or damaged"):
            restore(folder)
    checkpoint.write_bytes(content)
    assert restore(folder) == (2, HISTORY)


def test_no_changed_byte_goes_unnoticed(saved):
    folder, checkpoint = saved
    content = checkpoint.read_bytes()
    for place in range(0, len(content), 5):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        checkpoint.write_bytes(changed)
        with pytest.raises(ValueError, match=r"checkpoint|contains a run with other options"):
            restore(folder)
    checkpoint.write_bytes(content)
    assert restore(folder) == (2, HISTORY)


def test_foreign_files_are_refused(saved):
    folder, checkpoint = saved
    for metadata in (None, {"format": "pt"}, {"format": "bitprint.codes", "version": "1"}):
        save_file({"net.0.weight": torch.zeros(2)}, checkpoint, metadata)
        with pytest.raises(ValueError, match="not a checkpoint; delete it to start again"):
            restore(folder)
    checkpoint.write_bytes(b"PK\x03\x04 some archive, perhaps of pickles" * 9)
    with pytest.raises(ValueError, match="not a checkpoint, or damaged"):
        restore(folder)


def test_a_newer_checkpoint_is_refused(saved):
    folder, checkpoint = saved
    with safe_open(checkpoint, framework="pt") as file:
        metadata = file.metadata() | {"version": "2"}
    save_file({"net.0.weight": torch.zeros(2)}, checkpoint, metadata)
    with pytest.raises(ValueError, match="checkpoint format 2, expected 1"):
        restore(folder)


def test_a_half_written_checkpoint_is_ignored(saved):
    folder, checkpoint = saved
    partial = checkpoint.with_name(checkpoint.name + ".partial")
    partial.write_bytes(checkpoint.read_bytes()[:100])
    assert restore(folder) == (2, HISTORY)
    checkpoint.unlink()
    assert restore(folder) == (0, [])


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(saved, monkeypatch):
    folder, checkpoint = saved
    content = checkpoint.read_bytes()

    def disk_full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        RunFolder(folder, "me").save(HISTORY[:1], *make_run(seed=5))
    assert checkpoint.read_bytes() == content


def test_metrics_are_a_table_of_all_epochs(tmp_path):
    run = RunFolder(tmp_path, "me")
    run.write_metrics(HISTORY[:1])
    run.write_metrics(HISTORY)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"epoch": "1", "loss": repr(1 / 3), "extra": ""},
        {"epoch": "2", "loss": "1e-17", "extra": "2.0"},
    ]


def test_checkpoints_take_a_twentieth_of_the_time(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        "bitprint.training.run.write_atomically",
        lambda path, content: now.__setitem__(0, now[0] + 3.0),
    )
    run = RunFolder(tmp_path, "me")
    assert run.due()
    run.save(HISTORY, *make_run())
    for seconds, due in ((0, False), (59.0, False), (60.5, True)):
        now[0] = 103.0 + seconds
        assert run.due() == due
