"""Averaged weights against plain loops, and after a resumed run."""

import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.training.loop import train
from bitprint.training.plan import Training


def images():
    rng = np.random.default_rng(0)
    return ImageSet(rng.integers(0, 256, (40, 8, 8, 3), np.uint8), labels=np.arange(40) % 4)


def fitted(**changes):
    options = {
        "recipe": "original",
        "backbone": "small",
        "epochs": 3,
        "batch_size": 16,
        "lr": 1e-2,
    } | changes
    return bp.create("dpsh", 8, **options).fit(images())


def weights(hasher):
    return {name: value.clone() for name, value in hasher.net_.state_dict().items()}


def test_the_average_is_that_of_plain_loops_over_all_steps(monkeypatch):
    decay, seen = 0.7, []
    step = torch.optim.SGD.step
    nets = []

    def remember_net(net, *rest, **named):
        nets.append(net)
        seen.append({name: value.clone() for name, value in net.state_dict().items()})
        return train(net, *rest, **named)

    def remember_weights(self, *rest, **named):
        result = step(self, *rest, **named)
        seen.append({name: value.clone() for name, value in nets[0].state_dict().items()})
        return result

    monkeypatch.setattr("bitprint.methods._deep.train", remember_net)
    monkeypatch.setattr(torch.optim.SGD, "step", remember_weights)
    found = weights(fitted(average=decay))
    assert len(seen) == 1 + 3 * 3  # initial weights, then three steps in each of three epochs

    for name, value in found.items():
        if not value.is_floating_point():
            assert value.equal(seen[-1][name])
            continue
        average = seen[0][name].double()
        for done, now in enumerate(seen[1:]):
            share = min(decay, (1 + done) / (10 + done))
            average = share * average + (1 - share) * now[name].double()
        torch.testing.assert_close(value.double(), average, rtol=0, atol=1e-5)


def test_without_it_the_last_network_stays():
    plain, averaged = weights(fitted()), weights(fitted(average=0.9))
    assert not plain["head.weight"].equal(averaged["head.weight"])
    assert plain["head.weight"].equal(weights(fitted(average=0.0))["head.weight"])


def test_training_itself_does_not_see_the_average():
    histories = [fitted(average=average).history_ for average in (0.0, 0.9)]
    first, second = ([row["loss"] for row in history] for history in histories)
    assert first == second


def test_a_run_that_is_resumed_ends_with_the_same_average(tmp_path):
    options = {"backbone": "small", "batch_size": 16, "lr": 1e-2, "average": 0.9}
    whole = bp.create("dsdh", 8, epochs=4, **options).fit(images(), run=tmp_path / "whole")

    def stop(self, state):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return original(self, state)

    done: list[int] = []
    original = type(whole).after_epoch
    interrupted = bp.create("dsdh", 8, epochs=4, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(whole), "after_epoch", stop)
        patch.setattr("bitprint.training.run.RunFolder.due", lambda self: True)
        with pytest.raises(KeyboardInterrupt):
            interrupted.fit(images(), run=tmp_path / "cut")
    resumed = bp.create("dsdh", 8, epochs=4, **options).fit(images(), run=tmp_path / "cut")
    assert len(resumed.history_) == 4
    for name, value in weights(whole).items():
        assert value.equal(weights(resumed)[name]), name
    # Loading a finished run does not average twice.
    again = bp.create("dsdh", 8, epochs=4, **options).fit(images(), run=tmp_path / "cut")
    assert weights(again)["head.weight"].equal(weights(whole)["head.weight"])


@pytest.mark.parametrize("average", [-0.1, 1.0, float("nan")])
def test_average_outside_zero_to_one_raises(average):
    with pytest.raises(ValueError, match="average must be "):
        Training(average=average)
