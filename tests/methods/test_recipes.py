"""What we recommend can be created, and fits the network it is recommended for."""

import pytest

import bitprint as bp
from bitprint.methods.recipes import recipe, training_recipe
from bitprint.training.plan import Training

BACKBONES = ["mlp", "small", "cnnh", "nin:48", "efficientnet-lite0", "hub:microsoft/resnet-50"]


@pytest.mark.parametrize("backbone", BACKBONES)
def test_dsdh_can_be_created_by_its_recipe(backbone):
    hasher = bp.create("dsdh", bits=12, backbone=backbone, **recipe("dsdh", backbone))
    assert hasher.mode == "balanced"
    assert hasher.training == Training(**training_recipe(backbone))


@pytest.mark.parametrize("method", ["dpsh", "itq"])
def test_there_is_none_for_others(method):
    assert recipe(method, "small") == {}


@pytest.mark.parametrize("backbone", ["mlp", "small", "cnnh", "nin:48"])
def test_norms_of_a_network_from_scratch_are_not_frozen(backbone):
    training = Training(**training_recipe(backbone))
    assert not training.freeze_norms
    assert training.drop_blocks == 0


def test_only_networks_with_blocks_skip_some():
    assert training_recipe("efficientnet-lite2")["drop_blocks"] > 0
    assert "drop_blocks" not in training_recipe("hub:microsoft/resnet-50")


@pytest.mark.parametrize("backbone", ["efficientnet-lite0", "hub:microsoft/resnet-50"])
def test_with_many_images_a_pretrained_network_may_learn(backbone):
    few, many = (Training(**training_recipe(backbone, images)) for images in (5000, 50_000))
    assert few.freeze_norms
    assert few.cutmix > 0
    assert not many.freeze_norms
    assert many.cutmix == many.drop_blocks == 0
    assert many.epochs < few.epochs
    assert (many.average, many.mirror) == (few.average, few.mirror)


def test_a_network_from_scratch_learns_alike_from_few_and_many():
    assert training_recipe("small", 5000) == training_recipe("small", 50_000)


def test_a_whole_network_sees_the_fewer_images_the_more_often():
    counts = (1, 200, 1500, 5000, 20_000, 20_001)
    epochs = [training_recipe("efficientnet-lite0", images)["epochs"] for images in counts]
    assert epochs == [300, 300, 133, 40, 40, 10]
    assert [training_recipe("small", images)["epochs"] for images in (1500, 50_000)] == [133, 40]


def test_over_features_fewer_images_take_more_epochs():
    epochs = [training_recipe("mlp", images)["epochs"] for images in (1, 100, 1000, 3000, 10**6)]
    assert epochs == [150, 150, 150, 83, 20]
