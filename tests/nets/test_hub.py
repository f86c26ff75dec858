import json
import os
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images

from bitprint.nets import create_trunk, restore_trunk
from bitprint.nets.hub import _read_preprocessing

transformers = pytest.importorskip("transformers")

PROCESSOR = {
    "do_resize": True,
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.25, 0.5],
}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 32,
    "patch_size": 8,
}


def tiny(kind):
    torch.manual_seed(0)
    if kind == "resnet":
        config = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic"
        )
        return transformers.ResNetModel(config)
    if kind == "vit":
        return transformers.ViTModel(transformers.ViTConfig(**VIT))
    if kind == "vit classifier":
        return transformers.ViTForImageClassification(transformers.ViTConfig(**VIT))
    text = {**VIT, "vocab_size": 60, "bos_token_id": 0, "eos_token_id": 1}
    return transformers.CLIPModel(transformers.CLIPConfig(vision_config=VIT, text_config=text))


def save(folder, model, processor=PROCESSOR):
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return f"hub:{folder}"


def own_features(kind, model, pixels):
    """The pooled output of the model's class, without AutoModel."""
    model.eval()
    with torch.no_grad():
        if kind == "clip":
            return model.vision_model(pixel_values=pixels).pooler_output
        if kind == "vit classifier":
            return model.vit(pixel_values=pixels).last_hidden_state[:, 0]
        return model(pixel_values=pixels).pooler_output.flatten(1)


@pytest.mark.parametrize("kind", ["resnet", "vit", "vit classifier", "clip"])
def test_features_are_the_models_own(tmp_path, kind):
    model = tiny(kind)
    trunk = create_trunk(save(tmp_path, model), input_shape=(32, 32, 3)).eval()
    images = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8)
    mean, std = torch.tensor(PROCESSOR["image_mean"]), torch.tensor(PROCESSOR["image_std"])
    pixels = ((images / 255 - mean) / std).permute(0, 3, 1, 2)
    expected = own_features(kind, model, pixels)
    with torch.no_grad():
        features = trunk(trunk.preprocess(images))
    assert features.shape == (3, trunk.out_features)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["resnet", "vit", "vit classifier", "clip"])
def test_restore_needs_no_folder(tmp_path, kind):
    trunk = create_trunk(save(tmp_path, tiny(kind)), input_shape=(40, 30, 3)).eval()
    description = json.dumps(trunk.describe())
    assert str(tmp_path) not in description
    for file in tmp_path.iterdir():
        file.unlink()
    twin = restore_trunk(json.loads(description)).eval()
    twin.load_state_dict(trunk.state_dict())
    images = torch.randint(0, 256, (2, 40, 30, 3), dtype=torch.uint8)
    with torch.no_grad():
        features = trunk(trunk.preprocess(images))
        assert torch.equal(features, twin(twin.preprocess(images)))
    assert twin.describe() == trunk.describe()


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_training_and_autocast(tmp_path, kind):
    trunk = create_trunk(save(tmp_path, tiny(kind)), input_shape=(32, 32, 3))
    assert all(module.training for module in trunk.modules())
    images = torch.randint(0, 256, (4, 32, 32, 3), dtype=torch.uint8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = trunk(trunk.preprocess(images))
    features.float().square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in trunk.parameters())


def test_half_precision_checkpoints_become_float32(tmp_path):
    trunk = create_trunk(save(tmp_path, tiny("vit").half()), input_shape=(32, 32, 3))
    assert {p.dtype for p in trunk.parameters()} == {torch.float32}


def test_not_pretrained_is_random(tmp_path):
    model = tiny("vit")
    name = save(tmp_path, model)
    torch.manual_seed(7)
    first = create_trunk(name, input_shape=(32, 32, 3), pretrained=False)
    torch.manual_seed(7)
    second = create_trunk(name, input_shape=(32, 32, 3), pretrained=False)
    keys = [key for key, value in model.named_parameters() if value.ndim == 2 and value.std() > 0]
    assert keys
    for key in keys:
        assert torch.equal(first.model.get_parameter(key), second.model.get_parameter(key))
        assert not torch.equal(first.model.get_parameter(key), model.get_parameter(key))


def test_missing_weights_are_named(tmp_path):
    model = tiny("vit")
    name = save(tmp_path, model)
    state = {k: v for k, v in model.state_dict().items() if k != "layernorm.bias"}
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.warns(UserWarning, match="missing layernorm.bias; these stay random"):
        create_trunk(name, input_shape=(32, 32, 3))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"size": 32, "interpolation": "bilinear", "scale": 1 / 255, "mean": [0.5, 0.4, 0.3]}),
        ({"size": 48, "resample": 3}, {"size": 48, "interpolation": "bicubic"}),
        ({"size": {"shortest_edge": 64}}, {"size": 64}),
        ({"do_center_crop": True, "crop_size": {"height": 28, "width": 28}}, {"size": 28}),
        ({"do_center_crop": False, "crop_size": 28}, {"size": 32}),
        ({"do_resize": False}, {"size": None}),
        ({"do_rescale": False}, {"scale": 1.0}),
        ({"rescale_factor": 0.5}, {"scale": 0.5}),
        ({"do_normalize": False}, {"mean": 0.0, "std": 1.0}),
    ],
)
def test_preprocessor_fields(changes, expected):
    result = _read_preprocessing(PROCESSOR | changes, "folder")
    assert {key: result[key] for key in expected} == expected


def test_errors_in_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="needs a model id or a folder"):
        create_trunk("hub", input_shape=(32, 32, 3))
    with pytest.raises(ValueError, match="transformers cannot load this model") as caught:
        create_trunk(f"hub:{tmp_path}", input_shape=(32, 32, 3))
    assert "\n" not in str(caught.value)
    name = save(tmp_path, tiny("vit"))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match="transformers cannot load this model"):
        create_trunk(name, input_shape=(32, 32, 3))
    (tmp_path / "config.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match=r"transformers cannot load this model: .*recursion"):
        create_trunk(name, input_shape=(32, 32, 3))
    with pytest.raises(ValueError, match="must be square"):
        _read_preprocessing(PROCESSOR | {"size": {"height": 32, "width": 48}}, "folder")
    with pytest.raises(ValueError, match="needs image_mean"):
        _read_preprocessing({"size": 32}, "folder")


def test_missing_transformers_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match="pip install transformers"):
        create_trunk("hub:some/model", input_shape=(32, 32, 3))


@pytest.mark.skipif(
    "BITPRINT_RESNET50" not in os.environ,
    reason="BITPRINT_RESNET50 names no folder with a pretrained ResNet-50",
)
def test_real_resnet50():
    trunk = create_trunk(f"hub:{os.environ['BITPRINT_RESNET50']}", input_shape=(427, 640, 3)).eval()
    images = torch.from_numpy(np.stack(load_sample_images().images))
    with torch.no_grad():
        features = trunk(trunk.preprocess(images))
        shifted = trunk(trunk.preprocess(images.roll(8, dims=2)))
    assert features.shape == (2, 2048)
    assert features.min() >= 0
    assert (features.std(dim=1) > 0.1).all()
    # A photograph is more similar to a shifted copy of itself than to the other photograph.
    similar = torch.nn.functional.cosine_similarity(features, shifted)
    other = torch.nn.functional.cosine_similarity(features[0], features[1], dim=0)
    assert similar.min() > other
