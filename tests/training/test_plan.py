import json
import math

import numpy as np
import pytest

from bitprint.training.plan import Training


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "3", None, True, False])
def test_counts_below_one_raise(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer >= 1"):
        Training(**{name: value})


@pytest.mark.parametrize("name", ["lr", "trunk_lr", "cutmix", "drop_blocks", "average"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, -math.inf, "some"])
def test_rates_are_finite_and_not_negative(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number >= 0"):
        Training(**{name: value})
    assert getattr(Training(**{name: 0}), name) == 0


def test_numbers_of_numpy_become_plain_ones():
    given = {"epochs": np.int64(2), "batch_size": np.uint8(16), "lr": np.float32(0.25)}
    given |= {"freeze_norms": np.True_, "per_class": np.int32(3), "momentum": np.float64(0.5)}
    training = Training(**given)
    for name, value in given.items():
        assert getattr(training, name) == value
        assert type(getattr(training, name)) is type(value.item())
    assert json.loads(json.dumps(vars(training))) == vars(training)
    with pytest.raises(ValueError, match="epochs must be an integer"):
        Training(epochs=np.float64(2))
    with pytest.raises(ValueError, match="epochs must be an integer"):
        Training(epochs=np.True_)


def test_shares_are_shares():
    assert Training(cutmix=1).cutmix == 1
    with pytest.raises(ValueError, match=r"cutmix must be <= 1, got 1\.1"):
        Training(cutmix=1.1)
    for name in ("drop_blocks", "average"):
        with pytest.raises(ValueError, match=f"{name} must be < 1, got 1"):
            Training(**{name: 1})


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("optimizer", "sgd, adamw"),
        ("schedule", "log, cosine, constant"),
        ("precision", "auto, float32, bfloat16"),
    ],
)
def test_choices_are_checked_and_listed(name, known):
    with pytest.raises(ValueError, match=f"{name} must be one of {known}, got 'other'"):
        Training(**{name: "other"})


def rates(training, steps=10):
    """Learning rate of every step, with `steps` batches per epoch."""
    return np.array(
        [
            training.rate(epoch, (epoch + step / steps) / training.epochs)
            for epoch in range(training.epochs)
            for step in range(steps)
        ]
    )


def test_the_default_schedule_is_that_of_the_authors():
    authors = np.logspace(-2, -6, 150)
    ours = rates(Training(), steps=1)
    np.testing.assert_allclose(ours, authors, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("lr", "epochs"), [(0.5, 2), (1e-3, 7), (2.0, 40)])
def test_log_falls_four_decades_epoch_by_epoch(lr, epochs):
    by_epoch = rates(Training(lr=lr, epochs=epochs)).reshape(epochs, 10)
    assert np.all(by_epoch == by_epoch[:, :1])
    np.testing.assert_allclose(by_epoch[:, 0], np.geomspace(lr, lr * 1e-4, epochs), rtol=1e-12)


def test_log_of_one_epoch_stays_at_the_highest_rate():
    assert Training(lr=0.3, epochs=1).rate(0, 0.5) == 0.3


def test_constant_is_constant():
    assert set(rates(Training(schedule="constant", lr=0.03, epochs=5))) == {0.03}


@pytest.mark.parametrize(("epochs", "steps"), [(10, 100), (1, 50), (150, 40)])
def test_cosine_warms_up_and_falls_to_zero(epochs, steps):
    training = Training(schedule="cosine", lr=0.2, epochs=epochs)
    run = rates(training, steps)
    progress = np.arange(epochs * steps) / (epochs * steps)
    warming = progress < 0.099
    assert np.all(np.diff(run[warming]) > 0)
    assert 0 < run[0] <= 0.2 / 50
    fall = progress >= 0.1
    assert np.all(np.diff(run[fall]) < 0)
    closed_form = 0.1 * (1 + np.cos(np.pi * (progress[fall] - 0.1) / 0.9))
    np.testing.assert_allclose(run[fall], closed_form, rtol=1e-9, atol=1e-12)
    assert run.max() <= 0.2
    assert run.max() == pytest.approx(0.2, rel=5e-3)
    # The last step is 1 / (epochs * steps) before the end, where the cosine is flat.
    assert run[-1] <= 0.05 * (np.pi / 0.9 / (epochs * steps)) ** 2 * 1.001


def test_cosine_moves_with_every_step():
    training = Training(schedule="cosine", epochs=4)
    run = rates(training, steps=10)
    assert len(set(run)) == len(run)


def test_augmentation_is_checked():
    assert Training(augment="flip+erase").augment == "flip+erase"
    with pytest.raises(ValueError, match=r"augment must be none, or some of flip.* got 'other'"):
        Training(augment="other")
