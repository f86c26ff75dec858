"""A captured network gives the results of the network; CPUs have no CUDA graphs."""

import contextlib
import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from bitprint import create
from bitprint.training.graphs import Captured, _items_are_independent, _record

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
        )
        self.sizes = []

    def forward(self, items):
        self.sizes.append(len(items))
        return self.layers(items)


def pair(device):
    """Two networks with the same weights."""
    torch.manual_seed(0)
    first, second = Small(), Small()
    for net in (first, second):
        net(torch.zeros(2, 3, 6, 6))
        net.to(device)
    second.load_state_dict(first.state_dict())
    return first, second


def test_on_a_cpu_every_batch_goes_through_the_network():
    net, _ = pair("cpu")
    captured = Captured(net, batch_size=4)
    net.sizes.clear()
    for count in (4, 4, 3):
        assert captured(torch.rand(count, 3, 6, 6)).shape == (count, 4)
    assert net.sizes == [4, 4, 3]


@on_gpu
def test_a_recorded_network_trains_as_the_network_does():
    net, other = pair("cuda")
    captured = Captured(net, batch_size=4)
    rates = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (net, other)]
    generator = torch.Generator().manual_seed(1)
    net.sizes.clear()
    for count in (4, 4, 3, 4, 4):
        items = torch.rand(count, 3, 6, 6, generator=generator).cuda()
        for forward, optimizer in zip((captured, other), rates, strict=True):
            optimizer.zero_grad(set_to_none=True)
            forward(items).square().mean().backward()
            optimizer.step()
        for mine, theirs in zip(
            net.state_dict().values(), other.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert net.sizes.count(3) == 1
    assert net.sizes.count(4) < 10  # only during the capture


@on_gpu
def test_a_smaller_batch_is_played_back_where_norms_are_frozen():
    net, other = (each.eval() for each in pair("cuda"))
    captured = Captured(net, batch_size=4)
    rates = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (net, other)]
    generator = torch.Generator().manual_seed(1)
    net.sizes.clear()
    for count in (3, 4, 1, 2):
        items = torch.rand(count, 3, 6, 6, generator=generator).cuda()
        for forward, optimizer in zip((captured, other), rates, strict=True):
            optimizer.zero_grad(set_to_none=True)
            outputs = forward(items)
            assert outputs.shape == (count, 4)
            outputs.square().mean().backward()
            optimizer.step()
        for mine, theirs in zip(
            net.state_dict().values(), other.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert set(net.sizes) == {4}


@pytest.mark.parametrize(("learning", "alone"), [([], True), ([1], False), ([0], True)])
def test_only_batch_norms_that_learn_mix_the_items_of_a_batch(learning, alone):
    net = pair("cpu")[0].eval()
    for layer in learning:
        net.layers[layer].train()
    assert _items_are_independent(net) == alone


@on_gpu
def test_recording_draws_no_random_number():
    net, _ = pair("cuda")
    torch.manual_seed(5)
    Captured(net, batch_size=4)(torch.rand(4, 3, 6, 6).cuda())
    drawn = torch.rand(3, device="cuda")
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3, device="cuda"))


@on_gpu
def test_freeing_an_old_graph_does_not_break_a_capture():
    thresholds = gc.get_threshold()
    try:
        for _ in range(3):
            older, newer = (Captured(net, batch_size=4) for net in pair("cuda"))
            older(torch.rand(4, 3, 6, 6).cuda())
            older.itself = older  # only the garbage collector can free it
            del older
            gc.set_threshold(1)  # the collector can run at nearly every line
            assert newer(torch.rand(4, 3, 6, 6).cuda()).shape == (4, 4)
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_before_recording_and_not_during_it(enabled, monkeypatch):
    class Item:
        pass

    item = Item()
    item.itself, gone = item, weakref.ref(item)
    del item
    seen = []

    def record(net, examples, **_):
        seen.append((gone() is None, gc.isenabled()))
        return net

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: contextlib.nullcontext())
    if not enabled:
        gc.disable()
    try:
        _record(pair("cpu")[0], torch.rand(4, 3, 6, 6))
        assert seen == [(True, False)]
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@on_gpu
@pytest.mark.parametrize("backbone", ["small", "cnnh", "nin-small:100", "alexnet"])
def test_every_network_can_be_recorded(backbone, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 32, 32, 3), np.uint8)
    labels = np.arange(40) % 4
    options = {"backbone": backbone, "batch_size": 16, "optimizer": "adamw", "lr": 1e-5}
    recorded = create("dpsh", 8, epochs=4, **options).fit(images, labels)
    if backbone == "alexnet":  # dropout draws other numbers in a graph
        assert all(np.isfinite(row["loss"]) for row in recorded.history_)
        return
    monkeypatch.setattr(Captured, "__call__", lambda self, items: self._net(items))
    eager = create("dpsh", 8, epochs=4, **options).fit(images, labels)
    losses = [[row["loss"] for row in hasher.history_] for hasher in (recorded, eager)]
    np.testing.assert_allclose(*losses, rtol=0.05)
