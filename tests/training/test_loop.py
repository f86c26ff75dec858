import csv
import math
import tracemalloc
import warnings
from itertools import chain

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

import bitprint as bp
from bitprint.data.feed import Feed
from bitprint.data.images import ImageSet
from bitprint.nets import create_trunk
from bitprint.nets.mlp import MLP
from bitprint.nets.network import HashNetwork
from bitprint.training.loop import train
from bitprint.training.plan import Training
from bitprint.training.run import RunFolder
from bitprint.training.state import State

CPU = torch.device("cpu")
COUNT, INPUTS, BITS = 22, 3, 4


class Recorder:
    """An objective that records its arguments and minimizes the mean output."""

    views = 1

    def __init__(self, weight=1.0):
        self.weight = weight
        self.epochs = [[]]

    def prepare(self, state):
        state.tensors["steps"] = torch.zeros(())

    def loss(self, outputs, rows, state):
        state.tensors["steps"] += 1
        self.epochs[-1].append(rows.tolist())
        return {"mean": self.weight * outputs.mean(), "constant": torch.tensor(2.0)}

    def after_epoch(self, state):
        self.epochs.append([])
        return {"figure": 10.0 * len(self.epochs)}


def make_net(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    head = nn.Sequential(nn.Dropout(dropout), nn.Linear(5, BITS))
    net = HashNetwork(MLP(INPUTS, hidden=[5]), head)
    for name, value in net.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(value)
    return net


def make_state():
    return State(torch.arange(COUNT) % 2, torch.eye(2)[torch.arange(COUNT) % 2], batch_size=5)


def features(count=COUNT):
    return np.random.default_rng(0).normal(size=(count, INPUTS)).astype(np.float32)


def run_loop(objective=None, net=None, seed=0, run=None, **options):
    options = {"epochs": 3, "batch_size": 5, "lr": 0.1, "schedule": "constant"} | options
    return train(
        net or make_net(),
        objective or Recorder(),
        Feed(features(), CPU),
        make_state(),
        Training(**options),
        seed=seed,
        run=run,
    )


def weights_of(net):
    return torch.cat([value.detach().flatten() for value in net.parameters()])


@pytest.fixture
def rates():
    """Learning rates of hash layer and backbone at every optimizer step."""
    seen = []
    hook = register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: seen.append([g["lr"] for g in optimizer.param_groups])
    )
    yield seen
    hook.remove()


# Order


def test_every_epoch_sees_every_image_once_in_a_new_order():
    objective = Recorder()
    run_loop(objective)
    orders = [list(chain(*batches)) for batches in objective.epochs[:-1]]
    assert len(orders) == 3
    for batches, order in zip(objective.epochs, orders, strict=False):
        assert [len(rows) for rows in batches] == [5, 5, 5, 5, 2]
        assert sorted(order) == list(range(COUNT))
    assert len({tuple(order) for order in orders}) == 3


