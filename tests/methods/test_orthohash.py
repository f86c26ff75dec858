"""OrthoHash: softmax of cosines with a margin, against plain loops."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds
from torch.nn import functional

from bitprint.methods.orthohash import OrthoHash


def centers_of(hasher, labels):
    state = reference.make_state(labels)
    hasher.prepare(state)
    return state.tensors["centers"].numpy()


@both_kinds
def test_loss_by_loops(labels):
    hasher, outputs, total = (
        OrthoHash(5, scale=6.0, margin=0.3),
        reference.random_outputs(7, 5),
        0.0,
    )
    centers = centers_of(hasher, labels)
    for row, label in zip(outputs, labels, strict=True):
        own = [label] if np.ndim(label) == 0 else np.flatnonzero(label)
        logits = []
        for c in range(3):
            cosine = row @ centers[c] / np.sqrt(row @ row) / np.sqrt(5)
            logits.append(6.0 * (cosine - 0.3 if c in own else cosine))
        for c in own:
            total -= (logits[c] - np.log(sum(np.exp(logits)))) / len(own)
    parts = reference.parts_of(hasher, outputs, labels, batch_size=10)
    assert parts == {"classification": pytest.approx(total / 10, rel=1e-10)}


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(OrthoHash(5), reference.random_outputs(7, 5), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(OrthoHash(5), reference.random_outputs(7, 5), labels)


def test_without_margin_it_is_cross_entropy_of_cosines():
    hasher, outputs = OrthoHash(8, margin=0.0, scale=2.0), reference.random_outputs(7, 8)
    directions = torch.from_numpy(outputs / np.linalg.norm(outputs, axis=1, keepdims=True))
    logits = 2.0 * directions @ torch.from_numpy(centers_of(hasher, reference.ONE)).t() / np.sqrt(8)
    expected = functional.cross_entropy(logits, torch.from_numpy(reference.ONE))
    found = reference.parts_of(hasher, outputs, reference.ONE)["classification"]
    assert found == pytest.approx(expected.item(), rel=1e-10)


def test_loss_ignores_the_length_of_outputs():
    hasher, outputs = OrthoHash(5), reference.random_outputs(7, 5)
    losses = [reference.parts_of(hasher, f * outputs, reference.ONE) for f in (1.0, 9.0)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


def test_head_balances_the_bits_of_a_batch():
    torch.manual_seed(0)
    head = OrthoHash(6).make_head(10, classes=3)
    outputs = head(5 + torch.randn(64, 10))
    assert outputs.mean(dim=0).abs().max() < 1e-5
    assert outputs.var(dim=0, correction=0).sub(1).abs().max() < 0.2
    alone = head.eval()(torch.ones(1, 10))
    assert torch.equal(head.train()(torch.ones(1, 10)), alone)  # a batch of one image


def test_frozen_norms_do_not_freeze_the_head():
    features = np.random.default_rng(0).standard_normal((24, 6)).astype(np.float32) + 3
    hasher = OrthoHash(4, freeze_norms=True, epochs=1).fit(features, np.arange(24) % 3)
    assert hasher.net_.head[1].num_batches_tracked > 0


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"margin": -0.1}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number"):
        OrthoHash(6, **options).fit(np.eye(3), [0, 1, 2])
