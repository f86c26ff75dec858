import warnings

import pytest
import torch
from safetensors.torch import save_file

from bitprint.nets import create_trunk
from bitprint.nets.alexnet import AlexNet

SHAPES = {
    "features.0": (64, 3, 11, 11),
    "features.3": (192, 64, 5, 5),
    "features.6": (384, 192, 3, 3),
    "features.8": (256, 384, 3, 3),
    "features.10": (256, 256, 3, 3),
    "classifier.1": (4096, 9216),
    "classifier.4": (4096, 4096),
}


@pytest.fixture(scope="module")
def convolutions():
    """A state dict of the convolutions only, in half precision."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in SHAPES.items():
        if name.startswith("features"):
            state[f"{name}.weight"] = torch.randn(shape, generator=generator).half()
            state[f"{name}.bias"] = torch.randn(shape[0], generator=generator)
    return state


def test_names_and_shapes_are_torchvisions():
    trunk = create_trunk("alexnet", input_shape=(32, 32, 3))
    shapes = {name: tuple(value.shape) for name, value in trunk.named_parameters()}
    expected = {f"{name}.weight": shape for name, shape in SHAPES.items()}
    expected |= {f"{name}.bias": shape[:1] for name, shape in SHAPES.items()}
    assert shapes == expected
    # torchvision's 61,100,840 without the 1000-way layer
    assert sum(p.numel() for p in trunk.parameters()) == 61_100_840 - 4097 * 1000
    assert trunk.out_features == 4096


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_convolutions_alone_load_with_a_warning(tmp_path, convolutions, suffix):
    path = tmp_path / f"weights.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(convolutions, path)
    with pytest.warns(UserWarning, match=r"classifier.1.bias, .*, classifier.4.weight; .* random"):
        trunk = create_trunk(f"alexnet:{path}", input_shape=(32, 32, 3))
    for name, value in convolutions.items():
        assert torch.equal(trunk.get_parameter(name), value.float())
    assert trunk.classifier[1].weight.std() > 0


def test_a_full_file_loads_without_a_warning(tmp_path):
    trunk = AlexNet()
    state = dict(trunk.named_parameters())
    state |= {
        "classifier.6.weight": torch.zeros(1000, 4096),
        "classifier.6.bias": torch.zeros(1000),
    }
    save_file(state, tmp_path / "full.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = create_trunk(f"alexnet:{tmp_path / 'full.safetensors'}", input_shape=(32, 32, 3))
    assert all(torch.equal(state[name], value) for name, value in twin.named_parameters())


def test_not_pretrained_leaves_the_file_closed(tmp_path):
    name = f"alexnet:{tmp_path / 'missing.pth'}"
    with pytest.raises(FileNotFoundError, match="no such weights file"):
        create_trunk(name, input_shape=(32, 32, 3))
    assert create_trunk(name, input_shape=(32, 32, 3), pretrained=False).name == "alexnet"


def test_foreign_and_damaged_files_are_refused(tmp_path, convolutions):
    trunk = AlexNet()
    path = tmp_path / "weights.safetensors"
    save_file({"conv1.weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="not AlexNet weights"):
        trunk.load_weights(path)
    save_file({"features.0.bias": torch.zeros(96)}, path)
    with pytest.raises(ValueError, match=r"features.0.bias has shape \(96,\)"):
        trunk.load_weights(path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match="damaged"):
        trunk.load_weights(path)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="not a state dict"):
        trunk.load_weights(tmp_path / "list.pth")


class Harmful:
    """Unpickling an instance would call the print function."""

    def __reduce__(self):
        return print, ("executed",)


def test_pickled_objects_are_not_executed(tmp_path, capsys):
    torch.save({"features.0.bias": Harmful()}, tmp_path / "bad.pth")
    with pytest.raises(ValueError, match="not a file of tensors"):
        AlexNet().load_weights(tmp_path / "bad.pth")
    assert "executed" not in capsys.readouterr().out