def test_the_seed_decides():
    runs = []
    for seed in (0, 0, 1):
        net = make_net(dropout=0.5)
        runs.append((run_loop(net=net, seed=seed), weights_of(net)))
    losses = [[row["loss"] for row in history] for history, _ in runs]
    assert losses[0] == losses[1] != losses[2]
    assert runs[0][1].equal(runs[1][1])
    assert not runs[0][1].equal(runs[2][1])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_global_generators_are_left_alone(optimizer):
    net = make_net(dropout=0.5)
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    run_loop(net=net, optimizer=optimizer)
    assert torch.rand(3).equal(expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


def test_fitting_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    bp.create("dsdh", bits=8, epochs=1).fit(np.eye(6), [0, 0, 0, 1, 1, 1])
    assert torch.rand(3).equal(expected)


def test_the_result_does_not_depend_on_the_global_generator():
    codes = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        hasher = bp.create("dsdh", bits=8, epochs=2).fit(np.eye(6), [0, 0, 0, 1, 1, 1])
        codes.append(hasher.project(np.eye(6)))
    assert np.array_equal(*codes)


# Views


class TwoViews(Recorder):
    """Records the outputs too."""

    views = 2

    def loss(self, outputs, rows, state):
        self.outputs = outputs.detach()
        return super().loss(outputs, rows, state)


def test_two_views_are_stacked_and_keep_the_order():
    once, twice = Recorder(), TwoViews()
    run_loop(once)
    history = run_loop(twice)
    assert len(history) == 3
    for batches, expected in zip(twice.epochs, once.epochs, strict=True):
        assert batches == [2 * rows for rows in expected]


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_views_of_features_differ_by_their_noise(noise):
    objective, net = TwoViews(), make_net()
    net.trunk.noise.std = noise
    run_loop(objective, net, lr=0.0)
    first, second = objective.outputs.chunk(2)
    assert torch.equal(first, second) == (noise == 0)


@pytest.mark.parametrize("augment", ["none", "shift", "colour"])
def test_views_of_images_differ_by_their_augmentation(augment):
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 16, 16, 3), np.uint8)
    trunk = create_trunk("small", input_shape=(16, 16, 3))
    net, objective = HashNetwork(trunk, nn.Linear(trunk.out_features, BITS)), TwoViews()
    training = Training(epochs=1, batch_size=5, lr=0.0, augment=augment)
    train(net, objective, Feed(ImageSet(pixels), CPU), make_state(), training)
    first, second = objective.outputs.chunk(2)
    assert torch.equal(first, second) == (augment == "none")


# Steps


def test_history_has_one_row_per_epoch():
    net, objective = make_net(), Recorder()
    history = run_loop(objective, net)
    columns = ["epoch", "loss", "mean", "constant", "figure", "lr", "seconds"]
    assert [list(row) for row in history] == [columns] * 3
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert [row["constant"] for row in history] == [2.0] * 3
    assert [row["figure"] for row in history] == [20.0, 30.0, 40.0]
    for row in history:
        assert row["loss"] == row["mean"] + row["constant"]
        assert row["lr"] == 0.1
        assert row["seconds"] >= 0


class Warns(Recorder):
    """Emits torch's warnings about captured graphs, and another warning."""

    def loss(self, outputs, rows, state):
        for said in (
            "The AccumulateGrad node's stream does not match the stream of the node",
            "Attempting to run cuBLAS, but there was no current CUDA context! Attempting",
            "gradients are lost",
        ):
            warnings.warn(said, UserWarning, stacklevel=1)
        return super().loss(outputs, rows, state)


def test_false_alarms_of_torch_are_silenced():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run_loop(Warns())
        assert {str(each.message) for each in seen} == {"gradients are lost"}
        warnings.warn(
            "Attempting to run cuBLAS, but there was no current CUDA context", stacklevel=1
        )
    assert "cuBLAS" in str(seen[-1].message)


def test_a_figure_is_the_mean_over_the_batches():
    net = make_net()
    objective = Recorder()
    [row] = run_loop(objective, net, epochs=1, lr=0.0)
    inputs = torch.from_numpy(features())
    means = [net(inputs[rows]).mean().item() for rows in objective.epochs[0]]
    assert row["mean"] == pytest.approx(sum(means) / 5, rel=1e-5)


def test_sgd_matches_plain_loops():
    """With momentum, weight decay and the order of the batches."""
    net, twin, objective = make_net(), make_net(), Recorder()
    run_loop(objective, net, epochs=2, lr=0.2, momentum=0.9, weight_decay=0.05)
    inputs = torch.from_numpy(features())
    velocity = [torch.zeros_like(value) for value in twin.parameters()]
    for rows in chain(*objective.epochs):
        twin.zero_grad()
        twin(inputs[rows]).mean().backward()
        with torch.no_grad():
            for value, speed in zip(twin.parameters(), velocity, strict=True):
                speed.mul_(0.9).add_(value.grad + 0.05 * value)
                value.sub_(0.2 * speed)
    torch.testing.assert_close(weights_of(net), weights_of(twin))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_shrinks_weights_and_biases_alike(optimizer):
    """With zero gradient, every parameter shrinks by lr times decay in each step."""
    net = make_net()
    before = weights_of(net)
    run_loop(Recorder(weight=0.0), net, lr=0.1, weight_decay=0.2, optimizer=optimizer)
    torch.testing.assert_close(weights_of(net), before * (1 - 0.02) ** 15)


