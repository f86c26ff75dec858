"""CNN-F against plain NumPy, and the reader of MatConvNet files on synthetic files."""

import numpy as np
import pytest
import torch
from scipy.io import savemat

from bitprint.nets import create_trunk, restore_trunk
from bitprint.nets.cnnf import CNNF
from bitprint.nets.matconvnet import read_matconvnet

# The structure of CNN-F, narrow enough for plain loops: 22, 11, 5 and 2 cells a side.
TINY = {"channels": (3, 5, 4, 6, 4), "hidden": 7, "size": 95}
LRN = (5, 2, 0.01, 0.75)
SHAPES = {
    "conv1": (11, 11, 3, 3),
    "conv2": (5, 5, 3, 5),
    "conv3": (3, 3, 5, 4),
    "conv4": (3, 3, 4, 6),
    "conv5": (3, 3, 6, 4),
    "fc6": (2, 2, 4, 7),
    "fc7": (1, 1, 7, 7),
    "fc8": (1, 1, 7, 10),
}
STRIDE = {"conv1": 4}
PAD = {"conv2": 2, "conv3": 1, "conv4": 1, "conv5": 1}
# fmt: off
ORDER = [
    "conv1", "relu1", "norm1", "pool1", "conv2", "relu2", "norm2", "pool2",
    "conv3", "relu3", "conv4", "relu4", "conv5", "relu5", "pool5",
    "fc6", "relu6", "fc7", "relu7", "fc8", "prob",
]
# fmt: on


@pytest.fixture
def weights():
    """Filters in MATLAB's order (height, width, in, out), biases, and a mean image."""
    rng = np.random.default_rng(0)
    made = {}
    for name, shape in SHAPES.items():
        scale = np.sqrt(2 / np.prod(shape[:3])) * (0.02 if name == "conv1" else 1)
        filters = rng.normal(size=shape, scale=scale).astype(np.float32)
        made[name] = filters, rng.normal(size=shape[3], scale=0.1).astype(np.float32)
    return made, rng.uniform(90, 130, size=(95, 95, 3)).astype(np.float32)


def layer_structs(weights, layout):
    """Layers in the old or in the new layout of MatConvNet."""
    for name in ORDER:
        if name in weights:
            filters, biases = weights[name]
            pad, stride = float(PAD.get(name, 0)), float(STRIDE.get(name, 1))
            if layout == "old":
                yield {
                    "biases": biases[None],
                    "filters": filters,
                    "name": name,
                    "pad": pad,
                    "stride": stride,
                    "type": "conv",
                }
            else:
                cell = np.empty((1, 2), object)
                cell[0, 0], cell[0, 1] = filters, biases[:, None]
                yield {
                    "name": name,
                    "type": "conv",
                    "weights": cell,
                    "pad": np.full((1, 4), pad),
                    "stride": np.full((1, 2), stride),
                    "opts": np.empty((0, 0), object),
                }
        elif name.startswith("norm"):
            kind = "normalize" if layout == "old" else "lrn"
            yield {"param": np.array([LRN]), "type": kind, "name": name}
        elif name.startswith("pool"):
            pad = np.array([[0, 1, 0, 1]])
            yield {"name": name, "type": "pool", "method": "max", "pool": 3.0, "pad": pad}
        else:
            kind = "softmax" if name == "prob" else "relu"
            yield {"type": kind, "name": name, "weights": np.empty((0, 0), object)}


def write(path, structs, mean, layout="new"):
    structs = list(structs)
    layers = np.empty((1, len(structs)), object)
    layers[0] = structs
    normalization = {"imageSize": np.array([[95, 95, 3]]), "averageImage": mean}
    if layout == "old":
        savemat(path, {"layers": layers, "normalization": normalization, "classes": {"name": "x"}})
    else:
        savemat(path, {"meta": {"classes": "x", "normalization": normalization}, "layers": layers})


