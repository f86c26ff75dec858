import numpy as np
import pytest
import torch

from bitprint.data.images import ImageSet
from bitprint.features import deep_features
from bitprint.features.deep import trunk_digest, trunk_for


def noise(count, side=16, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("backbone", ["small", "efficientnet-lite0"])
def test_features_are_those_of_the_network_in_evaluation_mode(backbone):
    pixels = noise(5)
    trunk = trunk_for(ImageSet(pixels), backbone).eval()
    with torch.no_grad():
        one_by_one = [
            trunk(trunk.preprocess(torch.from_numpy(pixels[row : row + 1]))) for row in range(5)
        ]
    expected = torch.cat(one_by_one).numpy()
    features = deep_features(pixels, backbone, device="cpu", batch_size=2)
    assert features.dtype == np.float32
    assert features.shape == (5, trunk.out_features)
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert np.abs(features[0] - features[1]).max() > 0.01 * np.abs(expected).max()


def test_rows_keep_their_order():
    images = ImageSet(noise(9)).subset([8, 0, 4, 4])
    features = deep_features(images, "small", batch_size=3)
    whole = deep_features(images.pixels, "small")
    np.testing.assert_allclose(features, whole[[8, 0, 4, 4]], rtol=0, atol=1e-5)


def test_progress_and_an_empty_set():
    calls = []
    deep_features(noise(7), "small", batch_size=3, progress=lambda *call: calls.append(call))
    assert calls == [(3, 7), (6, 7), (7, 7)]
    assert deep_features(noise(0), "small").shape == (0, 256)


def test_random_weights_are_the_same_in_every_call():
    """And the state of torch's generator does not change."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = deep_features(noise(3), "small")
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(6)
    assert (deep_features(noise(3), "small") == first).all()


def test_a_network_may_be_given():
    trunk = trunk_for(ImageSet(noise(1)), "small")
    assert (deep_features(noise(3), trunk) == deep_features(noise(3), "small")).all()
    with torch.no_grad():
        next(trunk.parameters()).neg_()
    assert (deep_features(noise(3), trunk) != deep_features(noise(3), "small")).any()


def test_the_digest_tells_networks_apart():
    images = ImageSet(noise(1))
    trunk, other = trunk_for(images, "small"), trunk_for(images, "small")
    assert trunk_digest(trunk) == trunk_digest(other)
    with torch.no_grad():
        list(other.parameters())[-1][-1] += 1e-6
    assert trunk_digest(trunk) != trunk_digest(other)
    assert trunk_digest(trunk) != trunk_digest(trunk_for(images, "efficientnet-lite0"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "mlp"}, "takes feature vectors"),
        ({"backbone": "vgg"}, "unknown backbone 'vgg'"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        deep_features(noise(2), **{"backbone": "small"} | options)
