"""Options of `fit` of a deep method: validation, callback, run, progress."""

import csv

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bitprint as bp

RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3
FEATURES = (np.eye(3)[LABELS] * 4 + RNG.standard_normal((60, 3))).astype(np.float32)
HELD_LABELS = np.arange(30) % 3
HELD = (np.eye(3)[HELD_LABELS] * 4 + RNG.standard_normal((30, 3))).astype(np.float32)


def create(**options):
    return bp.create("dsdh", bits=8, **({"epochs": 3, "device": "cpu"} | options))


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_validation_logs_the_score_of_every_epoch(average, tmp_path):
    hasher = create(average=average)
    hasher.fit(FEATURES, LABELS, validation=(HELD, HELD_LABELS), run=tmp_path)
    logged = [row["validation_map"] for row in hasher.history_]
    assert len(logged) == 3
    assert logged[-1] == hasher.score(HELD, HELD_LABELS)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [float(row["validation_map"]) for row in csv.DictReader(file)] == logged


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_validation_does_not_change_the_training(average):
    plain = create(average=average).fit(FEATURES, LABELS)
    measured = create(average=average)
    measured.fit(FEATURES, LABELS, validation=(HELD, HELD_LABELS))
    np.testing.assert_array_equal(plain.project(HELD), measured.project(HELD))


def test_validation_takes_names_and_an_image_set():
    images = bp.ImageSet(RNG.integers(0, 255, (12, 8, 8, 3), np.uint8), labels=np.arange(12) % 2)
    hasher = create(epochs=1, backbone="small").fit(images, validation=(images, None))
    assert 0 <= hasher.history_[0]["validation_map"] <= 1
    names = np.array(["cat", "dog", "cow"])
    create(epochs=1).fit(FEATURES, names[LABELS], validation=(HELD, names[HELD_LABELS]))


@pytest.mark.parametrize(
    ("validation", "complaint"),
    [
        (HELD, r"^validation must be a tuple \(X, y\)"),
        ((HELD, None), r"^validation needs labels: validation=\(X, y\)$"),
        ((HELD, HELD_LABELS[:4]), "30"),
        (0.1, r"^validation must be a tuple \(X, y\)"),
        ((HELD,), r"^validation must be a tuple \(X, y\)"),
    ],
)
def test_wrong_validation_is_refused_before_training(validation, complaint):
    rows = []
    with pytest.raises(ValueError, match=complaint):
        create().fit(FEATURES, LABELS, validation=validation, callback=rows.append)
    assert rows == []


@pytest.mark.parametrize("form", [lambda data: data, lambda data: DataLoader(data, batch_size=4)])
def test_validation_takes_a_dataset_and_a_loader(form):
    held = TensorDataset(torch.from_numpy(HELD), torch.from_numpy(HELD_LABELS))
    hasher = create(epochs=1).fit(FEATURES, LABELS, validation=form(held))
    assert hasher.history_[0]["validation_map"] == hasher.score(HELD, HELD_LABELS)


def test_callbacks_that_are_no_function_are_refused(tmp_path):
    with pytest.raises(ValueError, match="callback must be a function"):
        create().fit(FEATURES, LABELS, callback=[print], run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_callback_gets_the_rows_and_can_end_training():
    rows = []
    hasher = create().fit(FEATURES, LABELS, callback=rows.append)
    assert rows == hasher.history_

    def stop(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create().fit(FEATURES, LABELS, callback=stop)


def test_labels_may_be_given_by_either_name():
    codes = [
        create().fit(FEATURES, LABELS).encode(HELD),
        create().fit(FEATURES, y=LABELS).encode(HELD),
    ]
    with pytest.warns(DeprecationWarning, match="pass the labels as y") as caught:
        codes.append(create().fit(X=FEATURES, labels=LABELS).encode(HELD))
    assert caught[0].filename == __file__
    assert codes[0] == codes[1] == codes[2]


def test_codes_no_better_than_chance_warn(recwarn):
    create(lr=0.0, trunk_lr=0.0).fit(RNG.standard_normal((60, 3)), LABELS)
    assert "hardly better than chance" in str(recwarn[0].message)
    recwarn.clear()
    create(epochs=20).fit(FEATURES, LABELS)
    assert not recwarn.list


@pytest.mark.parametrize("weight", ["x", [1.0]])
def test_weights_that_are_no_numbers_are_refused(weight):
    with pytest.raises(ValueError, match=r"^eta must be a number >= 0, got"):
        bp.DSDH(bits=8, epochs=1, device="cpu", eta=weight).fit(FEATURES, LABELS)
