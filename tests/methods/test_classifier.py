"""Classifier: codes of the predicted class."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import CLASSES, OVERFITTING, both_kinds

from bitprint.methods.classifier import Classifier, CodedClasses, class_codes
from bitprint.training.plan import Training

BITS = 5


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS + CLASSES, scale=scale)


@pytest.mark.parametrize(("classes", "bits"), [(1, 1), (3, 3), (10, 10), (10, 12), (10, 64)])
def test_codes_are_one_hot_where_they_fit(classes, bits):
    codes = class_codes(classes, bits)
    for number in range(classes):
        assert codes[number].tolist() == [1.0 if k == number else -1.0 for k in range(bits)]


@pytest.mark.parametrize(("classes", "bits"), [(10, 4), (10, 9), (21, 5), (10, 2), (3, 1)])
def test_shorter_codes_are_class_numbers_in_binary(classes, bits):
    codes = class_codes(classes, bits)
    for number in range(classes):
        digits = format(number % 2**bits, f"0{bits}b")
        assert codes[number].tolist() == [1.0 if digit == "1" else -1.0 for digit in digits]
    assert len(torch.unique(codes, dim=0)) == min(classes, 2**bits)


@pytest.mark.parametrize("bits", [2, 3, 12])
def test_head_predicts_the_most_likely_class(bits):
    torch.manual_seed(0)
    head = CodedClasses(4, bits, CLASSES)
    features = torch.randn(20, 4)
    outputs = head(features).detach()
    logits = (features @ head.classifier.weight.t() + head.classifier.bias).tolist()
    for row, scores in zip(outputs, logits, strict=True):
        best = max(range(CLASSES), key=scores.__getitem__)
        assert row[:bits].tolist() == class_codes(CLASSES, bits)[best].tolist()
        assert row[bits:].tolist() == pytest.approx(scores, abs=1e-6)
    assert len(torch.unique(outputs[:, :bits], dim=0)) > 1


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_by_loops(labels, batch_size):
    outputs = outputs_for(labels)
    expected = reference.cross_entropy(outputs[:, BITS:], labels) / batch_size
    found = reference.parts_of(Classifier(BITS), outputs, labels, batch_size)
    assert found == pytest.approx({"classification": expected}, rel=1e-12)


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(Classifier(BITS), outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(Classifier(BITS), outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [2, 4, 12])
def test_overfits_noise(bits):
    assert reference.training_map_of_noise(Classifier(bits, training=OVERFITTING)) == 1


def test_codes_are_the_learned_labels():
    data, labels = np.random.default_rng(0).standard_normal((40, 64)), np.arange(40) % 4
    hasher = Classifier(4, training=OVERFITTING).fit(data, labels)
    np.testing.assert_array_equal(hasher.encode(data).signs(), 2 * np.eye(4)[labels] - 1)


def test_images_with_several_labels_get_one_of_theirs():
    rng = np.random.default_rng(0)
    data, labels = rng.standard_normal((40, 64)), rng.integers(0, 2, (40, 4))
    labels[np.arange(40), np.arange(40) % 4] = 1
    codes = Classifier(4, training=OVERFITTING).fit(data, labels).encode(data).signs()
    named = np.where(codes == 1)[1]
    assert len(named) == 40
    assert labels[np.arange(40), named].all()


def test_a_saved_model_gives_the_same_codes(tmp_path, monkeypatch):
    hasher = Classifier(12, training=Training(epochs=3, lr=0.1, batch_size=8))
    reference.check_saved(hasher, tmp_path, monkeypatch)
