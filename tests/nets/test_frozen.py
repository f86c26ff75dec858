"""Networks with folded norms and fused activations."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitprint.nets import create_trunk, frozen
from bitprint.nets.frozen import Convolution
from bitprint.nets.trunk import Uninitialized, he_init


@pytest.fixture(params=[True, False], ids=["fused", "plain"])
def fuse(request, monkeypatch):
    if request.param and not frozen.can_fuse():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setattr(frozen, "can_fuse", lambda: request.param)


def same_padded(inputs, weight, bias, stride, groups):
    """A convolution that copies the image into the middle of the zeros that TensorFlow adds."""
    kernel, length = weight.shape[-1], inputs.shape[-1]
    total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
    before, after = total // 2, total - total // 2
    padded = functional.pad(inputs, (before, after, before, after))
    return functional.conv2d(padded, weight, bias, stride, 0, 1, groups)


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("length", [7, 8, 9])
@pytest.mark.parametrize("groups", [1, 6])
def test_convolution_pads_as_tensorflow(kernel, stride, length, groups, fuse):
    torch.manual_seed(0)
    weight, bias = torch.randn(6, 6 // groups, kernel, kernel), torch.randn(6)
    inputs = torch.randn(2, 6, length, length).contiguous(memory_format=torch.channels_last)
    expected = same_padded(inputs, weight, bias, stride, groups)
    linear = Convolution(weight, bias, stride, groups, length=length, relu6=False)
    torch.testing.assert_close(linear(inputs), expected, rtol=1e-5, atol=1e-5)
    limited = Convolution(weight, bias, stride, groups, length=length, relu6=True)
    torch.testing.assert_close(limited(inputs), expected.clamp(0, 6), rtol=1e-5, atol=1e-5)
    sums = torch.randn_like(expected).contiguous(memory_format=torch.channels_last)
    added = linear.add_to(sums.clone(), inputs)
    torch.testing.assert_close(added, sums + expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite2"])
def test_frozen_network_has_the_same_features(name, fuse):
    """With statistics and scales of batch norms that differ from 0 and 1."""
    torch.manual_seed(0)
    trunk = create_trunk(name, input_shape=(8, 8, 3), pretrained=False).eval()
    for module in trunk.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    images = torch.randint(0, 256, (5, 40, 40, 3), dtype=torch.uint8)
    quick = trunk.frozen()
    with torch.inference_mode():
        inputs = trunk.preprocess(images).contiguous(memory_format=torch.channels_last)
        expected, found = trunk(inputs), quick(quick.preprocess(images))
    assert found.shape == (5, trunk.out_features)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert quick.frozen() is quick
    assert quick.name == name


def test_frozen_network_keeps_the_weights_it_was_made_from():
    trunk = create_trunk("efficientnet-lite0", input_shape=(8, 8, 3), pretrained=False).eval()
    inputs = torch.zeros(1, 3, 224, 224)
    with torch.inference_mode():
        quick = trunk.frozen()
        before = quick(inputs)
    with torch.no_grad():
        trunk.network.head.norm.bias.add_(1)
    with torch.inference_mode():
        torch.testing.assert_close(quick(inputs), before)
        torch.testing.assert_close(trunk(inputs), before + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draw", [nn.init.kaiming_normal_, nn.init.normal_, nn.init.uniform_])
def test_uninitialized_draws_nothing_inside_only(draw):
    weight = torch.zeros(3, 4)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with Uninitialized():
        draw(weight)
    assert (weight == 0).all()
    assert torch.equal(torch.rand(1), expected)
    draw(weight)
    assert (weight != 0).any()
    he_init(layer := nn.Sequential(nn.Linear(50, 50)))
    assert 0.15 < layer[0].weight.std() < 0.25