def test_no_weight_decay_no_shrinking():
    net = make_net()
    before = weights_of(net)
    run_loop(Recorder(weight=0.0), net, weight_decay=0.0)
    assert weights_of(net).equal(before)


@pytest.mark.parametrize("schedule", ["log", "cosine", "constant"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_head_and_trunk_follow_the_schedule(rates, schedule, optimizer):
    options = {"epochs": 3, "batch_size": 5, "lr": 0.1, "schedule": schedule}
    history = run_loop(optimizer=optimizer, trunk_lr=0.025, **options)
    plan = Training(**options)
    expected = [plan.rate(step // 5, step / 15) for step in range(15)]
    head, trunk = np.array(rates).T
    np.testing.assert_allclose(head, expected, rtol=1e-12)
    np.testing.assert_allclose(trunk, head / 4, rtol=1e-12)
    assert [row["lr"] for row in history] == head[[4, 9, 14]].tolist()


def test_the_trunk_has_the_rate_of_the_head_by_default(rates):
    run_loop(schedule="cosine")
    head, trunk = np.array(rates).T
    assert np.array_equal(head, trunk)
    assert head.max() > 0


def test_a_trunk_rate_of_zero_freezes_the_trunk():
    net, twin = make_net(), make_net()
    run_loop(net=net, trunk_lr=0.0)
    assert weights_of(net.trunk).equal(weights_of(twin.trunk))
    assert not weights_of(net.head).equal(weights_of(twin.head))


def test_a_head_rate_of_zero_freezes_only_the_head():
    net, twin = make_net(), make_net()
    run_loop(net=net, lr=0.0, trunk_lr=0.1)
    assert weights_of(net.head).equal(weights_of(twin.head))
    assert not weights_of(net.trunk).equal(weights_of(twin.trunk))


# Run folder


def always_save(path):
    run = RunFolder(path, "me")
    run.due = lambda: True
    return run


def test_metrics_file_equals_history(tmp_path):
    history = run_loop(run=RunFolder(tmp_path, "me"))
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{name: str(value) for name, value in row.items()} for row in history]


def test_a_run_resumes_where_it_stopped(tmp_path):
    class Stops(Recorder):
        def after_epoch(self, state):
            if len(self.epochs) == 3:
                raise KeyboardInterrupt
            return super().after_epoch(state)

    net, whole = make_net(dropout=0.5), make_net(dropout=0.5)
    expected = run_loop(net=whole, epochs=5, momentum=0.9)
    with pytest.raises(KeyboardInterrupt):
        run_loop(Stops(), net, epochs=5, momentum=0.9, run=always_save(tmp_path))
    resumed, objective = make_net(seed=8, dropout=0.5), Recorder()
    history = run_loop(objective, resumed, epochs=5, momentum=0.9, run=RunFolder(tmp_path, "me"))
    assert len(objective.epochs[:-1]) == 3
    assert [row["epoch"] for row in history] == [1, 2, 3, 4, 5]
    assert [row["mean"] for row in history] == [row["mean"] for row in expected]
    assert weights_of(resumed).equal(weights_of(whole))


class Explodes(Recorder):
    """The loss is NaN from the third epoch on."""

    def loss(self, outputs, rows, state):
        parts = super().loss(outputs, rows, state)
        if state.tensors["steps"] > 10:
            parts["mean"] = parts["mean"] * math.nan
        return parts


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    with pytest.raises(FloatingPointError, match="the loss is not finite in epoch 3; lower"):
        run_loop(Explodes(), epochs=5)
    message = "the loss is not finite in epoch 3; the checkpoint after epoch 2 is kept in .*; lower"
    with pytest.raises(FloatingPointError, match=message):
        run_loop(Explodes(), epochs=5, run=always_save(tmp_path))
    good = make_net()
    run_loop(net=good, epochs=2)
    net = make_net(seed=8)
    state = make_state()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    epochs, history = RunFolder(tmp_path, "me").restore(net, optimizer, state)
    assert epochs == len(history) == 2
    assert state.tensors["steps"] == 10
    assert weights_of(net).equal(weights_of(good))
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 3


def test_an_infinite_loss_in_the_first_epoch_leaves_no_checkpoint(tmp_path):
    class Infinite(Recorder):
        def loss(self, outputs, rows, state):
            return {"mean": outputs.mean() / 0.0}

    with pytest.raises(FloatingPointError, match="not finite in epoch 1; lower the learning rate"):
        run_loop(Infinite(), run=RunFolder(tmp_path, "me"))
    assert not (tmp_path / "checkpoint").exists()


def test_error_names_the_existing_checkpoint(tmp_path):
    """If not every epoch is saved, the checkpoint is older than the last epoch."""
    run = RunFolder(tmp_path, "me")
    dues = iter([True, False, False])
    run.due = lambda: next(dues)
    with pytest.raises(FloatingPointError) as error:
        run_loop(Explodes(), epochs=5, run=run)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept, _ = RunFolder(tmp_path, "me").restore(net, optimizer, make_state())
    assert kept == 1
    assert "after epoch 2" not in str(error.value)


@pytest.mark.parametrize("bad_step", [10, 15])
def test_a_network_that_is_not_finite_is_never_kept(tmp_path, bad_step):
    """A finite loss can have a gradient that is not: seen too late, it would spoil the checkpoint.

    Step 10 is the last of epoch 2, step 15 the last of all.
    """

    class Spoils(Recorder):
        def loss(self, outputs, rows, state):
            parts = super().loss(outputs, rows, state)
            if state.tensors["steps"] == bad_step:
                parts["mean"] = (0 * outputs).sqrt().sum()
            return parts

    with pytest.raises(FloatingPointError, match="finite"):
        run_loop(Spoils(), run=always_save(tmp_path))
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept, _ = RunFolder(tmp_path, "me").restore(net, optimizer, make_state())
    assert torch.isfinite(weights_of(net)).all()
    assert kept == bad_step // 5 - 1


# Buffers


@pytest.mark.parametrize("mode", ["paper", "authors", "balanced"])
def test_output_buffer_equals_network_outputs(mode):
    """With learning rate 0 the network is constant, and U equals its outputs for all images."""
    data = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    labels = np.arange(50) % 3
    kept = {}

    class Watched(type(bp.create("dsdh", bits=12))):
        def after_epoch(self, state):
            figures = super().after_epoch(state)
            kept.update(state.tensors)
            return figures

    training = Training(epochs=1, batch_size=8, lr=0.0)
    hasher = Watched(12, mode=mode, training=training, device="cpu").fit(data, labels)
    outputs = hasher.project(data)
    said = np.tanh(outputs) if mode == "balanced" else outputs
    np.testing.assert_allclose(kept["U"].numpy(), said, rtol=1e-4, atol=1e-6)
    assert kept["U"].abs().min() > 0
    assert set(kept["B"].unique().tolist()) == {-1.0, 1.0}


class Sizes(TorchDispatchMode):
    """Records the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.numel())
        return result


class OneBatch(Feed):
    """The first batch of every epoch."""

    def batches(self, order, batch_size):
        yield from super().batches(order[:batch_size], batch_size)


@pytest.mark.parametrize("labels", ["classes", "matrix"])
@pytest.mark.parametrize("mode", ["paper", "authors", "balanced"])
def test_nothing_grows_with_the_square_of_the_training_set(mode, labels):
    count, batch = 20_000, 64
    numbers = torch.arange(count) % 10
    classes = torch.eye(10)[numbers]
    state = State(numbers if labels == "classes" else classes, classes, batch)
    hasher = bp.create("dsdh", bits=12, mode=mode)
    net = HashNetwork(MLP(INPUTS, hidden=[5]), hasher.make_head(5, 10))
    feed = OneBatch(features(count), CPU)
    tracemalloc.start()
    with Sizes() as sizes:
        train(net, hasher, feed, state, Training(epochs=1, batch_size=batch))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sizes.largest == batch * count  # one batch against all images
    assert peak < count * count / 8  # less than a packed bit matrix in NumPy
