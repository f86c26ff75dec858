"""Any torch module as a backbone: input, training and storage."""

import copy
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import bitprint as bp
from bitprint.data.images import ImageSet
from bitprint.methods import method
from bitprint.nets import create_trunk
from bitprint.nets.module import Module
from bitprint.nets.preprocess import Preprocess

BITS = 12
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 16, 12, 3), dtype=np.uint8)
LABELS = np.arange(24) % 3
FEATURES = np.random.default_rng(1).standard_normal((24, 10)).astype(np.float32)


class Net(nn.Module):
    """A typical small network with batch norm, dropout and `view`."""

    def __init__(self, width=8):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.1)
        self.pool = nn.AdaptiveAvgPool2d(2)

    def forward(self, images):
        features = self.pool(self.norm(self.conv(images)).relu())
        return self.drop(features.view(features.size(0), -1))


class See(nn.Module):
    """Features are the input pixels."""

    def __init__(self, **attributes):
        super().__init__()
        vars(self).update(attributes)

    def forward(self, images):
        assert images.dtype == torch.float32
        return images.reshape(len(images), -1)


def seen(module, images):
    trunk = Module(module, images.shape[1:])
    return trunk(trunk.preprocess(torch.from_numpy(images))).numpy()


def create(module, **options):
    usual = {"epochs": 3, "batch_size": 8, "augment": "none", "device": "cpu"}
    return bp.create("dsdh", BITS, backbone=module, **(usual | options))


# ---- input


def normalized(images, mean, std):
    channels_first = images.transpose(0, 3, 1, 2) / 255
    mean, std = np.reshape(mean, (3, 1, 1)), np.reshape(std, (3, 1, 1))
    return ((channels_first - mean) / std).reshape(len(images), -1)


def test_module_gets_images_normalized_by_imagenet():
    expected = normalized(PIXELS, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    np.testing.assert_allclose(seen(See(), PIXELS), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["pretrained_cfg", "default_cfg"])
def test_module_of_timm_gets_images_by_its_own_numbers(name):
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.1, 0.5), "input_size": (3, 16, 16)}
    square = PIXELS[:, :12]
    for size in (12, 16):
        config["input_size"] = (3, size, size)
        found = seen(See(**{name: config}), square)
        assert found.shape == (24, 3 * size * size)
        if size == 12:
            expected = normalized(square, config["mean"], config["std"])
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_module_with_its_own_preprocess_gets_what_that_gives():
    module = See()
    module.preprocess = Preprocess(None, mean=0.0, std=1.0)
    np.testing.assert_array_equal(
        seen(module, PIXELS), PIXELS.transpose(0, 3, 1, 2).reshape(24, -1)
    )


def test_module_gets_feature_vectors_as_they_are():
    np.testing.assert_array_equal(seen(See(), FEATURES), FEATURES)


def test_features_with_axes_of_one_are_flattened():
    trunk = Module(nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1)), (8, 8, 3))
    images = torch.zeros((2, 8, 8, 3), dtype=torch.uint8)
    assert trunk(trunk.preprocess(images)).shape == (2, trunk.out_features) == (2, 5)


# ---- training


def test_module_of_the_user_is_not_changed_by_training():
    module = Net().train()
    module.norm.eval()
    before = copy.deepcopy(module.state_dict())
    hasher = create(module, freeze_norms=False).fit(PIXELS, LABELS)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert module.training
    assert not module.norm.training
    assert module.conv.weight.grad is None
    assert hasher.backbone is module
    trained = hasher.net_.trunk.module.state_dict()
    assert not torch.equal(trained["conv.weight"], before["conv.weight"])
    assert not torch.equal(trained["norm.running_mean"], before["norm.running_mean"])


def test_finding_the_width_leaves_modes_and_averages():
    module = Net().train()
    module.norm.eval()
    trunk = Module(module, (16, 12, 3))
    assert trunk.out_features == 32
    assert trunk.module.training
    assert not trunk.module.norm.training
    assert torch.equal(trunk.module.norm.running_mean, torch.zeros(8))


def test_frozen_weights_of_a_module_stay():
    module = Net()
    module.conv.requires_grad_(False)
    hasher = create(module, weight_decay=0.1).fit(PIXELS, LABELS)
    assert torch.equal(hasher.net_.trunk.module.conv.weight, module.conv.weight)


def test_clone_of_a_hasher_with_a_module_learns_the_same():
    hasher = create(Net())
    twin = clone(hasher)
    assert twin.backbone is not hasher.backbone
    outputs = hasher.fit(PIXELS, LABELS).project(PIXELS)
    np.testing.assert_array_equal(twin.fit(PIXELS, LABELS).project(PIXELS), outputs)


def test_recipe_of_a_module_on_vectors_is_that_for_features():
    hasher = bp.create("dsdh", BITS, backbone=nn.Linear(10, 16), device="cpu").fit(FEATURES, LABELS)
    plain = bp.create("dsdh", BITS, device="cpu").fit(FEATURES, LABELS)
    assert plain.training_.standardize
    assert plain.training_.noise > 0
    assert hasher.training_ == replace(plain.training_, standardize=False, noise=0.0)


@pytest.mark.parametrize("name", ["dpsh", "dqn", "ninh", "dlbhc"])
def test_several_methods_train_a_module_on_images(name):
    hasher = method(name)(BITS, backbone=Net(), epochs=1, batch_size=8, device="cpu")
    assert len(hasher.fit(PIXELS, LABELS).encode(PIXELS)) == 24


# ---- storage


