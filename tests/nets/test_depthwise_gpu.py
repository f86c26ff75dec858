"""The fused kernel of an inverted residual against the layers that it replaces.

Without a GPU, Triton's interpreter can stand in: Triton 3.7 or later, and TRITON_INTERPRET=1.
"""

import os
from copy import deepcopy
from importlib.util import find_spec

import pytest
import torch
from torch.nn import functional

from bitprint.nets import create_trunk
from bitprint.nets.efficientnet_lite import _Block

INTERPRETED = bool(os.environ.get("TRITON_INTERPRET") and find_spec("triton"))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU")
on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")

# Images, channels, height, width, kernel, stride: also images smaller than the kernel, channels
# that do not fill a tile, and more positions than one program processes.
SHAPES = [
    (2, 40, 9, 7, 3, 1),
    (2, 8, 8, 9, 5, 2),
    (1, 33, 6, 6, 3, 2),
    (3, 5, 7, 7, 5, 1),
    (1, 16, 2, 3, 5, 1),
    (5, 48, 14, 14, 5, 2),
    (0, 16, 8, 8, 3, 1),
    pytest.param((9, 96, 56, 57, 3, 1), marks=on_a_gpu),
    pytest.param((130, 64, 28, 28, 5, 1), marks=on_a_gpu),
]


@pytest.fixture(autouse=True)
def whole_float32():
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def plain(inputs, before, weight, after, stride, padding, size):
    """The same with torch layers."""
    if before is not None:
        inputs = functional.relu6(inputs + before[:, None, None])
    kernel, (height, width) = weight.shape[2], inputs.shape[2:]
    below = max((size[0] - 1) * stride + kernel - height - padding[0], 0)
    right = max((size[1] - 1) * stride + kernel - width - padding[1], 0)
    padded = functional.pad(inputs, (padding[1], right, padding[0], below))
    filtered = functional.conv2d(padded, weight, after, stride, groups=len(weight))
    return functional.relu6(filtered)


def same(length, kernel, stride):
    results = -(-length // stride)
    return max((results - 1) * stride + kernel - length, 0) // 2, results


def eighths(values):
    """Rounded so that sums are exact in float32, and ReLU6 clips the same values in both."""
    return (8 * values).round() / 8


@pytest.mark.parametrize("lifted", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_are_those_of_the_layers(shape, lifted):
    from bitprint.nets.depthwise_gpu import filter_channels

    count, channels, height, width, kernel, stride = shape
    (top, rows), (left, columns) = same(height, kernel, stride), same(width, kernel, stride)
    torch.manual_seed(0)
    drawn = [
        eighths(3 * torch.randn(count, channels, height, width)),
        eighths(torch.randn(channels)),
        eighths(torch.randn(channels, 1, kernel, kernel)),
        eighths(torch.randn(channels)),
    ]
    upper = torch.randn(count, channels, rows, columns).double()
    results = []
    for function, dtype in [(filter_channels, torch.float32), (plain, torch.float64)]:
        given = [value.to(DEVICE, dtype).requires_grad_() for value in drawn]
        inputs, before, weight, after = given
        if not lifted:
            before, given = None, [inputs, weight, after]
        outputs = function(inputs, before, weight, after, stride, (top, left), (rows, columns))
        found = torch.autograd.grad(outputs, given, upper.to(outputs))
        results.append([value.double() for value in (outputs, *found)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


def test_nan_is_propagated():
    from bitprint.nets.depthwise_gpu import filter_channels

    inputs = torch.ones(1, 2, 4, 4, device=DEVICE)
    inputs[0, 1, 2, 2] = torch.nan
    bias, weight = torch.ones(2, device=DEVICE), torch.ones(2, 1, 3, 3, device=DEVICE)
    outputs = filter_channels(inputs, bias, weight, bias, 1, (1, 1), (4, 4))
    assert outputs[0, 0].isfinite().all()
    assert outputs[0, 1].isnan().sum() == 9  # once per tap of the filter


def test_a_second_derivative_is_refused():
    from bitprint.nets.depthwise_gpu import filter_channels

    inputs = torch.ones(1, 1, 3, 3, device=DEVICE, requires_grad=True)
    bias, weight = torch.zeros(1, device=DEVICE), torch.ones(1, 1, 3, 3, device=DEVICE) / 9
    outputs = filter_channels(inputs, bias, weight, bias, 1, (1, 1), (3, 3))
    (slope,) = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@on_a_gpu
def test_half_precision_is_as_exact_as_the_layers_are():
    from bitprint.nets.depthwise_gpu import filter_channels

    torch.manual_seed(0)
    inputs, before, weight, after = (
        torch.randn(shape, device="cuda") for shape in [(4, 48, 20, 20), 48, (48, 1, 5, 5), 48]
    )
    where = (2, (1, 1), (10, 10))
    exact = plain(*(v.double() for v in (inputs, before, weight, after)), *where)
    ours = filter_channels(inputs.bfloat16(), before, weight, after, *where)
    theirs = plain(*(v.bfloat16() for v in (inputs, before, weight, after)), *where)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).norm() <= (theirs - exact).norm()


@on_a_gpu
def test_the_same_twice():
    from bitprint.nets.depthwise_gpu import filter_channels

    torch.manual_seed(0)
    weight = torch.randn(64, 1, 3, 3, device="cuda", requires_grad=True)
    inputs, bias = torch.randn(64, 64, 30, 30, device="cuda"), torch.randn(64, device="cuda")
    found = [
        torch.autograd.grad(
            filter_channels(inputs, bias, weight, bias, 1, (1, 1), (30, 30)).sum(), weight
        )[0]
        for _ in range(2)
    ]
    assert torch.equal(*found)


@on_a_gpu
@pytest.mark.parametrize("expansion", [1, 6])
@pytest.mark.parametrize("stride", [1, 2])
def test_block_with_frozen_norms_uses_the_kernel(stride, expansion, monkeypatch):
    torch.manual_seed(0)
    block = _Block(16, 16, 5, stride, expansion).cuda()
    images = torch.randn(8, 16, 15, 15, device="cuda")
    block(images)  # update the running statistics
    block.eval()
    fused = deepcopy(block)
    outputs = fused(images)
    outputs.square().sum().backward()
    monkeypatch.setattr("bitprint.nets.efficientnet_lite.find_spec", lambda name: None)
    expected = block(images)
    expected.square().sum().backward()
    assert not torch.equal(outputs, expected)  # two different implementations ran
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(fused.parameters(), block.parameters(), strict=True):
        assert ours.grad is not None
        assert (ours.grad - theirs.grad).norm() <= 1e-3 * theirs.grad.norm()


@on_a_gpu
def test_features_on_gpu_equal_features_on_cpu():
    torch.manual_seed(0)
    trunk = create_trunk("efficientnet-lite0", input_shape=(32, 32, 3), pretrained=False).eval()
    images = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8)
    with torch.inference_mode():
        expected = trunk(trunk.preprocess(images))
        trunk.cuda()
        found = trunk(trunk.preprocess(images.cuda())).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
