import json

import pytest
import torch

from bitprint.nets import create_trunk, restore_trunk

CONVOLUTIONS = [(96, 96, 1), (256, 96, 5), (256, 256, 1), (384, 256, 3), (384, 384, 1)]
FIRST = {"nin": (96, 3, 11), "nin-small": (96, 3, 5)}
both_sizes = pytest.mark.parametrize("name", FIRST)


def random_images(size, count=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, *size, 3), dtype=torch.uint8, generator=generator)


@both_sizes
def test_layers_are_those_of_the_paper(name):
    trunk = create_trunk(f"{name}:600", input_shape=(32, 32, 3))
    shapes = [tuple(p.shape) for key, p in trunk.named_parameters() if key.endswith("weight")]
    expected = [FIRST[name], *CONVOLUTIONS, (1024, 384, 3), (600, 1024, 1)]
    assert shapes == [(*shape, shape[-1]) for shape in expected]
    assert trunk.out_features == 600


@pytest.mark.parametrize(("name", "side"), [("nin", 6), ("nin-small", 3)])
def test_the_mean_is_over_all_positions(name, side):
    """At 256 x 256 pixels there are 6 x 6 positions, as in the paper."""
    torch.manual_seed(0)
    trunk = create_trunk(f"{name}:7", input_shape=(40, 30, 3)).eval()
    with torch.no_grad():
        inputs = trunk.preprocess(random_images((40, 30), count=1))
        maps, features = trunk.layers(inputs), trunk(inputs)
    assert maps.shape == (1, 7, side, side)
    assert maps.min() == 0
    for channel in range(7):
        values = maps[0, channel].flatten().tolist()
        assert features[0, channel].item() == pytest.approx(sum(values) / side**2, abs=1e-5)


@both_sizes
def test_restored_trunk_gives_the_same_bits(name):
    torch.manual_seed(0)
    trunk = create_trunk(f"{name}:50", input_shape=(32, 32, 3)).eval()
    assert trunk.describe() == {"name": name, "outputs": 50}
    twin = restore_trunk(json.loads(json.dumps(trunk.describe()))).eval()
    twin.load_state_dict(trunk.state_dict())
    inputs = trunk.preprocess(random_images((32, 32)))
    with torch.no_grad():
        features = trunk(inputs)
        assert torch.equal(features, twin(twin.preprocess(random_images((32, 32)))))
    assert features.std() > 0


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)
    trunk = create_trunk("nin-small:10", input_shape=(32, 32, 3))
    trunk(trunk.preprocess(random_images((32, 32)))).square().sum().backward()
    for name, value in trunk.named_parameters():
        assert torch.isfinite(value.grad).all(), name
        assert value.grad.abs().sum() > 0, name


def test_the_number_of_outputs():
    assert create_trunk("nin-small", input_shape=(32, 32, 3)).out_features == 1000
    with pytest.raises(ValueError, match=r"after the colon, as in nin-small:600, got 'file.pt'"):
        create_trunk("nin-small:file.pt", input_shape=(32, 32, 3))
    with pytest.raises(ValueError, match="at least 1 output, got 0"):
        create_trunk("nin:0", input_shape=(32, 32, 3))
