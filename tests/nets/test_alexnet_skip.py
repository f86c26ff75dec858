import pytest
import torch
from safetensors.torch import save_file

from bitprint.nets import create_trunk, restore_trunk
from bitprint.nets.alexnet import AlexNet


@pytest.fixture(scope="module")
def plain():
    torch.manual_seed(0)
    return AlexNet().eval()


@pytest.fixture(scope="module")
def skip(plain):
    trunk = restore_trunk({"name": "alexnet-skip"})
    trunk.load_state_dict(plain.state_dict())
    return trunk


@pytest.fixture(scope="module")
def inputs(plain):
    images = torch.randint(0, 256, (2, 40, 30, 3), dtype=torch.uint8)
    return plain.preprocess(images)


@torch.no_grad()
def test_features_are_both_wide_layers(plain, skip, inputs):
    features = skip.eval()(inputs)
    assert features.shape == (2, skip.out_features) == (2, 8192)
    fc6 = torch.relu(plain.classifier[1](plain.features(inputs).flatten(1)))
    torch.testing.assert_close(features[:, :4096], plain(inputs))
    torch.testing.assert_close(features[:, 4096:], fc6)
    assert not torch.equal(features[:, :4096], features[:, 4096:])


@torch.no_grad()
def test_in_training_fc7_is_dropped_by_half_and_fc6_is_whole(skip, inputs, monkeypatch):
    """The dropout before fc6 and fc7 is off, the one before the hash layer is on."""
    whole = skip.eval()(inputs)
    for layer in (skip.classifier[0], skip.classifier[3]):
        monkeypatch.setattr(layer, "p", 0.0)
    torch.manual_seed(0)
    dropped = skip.train()(inputs)
    torch.testing.assert_close(dropped[:, 4096:], whole[:, 4096:])
    alive = whole[:, :4096] > 0
    kept = dropped[:, :4096][alive] > 0
    assert 0.45 < kept.float().mean() < 0.55
    torch.testing.assert_close(dropped[:, :4096][alive][kept], 2 * whole[:, :4096][alive][kept])


def test_weights_are_alexnets(plain, tmp_path):
    save_file(dict(plain.named_parameters()), tmp_path / "weights.safetensors")
    twin = create_trunk(f"alexnet-skip:{tmp_path / 'weights.safetensors'}", input_shape=(32, 32, 3))
    assert twin.describe() == {"name": "alexnet-skip"}
    for name, value in plain.named_parameters():
        assert torch.equal(twin.get_parameter(name), value)
