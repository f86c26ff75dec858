"""Properties of all backbones, and the registry."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from bitprint.nets import create_trunk, list_backbones, restore_trunk

IMAGES = ["small", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]
WIDE = ["cnnf", "alexnet"]


def example(name):
    """An untrained backbone and a batch of its input."""
    generator = torch.Generator().manual_seed(1)
    if name == "mlp":
        return create_trunk(name, input_shape=(20,)), torch.randn(3, 20, generator=generator)
    images = torch.randint(0, 256, (2, 40, 30, 3), dtype=torch.uint8, generator=generator)
    return create_trunk(name, input_shape=(40, 30, 3), pretrained=False), images


@pytest.mark.parametrize("name", ["mlp", *IMAGES, *WIDE])
def test_restored_trunk_gives_the_same_bits(name):
    torch.manual_seed(0)
    trunk, batch = example(name)
    twin = restore_trunk(json.loads(json.dumps(trunk.describe())))
    twin.load_state_dict(trunk.state_dict())
    with torch.no_grad():
        features = trunk.eval()(trunk.preprocess(batch))
        assert torch.equal(features, twin.eval()(twin.preprocess(batch)))
    assert features.shape == (len(batch), trunk.out_features)
    assert features.dtype == torch.float32
    assert features.std() > 0
    assert trunk.describe()["name"] == name


@pytest.mark.parametrize("name", ["mlp", *IMAGES, *WIDE])
def test_bfloat16_autocast(name):
    torch.manual_seed(0)
    trunk, batch = example(name)
    trunk.eval()
    with torch.no_grad():
        exact = trunk(trunk.preprocess(batch))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = trunk(trunk.preprocess(batch)).float()
    assert functional.cosine_similarity(exact, rough).min() > 0.99


@pytest.mark.parametrize("name", ["mlp", "small", "efficientnet-lite0"])
def test_the_seed_decides_the_weights(name):
    states = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        states.append(torch.cat([p.flatten() for p in example(name)[0].parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize("name", ["mlp", "small", "efficientnet-lite0"])
def test_gradients_reach_every_parameter(name):
    torch.manual_seed(0)
    trunk, batch = example(name)
    trunk(trunk.preprocess(batch)).square().sum().backward()
    for parameter, value in trunk.named_parameters():
        assert value.grad is not None, parameter
        assert torch.isfinite(value.grad).all(), parameter
        assert value.grad.abs().sum() > 0, parameter


@pytest.mark.parametrize("name", ["cnnf", "alexnet"])
def test_random_wide_layers_keep_the_scale_of_their_input(name):
    """With He's variance and zero biases, E[x^2] is the same before and after a ReLU layer."""
    torch.manual_seed(0)
    layer = {"cnnf": "fc7", "alexnet": "classifier.4"}[name]
    linear = example(name)[0].get_submodule(layer)
    inputs = torch.randn(64, linear.in_features).relu()
    with torch.no_grad():
        ratio = linear(inputs).relu().square().mean() / inputs.square().mean()
    assert 0.9 < ratio < 1.1
    assert torch.all(linear.bias == 0)


@pytest.mark.parametrize("size", [(8, 8), (1, 1), (9, 31), (64, 64)])
def test_small_takes_any_size(size):
    trunk = create_trunk("small", input_shape=(*size, 3)).eval()
    batch = torch.randint(0, 256, (2, *size, 3), dtype=torch.uint8)
    assert trunk(trunk.preprocess(batch)).shape == (2, trunk.out_features)


def test_small_learns_digits():
    torch.manual_seed(0)
    digits = load_digits()
    pixels = np.repeat((digits.images * 15).astype(np.uint8)[..., None], 3, axis=3)
    images, labels = torch.from_numpy(pixels), torch.from_numpy(digits.target)
    trunk = create_trunk("small", input_shape=(8, 8, 3))
    head = torch.nn.Linear(trunk.out_features, 10)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(5):
        for batch in torch.randperm(1400).split(64):
            scores = head(trunk(trunk.preprocess(images[batch])))
            optimizer.zero_grad()
            functional.cross_entropy(scores, labels[batch]).backward()
            optimizer.step()
    trunk.eval()
    with torch.no_grad():
        found = head(trunk(trunk.preprocess(images[1400:]))).argmax(dim=1)
    assert (found == labels[1400:]).float().mean() > 0.9


def test_mlp_is_its_layers():
    torch.manual_seed(0)
    trunk = restore_trunk({"name": "mlp", "inputs": 4, "hidden": [6, 5]})
    features = np.random.default_rng(0).normal(size=(3, 4))
    expected = features
    for layer in (trunk.layers[0], trunk.layers[2]):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        expected = np.maximum(expected @ weight.T + bias, 0)
    result = trunk(trunk.preprocess(torch.from_numpy(features))).detach().numpy()
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_errors_name_the_backbones():
    everything = ", ".join(list_backbones())
    with pytest.raises(ValueError, match="unknown backbone 'resnet'") as caught:
        create_trunk("resnet", input_shape=(8, 8, 3))
    assert everything in str(caught.value)
    with pytest.raises(ValueError, match="unknown backbone 'vgg'"):
        restore_trunk({"name": "vgg"})
    with pytest.raises(ValueError, match=r"mlp takes feature vectors .* small \(mlp is for f"):
        create_trunk("mlp", input_shape=(8, 8, 3))
    with pytest.raises(ValueError, match=r"cnnf takes images .* backbones: alexnet"):
        create_trunk("cnnf", input_shape=(20,))
    with pytest.raises(ValueError, match=r"small takes images .*\(8, 8, 1\)"):
        create_trunk("small", input_shape=(8, 8, 1))
    with pytest.raises(ValueError, match="small takes no argument after the colon, got "):
        create_trunk("small:weights.pt", input_shape=(8, 8, 3))
    with pytest.raises(ValueError, match="width >= 1"):
        restore_trunk({"name": "mlp", "inputs": 4, "hidden": [0]})
    with pytest.raises(ValueError, match="width >= 1"):
        restore_trunk({"name": "small", "widths": [0]})


def test_mlp_takes_the_width_of_its_layer():
    assert create_trunk("mlp:24", input_shape=(4,)).hidden == [24]
    assert create_trunk("mlp", input_shape=(4,)).hidden == [512]
    with pytest.raises(ValueError, match=r"width of its hidden layer .* mlp:2048, got 'wide'"):
        create_trunk("mlp:wide", input_shape=(4,))


def test_mlp_without_hidden_layer_returns_its_inputs():
    trunk = restore_trunk(create_trunk("mlp:0", input_shape=(4,)).describe())
    features = torch.randn(3, 4)
    assert trunk.out_features == 4
    assert not list(trunk.parameters())
    assert torch.equal(trunk(trunk.preprocess(features)), features)
    trunk.standardize(torch.ones(4), torch.full((4,), 2.0))
    assert torch.equal(trunk(trunk.preprocess(features)), (features - 1) / 2)
