"""The network of CNNH."""

import json

import pytest
import torch

from bitprint.nets import create_trunk, restore_trunk


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (50, 20)])
def test_images_of_any_size(size):
    torch.manual_seed(0)
    trunk = create_trunk("cnnh", input_shape=(*size, 3)).eval()
    images = torch.randint(0, 256, (2, *size, 3), dtype=torch.uint8)
    twin = restore_trunk(json.loads(json.dumps(trunk.describe()))).eval()
    twin.load_state_dict(trunk.state_dict())
    with torch.no_grad():
        features = trunk(trunk.preprocess(images))
        assert torch.equal(features, twin(twin.preprocess(images)))
    assert features.shape == (2, trunk.out_features)
    assert features.min() >= 0


def test_maps_and_weights_are_those_of_the_paper():
    """Three 5 x 5 convolutions with 32, 64 and 128 maps; each pooling halves the image."""
    trunk = create_trunk("cnnh", input_shape=(32, 32, 3))
    count = sum(parameter.numel() for parameter in trunk.parameters())
    assert count == (25 * 3 + 1) * 32 + (25 * 32 + 1) * 64 + (25 * 64 + 1) * 128
    shapes = []
    inputs = torch.zeros(1, 3, 32, 32)
    for layer in trunk.layers:
        inputs = layer(inputs)
        if isinstance(layer, torch.nn.MaxPool2d):
            shapes.append(tuple(inputs.shape[1:]))
    assert shapes == [(32, 16, 16), (64, 8, 8), (128, 4, 4)]


def test_half_of_the_features_are_dropped_in_training_only():
    torch.manual_seed(0)
    trunk = create_trunk("cnnh", input_shape=(32, 32, 3))
    inputs = torch.randn(8, 3, 32, 32)
    with torch.no_grad():
        whole = trunk.eval()(inputs)
        dropped = trunk.train()(inputs)
    on = whole > 0
    kept = dropped[on] > 0
    assert 0.45 < kept.float().mean() < 0.55
    assert torch.equal(dropped[on][kept], 2 * whole[on][kept])


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)
    trunk = create_trunk("cnnh", input_shape=(32, 32, 3))
    trunk(torch.randn(4, 3, 32, 32)).square().sum().backward()
    for name, value in trunk.named_parameters():
        assert torch.isfinite(value.grad).all(), name
        assert value.grad.abs().sum() > 0, name
