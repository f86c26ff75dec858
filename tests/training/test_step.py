"""Training options that change the network: frozen batch norms and mirror images."""

from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.training.distributed import ALONE
from bitprint.training.plan import Training
from bitprint.training.step import Step

RNG = np.random.default_rng(0)
IMAGES = ImageSet(RNG.integers(0, 256, (24, 16, 16, 3), np.uint8), labels=np.arange(24) % 3)


def fitted(**options):
    training = {"epochs": 2, "batch_size": 8, "lr": 1e-3, "optimizer": "adamw"} | options
    hasher = bp.create("dpsh", bits=6, recipe="original", backbone="small", **training)
    return hasher.fit(IMAGES)


def norms(net):
    return [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]


def test_frozen_norms_keep_their_averages_and_still_learn_their_weights():
    frozen, free = norms(fitted(freeze_norms=True).net_), norms(fitted().net_)
    assert len(frozen) > 0
    for layer in frozen:
        assert torch.equal(layer.running_mean, torch.zeros_like(layer.running_mean))
        assert torch.equal(layer.running_var, torch.ones_like(layer.running_var))
        assert not torch.equal(layer.weight, torch.ones_like(layer.weight))
    assert not any(torch.equal(layer.running_var, frozen[0].running_var) for layer in free[:1])


def test_norms_that_see_all_gpus_are_frozen_too():
    net = nn.Sequential(OrderedDict(trunk=nn.BatchNorm2d(3), head=nn.Linear(3, 3)))
    net.trunk = nn.SyncBatchNorm.convert_sync_batchnorm(net.trunk)
    net.trunk.optimized = True
    for frozen in (True, False):
        objective = SimpleNamespace(views=1)
        Step(net, objective, None, Training(freeze_norms=frozen), ALONE).begin_epoch()
        assert net.training
        assert net.trunk.training is not frozen


def test_with_frozen_norms_an_image_is_trained_on_as_it_is_encoded():
    """The first loss equals the loss of the untrained network in evaluation mode."""
    options = {"epochs": 1, "batch_size": 24, "lr": 0.0, "weight_decay": 0.0}
    frozen = fitted(freeze_norms=True, **options)
    losses = {name: frozen.history_[0][name] for name in ("pair", "quantisation")}
    outputs = torch.from_numpy(frozen.project(IMAGES)).double()
    signs = torch.where(outputs >= 0, 1.0, -1.0)
    similar = torch.from_numpy(IMAGES.labels[:, None] == IMAGES.labels).double()
    products = outputs @ outputs.t() / 2
    pairs = torch.log1p(torch.exp(products)) - similar * products
    np.testing.assert_allclose(losses["pair"], pairs.mean(), rtol=1e-4)
    apart = frozen.eta * (outputs - signs).square().sum() / 24**2
    np.testing.assert_allclose(losses["quantisation"], apart, rtol=1e-4)


def test_mirrored_images_have_the_same_code_and_it_is_of_the_mean_output():
    once = fitted()
    both = fitted(mirror=True)
    mirrored = ImageSet(np.ascontiguousarray(IMAGES.pixels[:, :, ::-1]))
    assert not np.allclose(once.project(IMAGES), once.project(mirrored), atol=1e-3)
    np.testing.assert_allclose(both.project(IMAGES), both.project(mirrored), atol=1e-5)
    mean = (once.project(IMAGES) + once.project(mirrored)) / 2
    np.testing.assert_allclose(both.project(IMAGES), mean, atol=1e-5)


def test_mirror_images_are_no_part_of_training_and_stay_with_the_model(tmp_path):
    both = fitted(mirror=True)
    assert [row["loss"] for row in both.history_] == [row["loss"] for row in fitted().history_]
    both.save(tmp_path / "model")
    assert bp.load(tmp_path / "model").encode(IMAGES) == both.encode(IMAGES)


def test_features_have_no_mirror_image():
    rows = RNG.normal(size=(24, 5)).astype(np.float32)
    options = {"epochs": 1, "lr": 1e-3, "backbone": "mlp"}
    once = bp.create("dpsh", bits=6, **options).fit(rows, IMAGES.labels)
    both = bp.create("dpsh", bits=6, mirror=True, **options).fit(rows, IMAGES.labels)
    np.testing.assert_array_equal(once.project(rows), both.project(rows))


def test_backbone_without_rate_gets_no_gradient_and_stays():
    options = {"epochs": 1, "batch_size": 8, "backbone": "small", "weight_decay": 0.1}
    frozen = bp.create("dpsh", bits=6, trunk_lr=0.0, freeze_norms=True, lr=0.1, **options)
    before = frozen._build((16, 16, 3), 3, torch.device("cpu"), Training())
    net = frozen.fit(IMAGES).net_
    assert not any(value.requires_grad for value in net.trunk.parameters())
    for name, value in net.trunk.state_dict().items():
        assert torch.equal(value, before.trunk.state_dict()[name]), name
    assert not torch.equal(net.head.weight, before.head.weight)
