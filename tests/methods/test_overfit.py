"""Every deep method that learns from labels can overfit 40 items of random noise.

The items are independent of their labels, so the method has to memorize them. Weights in the units
of the paper are for 5,000 training images; for 40 items they are multiplied by 40 / 5000. With
eta = 55 the outputs would keep their initial signs.
"""

import numpy as np
import pytest

import bitprint as bp
from bitprint.methods import DeepHasher, method

LABELS = np.repeat(np.arange(4), 10)
SHARE = len(LABELS) / 5000
WEIGHTS: dict[str, dict[str, object]] = {
    "dsrh": {"epochs": 80},
    # With its default lambda = 0.3 and the recipe below, the MAP stays below 0.95 on vectors and
    # far below on images: with tanh and pairs within a batch, signs become fixed early.
    "dhn": {"quantisation": 0.03, "epochs": 100, "lr": 1e-2},
    "dpsh": {"eta": 10 * SHARE},
    "dtsh batch": {"triplets": "batch"},
    "dsdh": {"mu": SHARE, "nu": 0.1 * SHARE, "eta": 55 * SHARE},
    "dsdh authors": {"mode": "authors", "mu": SHARE, "nu": 0.1 * SHARE, "eta": 55 * SHARE},
    "dsdh balanced": {"mode": "balanced"},
    "dsdh-a": {"eta": 55 * SHARE},
    "dsdh-b": {"eta": 55 * SHARE},
    "dsdh-c": {"mu": SHARE, "nu": 0.1 * SHARE},
    # Its authors train a pretrained network at a lower rate.
    "hashnet": {"trunk_lr": 2e-3, "epochs": 80},
    "talr simplified": {"relaxation": "simplified"},
}
RECIPE = {"recipe": "original", "optimizer": "adamw", "schedule": "cosine", "augment": "none"}

# Mutual information does not depend on the order of distances. On noise it reaches its maximum with
# similar images on both sides of dissimilar ones; test_mihash.py has a test of its own.
DEEP = [
    name
    for name in bp.list_methods()
    if issubclass(method(name), DeepHasher)
    and method(name).supervision == "labels"
    and name != "mihash"
]
every_case = pytest.mark.parametrize("case", [*DEEP, *(case for case in WEIGHTS if " " in case)])


def training_map(case, data, **options):
    hasher = bp.create(case.split()[0], bits=12, **(options | WEIGHTS.get(case, {})))
    codes = hasher.fit(data, LABELS).encode(data)
    return bp.evaluate(codes, LABELS, codes, LABELS).map


def noise_vectors():
    return np.random.default_rng(0).standard_normal((len(LABELS), 64))


def noise_images():
    return np.random.default_rng(0).integers(0, 256, (len(LABELS), 8, 8, 3), np.uint8)


def test_noise_is_independent_of_labels():
    for data in (noise_vectors(), bp.ImageSet(noise_images())):
        assert training_map("lsh", data) < 0.5


@every_case
def test_overfits_noise_vectors(case):
    # At five times this rate, pairwise methods can map several classes to one code: all bits
    # become copies or complements of one bit.
    options = {"epochs": 100, "batch_size": 10, "lr": 2e-3, "trunk_lr": 2e-3}
    assert training_map(case, noise_vectors(), **RECIPE, **options) > 0.95


@every_case
def test_overfits_noise_images(case):
    options = {"backbone": "small", "epochs": 40, "batch_size": 10, "lr": 1e-3, "trunk_lr": 1e-3}
    assert training_map(case, noise_images(), **RECIPE, **options) > 0.95