def reference(image, weights, mean):
    """Forward pass of one (95, 95, 3) image, in MATLAB's conventions and float64."""

    def convolve(x, name):
        filters, biases = weights[name]
        pad, stride = PAD.get(name, 0), STRIDE.get(name, 1)
        x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
        rows = (x.shape[0] - filters.shape[0]) // stride + 1
        out = np.empty((rows, rows, filters.shape[3]))
        for i in range(rows):
            for j in range(rows):
                top, left = i * stride, j * stride
                patch = x[top : top + filters.shape[0], left : left + filters.shape[1]]
                for k in range(filters.shape[3]):
                    out[i, j, k] = np.sum(patch * filters[..., k]) + biases[k]
        return np.maximum(out, 0)

    def normalise(x):
        n, kappa, alpha, beta = LRN
        out = np.empty_like(x)
        for k in range(x.shape[2]):
            window = x[:, :, max(k - n // 2, 0) : k + n // 2 + 1]
            out[:, :, k] = x[:, :, k] / (kappa + alpha * (window**2).sum(axis=2)) ** beta
        return out

    def pool(x):
        x = np.pad(x, ((0, 1), (0, 1), (0, 0)))
        rows = (x.shape[0] - 3) // 2 + 1
        out = np.empty((rows, rows, x.shape[2]))
        for i in range(rows):
            for j in range(rows):
                out[i, j] = x[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(0, 1))
        return out

    x = image.astype(np.float64) - mean
    x = pool(normalise(convolve(x, "conv1")))
    x = pool(normalise(convolve(x, "conv2")))
    x = pool(convolve(convolve(convolve(x, "conv3"), "conv4"), "conv5"))
    return convolve(convolve(x, "fc6"), "fc7").ravel()


def test_parameters_of_the_real_size():
    trunk = create_trunk("cnnf", input_shape=(32, 32, 3))
    assert sum(p.numel() for p in trunk.parameters()) == 56_737_536
    assert trunk.out_features == 4096
    assert trunk.fc6.in_features == 6 * 6 * 256
    assert trunk.preprocess.mean.shape == (3, 224, 224)
    assert (trunk.normalize.size, trunk.normalize.k, trunk.normalize.beta) == (5, 2, 0.75)
    assert trunk.normalize.alpha == pytest.approx(5e-4)


@pytest.mark.parametrize("layout", ["old", "new"])
def test_file_and_forward_pass_against_numpy(tmp_path, weights, layout):
    layers, mean = weights
    path = tmp_path / "net.mat"
    write(path, layer_structs(layers, layout), mean, layout)
    trunk = CNNF.from_mat(path, **TINY)
    image = np.random.default_rng(1).integers(0, 256, (95, 95, 3), dtype=np.uint8)
    expected = reference(image, layers, mean)
    result = trunk(trunk.preprocess(torch.from_numpy(image[None]))).detach().numpy()[0]
    assert np.count_nonzero(expected) >= 3
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_both_layouts_give_the_same_network(tmp_path, weights):
    layers, mean = weights
    trunks = []
    for layout in ("old", "new"):
        write(tmp_path / layout, layer_structs(layers, layout), mean, layout)
        trunks.append(CNNF.from_mat(tmp_path / layout, **TINY))
    old, new = (trunk.state_dict() for trunk in trunks)
    assert old.keys() == new.keys()
    assert all(torch.equal(old[key], new[key]) for key in old)
    assert trunks[0].describe() == trunks[1].describe()
    assert trunks[0].describe()["normalization"] == list(LRN)


def test_restore_needs_no_file(tmp_path, weights):
    layers, mean = weights
    path = tmp_path / "net.mat"
    write(path, layer_structs(layers, "new"), mean)
    trunk = CNNF.from_mat(path, **TINY)
    path.unlink()
    twin = restore_trunk(trunk.describe())
    twin.load_state_dict(trunk.state_dict())
    batch = torch.randint(0, 256, (2, 30, 40, 3), dtype=torch.uint8)
    assert torch.equal(trunk(trunk.preprocess(batch)), twin(twin.preprocess(batch)))


def test_mean_color_instead_of_a_mean_image(tmp_path, weights):
    layers, _ = weights
    color = np.array([120, 110, 100], np.float32).reshape(1, 1, 3)
    write(tmp_path / "net.mat", layer_structs(layers, "new"), color)
    trunk = CNNF.from_mat(tmp_path / "net.mat", **TINY)
    assert trunk.preprocess.mean.shape == (3, 95, 95)
    assert torch.equal(trunk.preprocess.mean[:, 50, 7], torch.tensor([120.0, 110.0, 100.0]))


def test_dropout_layers_are_ignored(tmp_path, weights):
    layers, mean = weights
    structs = list(layer_structs(layers, "new"))
    structs.insert(ORDER.index("fc7"), {"name": "drop6", "type": "dropout", "rate": 0.5})
    write(tmp_path / "net.mat", structs, mean)
    assert CNNF.from_mat(tmp_path / "net.mat", **TINY).out_features == 7


def test_axes_of_the_reader(tmp_path, weights):
    layers, mean = weights
    write(tmp_path / "net.mat", layer_structs(layers, "old"), mean, "old")
    network = read_matconvnet(tmp_path / "net.mat")
    assert [layer.name for layer in network.layers] == ORDER
    assert network.layers[0].filters[2, 1, 10, 3] == layers["conv1"][0][10, 3, 1, 2]
    assert network.mean[2, 90, 5] == mean[90, 5, 2]
    assert network.layers[4].pad == (2, 2, 2, 2)
    assert network.layers[0].stride == (4, 4)


def refusal(tmp_path, structs, mean, match):
    path = tmp_path / "net.mat"
    write(path, structs, mean)
    with pytest.raises(ValueError, match=match) as caught:
        CNNF.from_mat(path, **TINY)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_shapes_are_refused(tmp_path, weights):
    layers, mean = weights
    filters, biases = layers["conv3"]
    wrong = layers | {"conv3": (filters[..., :3], biases)}
    refusal(
        tmp_path, layer_structs(wrong, "new"), mean, r"conv3 has filters of shape \(3, 5, 3, 3\)"
    )
    wrong = layers | {"conv3": (filters, biases[:2])}
    refusal(tmp_path, layer_structs(wrong, "new"), mean, "2 biases")
    refusal(tmp_path, layer_structs(layers, "new"), mean[:94], "mean image has shape")
    refusal(tmp_path, layer_structs(layers, "new"), mean[..., :2], "mean image has shape")
    structs = list(layer_structs(layers, "new"))
    structs[0]["stride"] = 2.0
    refusal(tmp_path, structs, mean, "conv1 has stride")


def test_other_networks_are_refused(tmp_path, weights):
    layers, mean = weights
    structs = list(layer_structs(layers, "new"))
    with_batch_norm = [*structs[:1], {"name": "bn1", "type": "bnorm"}, *structs[1:]]
    refusal(tmp_path, with_batch_norm, mean, "not the layers of CNN-F, got conv bnorm relu")
    refusal(tmp_path, structs[:10], mean, "not the layers of CNN-F")
    unlike = [dict(struct) for struct in structs]
    unlike[2]["param"] = np.array([[5, 1, 2e-5, 0.75]])
    refusal(tmp_path, unlike, mean, "normalization layers must be equal")
    unlike[2]["param"] = np.array([[5, 1]])
    refusal(tmp_path, unlike, mean, "normalization needs 4 numbers")
    unlike = [dict(struct) for struct in structs]
    unlike[0]["name"] = "first"
    refusal(tmp_path, unlike, mean, "layer conv1 of CNN-F is missing")
    refusal(tmp_path, [{"type": "conv"}], mean, "not a MatConvNet network")


def test_other_files_are_refused(tmp_path, weights):
    layers, mean = weights
    path = tmp_path / "net.mat"
    with pytest.raises(FileNotFoundError, match="no such MatConvNet file"):
        create_trunk(f"cnnf:{path}", input_shape=(32, 32, 3))
    write(path, layer_structs(layers, "new"), mean)
    content = path.read_bytes()
    for length in (0, 50, 200, len(content) // 2, len(content) - 40):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"net\.mat"):
            CNNF.from_mat(path, **TINY)
    path.write_bytes(b"\x89PNG" + bytes(500))
    with pytest.raises(ValueError, match="not a MATLAB file"):
        read_matconvnet(path)
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(400))
    with pytest.raises(ValueError, match="-v7"):
        read_matconvnet(path)
    savemat(path, {"x": np.zeros(3)})
    with pytest.raises(ValueError, match="not a MatConvNet network"):
        read_matconvnet(path)


def test_a_damaged_compressed_file_is_refused(tmp_path):
    """Some of these files crash SciPy's reader; they are rejected before it runs."""
    path = tmp_path / "net.mat"
    savemat(path, {"layers": np.arange(3000.0), "normalization": 1.0}, do_compression=True)
    content = path.read_bytes()
    start = 128 + 8  # after the header of the file and the tag of its first element
    (size,) = np.frombuffer(content, "<u4", 1, offset=start - 4).tolist()
    for place in [*range(start, start + size, 97), start + size - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"net\.mat: not a MATLAB file, or damaged"):
            read_matconvnet(path)
    path.write_bytes(content[: start + size - 9])
    with pytest.raises(ValueError, match=r"net\.mat: not a MATLAB file, or damaged"):
        read_matconvnet(path)