@pytest.mark.parametrize("data", [PIXELS, FEATURES], ids=["images", "vectors"])
def test_saved_model_with_its_module_gives_the_same_codes(data, tmp_path):
    build = Net if data is PIXELS else lambda: nn.Sequential(nn.Linear(10, 8), nn.Tanh())
    hasher = create(build(), device=torch.device("cpu")).fit(data, LABELS)
    hasher.save(tmp_path)
    other = build()
    before = copy.deepcopy(other.state_dict())
    loaded = bp.load(tmp_path, backbone=other)
    np.testing.assert_array_equal(loaded.project(data), hasher.project(data))
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())
    loaded.save(tmp_path / "again")
    assert bp.load(tmp_path / "again", backbone=build()).encode(data) == hasher.encode(data)
    document = json.loads((tmp_path / "model.json").read_text())
    assert document["fitted"]["trunk"]["name"] == "module"
    assert document["fitted"]["settings"]["backbone"].startswith("module:")


def check_load_refused(folder, message, **options):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        bp.load(folder, **options)
    assert "\n" not in str(error.value)


def test_saved_model_without_its_module_is_refused(tmp_path):
    create(Net()).fit(PIXELS, LABELS).save(tmp_path)
    check_load_refused(
        tmp_path,
        f"this model needs a Net as its backbone: bp.load({str(tmp_path)!r}, backbone=module)",
    )
    check_load_refused(tmp_path, "backbone must be a torch module, got str", backbone="small")
    check_load_refused(tmp_path, "trunk.module.conv.weight has shape", backbone=Net(width=9))
    check_load_refused(tmp_path, "with the given backbone", backbone=nn.Flatten())


def test_module_for_a_model_that_needs_none_is_refused(tmp_path):
    bp.create("dsdh", BITS, epochs=1).fit(FEATURES, LABELS).save(tmp_path)
    check_load_refused(tmp_path, "this model takes no backbone", backbone=Net())


def test_interrupted_run_with_a_module_resumes(tmp_path):
    torch.manual_seed(0)
    module = Net()
    straight = create(module).fit(PIXELS, LABELS, run=tmp_path / "straight")

    cls = type(straight)

    class Interrupted(cls):
        def after_epoch(self, state):
            if interrupting and self.done:
                raise KeyboardInterrupt
            self.__class__.done = True
            return super().after_epoch(state)

        done = False

    interrupting = True
    hasher = create(module)
    hasher.__class__ = Interrupted
    with pytest.raises(KeyboardInterrupt):
        hasher.fit(PIXELS, LABELS, run=tmp_path / "cut")
    interrupting = False
    # Other initial weights, which the checkpoint replaces.
    hasher = create(Net())
    hasher.fit(PIXELS, LABELS, run=tmp_path / "cut")
    assert [row["loss"] for row in hasher.history_] == [row["loss"] for row in straight.history_]
    np.testing.assert_array_equal(hasher.project(PIXELS), straight.project(PIXELS))
    with pytest.raises(ValueError, match="other options or other data"):
        create(Net(width=9)).fit(PIXELS, LABELS, run=tmp_path / "cut")


# ---- errors


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(3, 5, 3), "end it with torch.nn.AdaptiveAvgPool2d(1)"),
        (nn.Linear(7, 5), "backbone Linear does not support items of shape (16, 12, 3)"),
        (nn.LSTM(12, 5), "does not support items"),
        (See(pretrained_cfg={"input_size": (3, 4, 8)}), "input size must be square, got 4 x 8"),
        (Net, "; pass an instance, Net()"),
        (5, "backbone must be a name or a torch module"),
    ],
)
def test_module_that_gives_no_features_is_refused(module, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        create_trunk(module, input_shape=(16, 12, 3))
    assert "\n" not in str(error.value)


def test_module_with_a_tuple_as_output_is_refused():
    class Pair(nn.Module):
        def forward(self, images):
            return images, images

    with pytest.raises(ValueError, match="it must return a tensor, got tuple"):
        Module(Pair(), (8, 8, 3))


def test_class_in_place_of_a_module_is_refused_by_create_and_fit():
    with pytest.raises(ValueError, match="backbone must be a string or a torch module"):
        bp.create("dsdh", BITS, backbone=Net)
    with pytest.raises(ValueError, match="backbone must be a name or a torch module"):
        method("dsdh")(BITS, backbone=Net).fit(PIXELS, LABELS)


# ---- against a plain loop


def test_fit_of_a_module_has_the_losses_of_a_plain_loop():
    training = bp.Training(
        epochs=3, batch_size=8, lr=0.01, schedule="constant", precision="float32"
    )
    hasher = bp.create("dsdh", BITS, backbone=Net(), training=training, device="cpu")
    hasher.fit(ImageSet(PIXELS, LABELS))

    criterion = bp.criterion("dsdh", BITS, LABELS, batch_size=8)
    torch.manual_seed(0)
    trunk = Module(hasher.backbone, (16, 12, 3))
    model, head = trunk.module, criterion.make_head(trunk.out_features)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.01, weight_decay=5e-4)
    images = torch.from_numpy(normalized(PIXELS, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    images = images.float().reshape(24, 3, 16, 12)
    for epoch in range(3):
        torch.manual_seed(2 * epoch)
        generator = torch.Generator().manual_seed(2 * epoch + 1)
        total = 0.0
        for rows in torch.randperm(24, generator=generator).split(8):
            loss = criterion(head(model(images[rows])), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 3
        criterion.end_epoch()
        assert total == pytest.approx(hasher.history_[epoch]["loss"], rel=1e-4)
