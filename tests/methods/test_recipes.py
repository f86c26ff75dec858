"""Recipes fill in every option that is not given, in one place."""

import json
from dataclasses import asdict

import numpy as np
import pytest

import bitprint as bp
from bitprint.data import draw_shapes, load_digits
from bitprint.methods import METHODS, DeepHasher, method
from bitprint.methods.recipes import RECIPES, Items, recipe_options, settle
from bitprint.nets import backbone_kind
from bitprint.training.plan import Training

BACKBONES = ["mlp", "small", "cnnh", "nin:48", "efficientnet-lite0", "hub:microsoft/resnet-50"]
DEEP = [name for name, cls in METHODS.items() if issubclass(cls, DeepHasher)]
PHOTOS = Items((64, 64, 3), 5000)


def items_for(backbone, count=5000):
    shape = (20,) if backbone_kind(backbone) == "features" else (64, 64, 3)
    return Items(shape, count)


def training(backbone, count=5000, recipe="recommended", name="dsdh"):
    hasher = bp.create(name, bits=12, backbone=backbone, recipe=recipe)
    return settle(hasher, items_for(backbone, count)).training


# ---- what they give


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", DEEP)
def test_every_method_settles_on_every_backbone(name, backbone, recipe):
    hasher = bp.create(name, bits=12, backbone=backbone, recipe=recipe)
    settled = settle(hasher, items_for(backbone))
    assert isinstance(settled.training, Training)
    assert "images_seen" not in settled._settings()
    assert (hasher.training, settled.backbone) == (None, backbone)


@pytest.mark.parametrize(
    ("recipe", "mode"), [("recommended", "balanced"), ("paper", "paper"), ("original", "paper")]
)
def test_dsdh_mode_follows_the_recipe(recipe, mode):
    assert settle(bp.create("dsdh", 12, recipe=recipe), PHOTOS).mode == mode
    assert settle(bp.create("dsdh", 12, recipe=recipe, mode="authors"), PHOTOS).mode == "authors"


@pytest.mark.parametrize("name", DEEP)
def test_original_is_the_training_of_the_authors(name):
    for backbone in ("small", "efficientnet-lite0"):
        assert training(backbone, recipe="original", name=name) == METHODS[name].default_training


def test_paper_trains_all_methods_with_one_budget():
    budgets = {
        (plan.epochs, plan.optimizer, plan.trunk_lr, plan.schedule, plan.augment)
        for plan in (training("efficientnet-lite0", recipe="paper", name=name) for name in DEEP)
        if plan.trunk_lr > 0
    }
    assert budgets == {(20, "adamw", 3e-4, "cosine", "flip+shift")}


def test_paper_epochs_follow_the_two_settings():
    for name, backbone, few, many in [
        ("dpsh", "efficientnet-lite0", 20, 6),
        ("cnnh", "cnnh", 100, 20),
        ("ninh", "nin-small:600", 300, 20),
    ]:
        epochs = [training(backbone, count, "paper", name).epochs for count in (5000, 50_000)]
        assert epochs == [few, many]


@pytest.mark.parametrize("backbone", ["mlp", "small", "cnnh", "nin:48"])
def test_norms_of_a_network_from_scratch_are_not_frozen(backbone):
    assert not training(backbone).freeze_norms
    assert training(backbone).drop_blocks == 0


def test_only_networks_with_blocks_skip_some():
    assert training("efficientnet-lite2").drop_blocks > 0
    assert training("hub:microsoft/resnet-50").drop_blocks == 0


@pytest.mark.parametrize("backbone", ["efficientnet-lite0", "hub:microsoft/resnet-50"])
def test_with_many_images_a_pretrained_network_may_learn(backbone):
    few, many = (training(backbone, count) for count in (5000, 50_000))
    assert few.freeze_norms
    assert few.cutmix > 0
    assert not many.freeze_norms
    assert many.cutmix == many.drop_blocks == 0
    assert many.epochs < few.epochs
    assert (many.average, many.mirror) == (few.average, few.mirror)


def test_few_images_take_more_epochs():
    counts = (1, 200, 1500, 5000, 20_000, 20_001)
    epochs = [training("efficientnet-lite0", count).epochs for count in counts]
    assert epochs == [300, 300, 133, 40, 40, 10]
    assert [training("small", count).epochs for count in (1500, 50_000)] == [133, 40]


def test_dsdh_learns_the_small_network_at_its_validated_rate():
    for backbone, rates in [("small", (3e-3, 3e-3)), ("nin:48", (1e-3, 3e-4))]:
        assert (training(backbone).lr, training(backbone).trunk_lr) == rates
    assert training("small", recipe="paper").lr == 1e-3


def test_over_features_epochs_follow_the_steps():
    few, more, many = (training("mlp", count).epochs for count in (100, 3000, 10**6))
    assert few >= more > many


def test_images_with_a_direction_are_not_mirrored():
    items = Items((64, 64, 3), 5000, mirrored_alike=False)
    for recipe in ("recommended", "paper"):
        plan = settle(bp.create("dsdh", 12, recipe=recipe), items).training
        assert (plan.augment, plan.mirror) == ("shift", False)


# ---- only the head, without labels, two views

FROZEN = [name for name in DEEP if METHODS[name].frozen]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("backbone", ["mlp:0", "efficientnet-lite0"])
@pytest.mark.parametrize("name", FROZEN)
def test_frozen_backbones_have_no_rate_in_any_recipe(name, backbone, recipe):
    plan = training(backbone, recipe=recipe, name=name)
    assert (plan.trunk_lr, plan.freeze_norms, plan.drop_blocks) == (0, True, 0)
    given = settle(bp.create(name, 12, trunk_lr=1e-4, recipe=recipe), items_for(backbone))
    assert given.training.trunk_lr == 1e-4


@pytest.mark.parametrize(("recipe", "rate"), [("recommended", 3e-4), ("paper", None)])
def test_backbones_with_random_weights_are_not_frozen(recipe, rate):
    for name in FROZEN:
        plan = training("small", recipe=recipe, name=name)
        assert (plan.trunk_lr, plan.freeze_norms) == (rate, False)


@pytest.mark.parametrize("recipe", RECIPES)
def test_frozen_backbone_over_features_is_the_features(recipe):
    for name in FROZEN:
        hasher = bp.create(name, 12, recipe=recipe)
        assert settle(hasher, Items((64,), 100)).backbone == "mlp:0"
        assert settle(hasher, PHOTOS).backbone == "efficientnet-lite0"


def test_methods_without_labels_have_no_cutmix():
    plans = {name: training("efficientnet-lite0", name=name) for name in DEEP}
    for name, plan in plans.items():
        assert METHODS[name].supervision == "labels" or plan.cutmix == 0
    assert plans["dsdh"].cutmix > 0


def test_two_views_also_differ_in_color():
    for name in ("cibhash", "crovca"):
        for recipe in ("recommended", "paper"):
            plan = training("efficientnet-lite0", recipe=recipe, name=name)
            assert plan.augment == "flip+shift+colour"
            assert training("mlp:0", recipe=recipe, name=name).augment == "none"
        digits = Items((64, 64, 3), 5000, mirrored_alike=False)
        assert settle(bp.create(name, 12), digits).training.augment == "shift+colour"


# ---- which backbone


def test_backbone_auto_follows_method_set_and_size():
    def chosen(name, source):
        return settle(bp.create(name, bits=24), Items.of(source)).backbone

    photos = bp.ImageSet(np.zeros((2, 40, 40, 3), np.uint8))
    tiny = bp.ImageSet(np.zeros((2, 15, 40, 3), np.uint8))
    assert chosen("dsdh", photos) == "efficientnet-lite0"
    assert chosen("dsdh", draw_shapes(2)) == chosen("dsdh", load_digits()) == "small"
    assert chosen("dsdh", np.zeros((2, 5), np.float32)) == "mlp:2048"
    assert chosen("dsdh", tiny) == chosen("ninh", tiny) == "small"
    assert [chosen(name, photos) for name in ("cnnh", "cnnh+", "dsch", "drsch")] == ["cnnh"] * 4
    assert chosen("ninh", photos) == "nin-small:1200"


def test_network_over_features_is_wide_only_by_recommended():
    features, pixels = Items((1280,), 100), Items((64 * 64 * 3,), 100)
    for recipe in ("paper", "original"):
        assert settle(bp.create("dsdh", 12, recipe=recipe), features).backbone == "mlp"
    assert settle(bp.create("dsdh", 12, backbone="mlp"), features).backbone == "mlp"
    assert settle(bp.create("dsdh", 12), features).backbone == "mlp:819"
    assert settle(bp.create("dsdh", 12), Items((64,), 100)).backbone == "mlp:2048"
    assert settle(bp.create("dsdh", 12), pixels).backbone == "mlp:512"


def test_features_are_standardized_by_recommended_alone():
    for recipe, wanted in (("recommended", (True, 0.5)), ("original", (False, 0.0))):
        plan = training("mlp", 3000, recipe)
        assert (plan.standardize, plan.noise) == wanted


@pytest.mark.parametrize(
    ("count", "epochs"), [(100, 1000), (3000, 166), (5000, 160), (20_000, 50), (10**6, 20)]
)
def test_epochs_over_features_follow_steps(count, epochs):
    assert training("mlp", count).epochs == epochs


# ---- what is given


def test_single_options_override_the_recipe():
    settled = settle(bp.create("dsdh", 12, epochs=3, lr=0.5, freeze_norms=False), PHOTOS)
    changed = {"epochs": 3, "lr": 0.5, "freeze_norms": False}
    assert settled.training == Training(**asdict(training("efficientnet-lite0")) | changed)


def test_a_whole_training_replaces_the_recipe():
    hasher = bp.create("dtsh", 12, training=Training(epochs=7, momentum=0.5), epochs=2)
    assert settle(hasher, PHOTOS).training == Training(epochs=2, momentum=0.5)


def test_options_set_later_are_used():
    hasher = bp.create("dsdh", bits=12, backbone="mlp").set_params(epochs=3, mode="paper")
    hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1])
    assert (hasher.training_.epochs, hasher.settings_["mode"]) == (3, "paper")
    assert hasher.get_params()["epochs"] == 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"recipe": "best"}, r"^recipe must be recommended, paper or original, got 'best'$"),
        ({"epochs": 0}, "^epochs must be"),
        ({"lr": -1.0}, "^lr must be"),
        ({"optimizer": "lion"}, "^optimizer must be one of"),
    ],
)
def test_wrong_settings_are_refused_before_training(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        bp.create("dsdh", bits=12, **options)
    hasher = bp.create("dsdh", bits=12, backbone="mlp").set_params(**options)
    with pytest.raises(ValueError, match=complaint):
        hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1])


# ---- methods of your own


class Plain(DeepHasher):
    name = "plain"

    def loss(self, outputs, rows, state):
        return {"size": outputs.square().mean()}


class OwnTraining(Plain):
    default_training = Training(epochs=9, optimizer="adamw", lr=1e-3)


class OwnRate(OwnTraining):
    tuned = {"recommended pretrained": {"lr": 0.2}}  # noqa: RUF012


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_method_with_its_own_training_alone_keeps_it(recipe):
    options = recipe_options(OwnTraining, recipe, "efficientnet-lite0", PHOTOS)
    assert Training(**options) == OwnTraining.default_training


def test_a_method_without_settings_is_trained_as_all_are():
    options = recipe_options(Plain, "recommended", "small", PHOTOS)
    usual = recipe_options(method("dpsh"), "recommended", "small", PHOTOS)
    assert options == usual


def test_tuned_options_need_all_their_words():
    for backbone, recipe, rate in [
        ("efficientnet-lite0", "recommended", 0.2),
        ("efficientnet-lite0", "paper", 1e-4),
        ("small", "recommended", 1e-3),
        ("efficientnet-lite0", "original", 1e-3),
    ]:
        assert recipe_options(OwnRate, recipe, backbone, PHOTOS)["lr"] == rate


# ---- stored


def test_a_model_stores_its_recipe_and_all_settings(tmp_path):
    hasher = bp.create("dsdh", bits=12, epochs=2).fit(np.eye(6), [0, 0, 0, 1, 1, 1])
    hasher.save(tmp_path)
    loaded = bp.load(tmp_path)
    assert loaded.get_params() == hasher.get_params()
    assert loaded.settings_ == hasher.settings_
    assert loaded.training_ == hasher.training_
    assert (loaded.recipe, loaded.settings_["mode"]) == ("recommended", "balanced")


# ---- runs and models of versions without recipes

PIXELS = np.arange(4 * 32 * 32 * 3, dtype=np.int64).reshape(4, 32, 32, 3).astype(np.uint8)
FOUR = bp.ImageSet(PIXELS, labels=[0, 0, 1, 1])
SIX, SIX_LABELS = np.eye(6, dtype=np.float32), np.array([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("name", "options", "source", "identity"),
    [
        ("dsdh", {"epochs": 2, "lr": 0.1}, SIX, "9a38a16f39dd88a9dcc8449dfd156b59"),
        ("dtsh", {"eta": 3.0}, SIX, "1403e52d863b2d531bbd94c599c0a4b6"),
        ("cnnh", {"epochs": 1, "backbone": "cnnh"}, FOUR, "4e9b20c0ee4064c0250b678d0ab35477"),
        ("dpsh", {"epochs": 1, "seed": 3}, FOUR, "a645bf53c3581270289669dc5bf7ce6e"),
    ],
)
def test_identity_of_original_runs_has_not_changed(name, options, source, identity):
    """The identities are those that the last version without recipes wrote."""
    hasher = bp.create(name, 8, recipe="original", **options)
    labels = source.labels if source is FOUR else SIX_LABELS
    settled = settle(hasher, Items.of(source))
    assert settled._identity(source, labels, hasher.backbone).startswith(identity)


def interrupt(row):
    if row["epoch"] == 2:
        raise KeyboardInterrupt


def test_a_run_begun_without_recipes_resumes_as_original(tmp_path, monkeypatch):
    def create(**options):
        return bp.create("dsdh", 8, epochs=4, lr=0.1, device="cpu", **options)

    straight = create(recipe="original").fit(SIX, SIX_LABELS)
    with monkeypatch.context() as patch:
        patch.setattr("bitprint.training.run._RECIPES", {})
        with pytest.raises(KeyboardInterrupt):
            create(recipe="original").fit(SIX, SIX_LABELS, run=tmp_path, callback=interrupt)
    resumed = create()
    with pytest.warns(UserWarning, match="it resumes with that recipe"):
        resumed.fit(SIX, SIX_LABELS, run=tmp_path)
    assert resumed.recipe == bp.load(tmp_path).recipe == "original"
    np.testing.assert_array_equal(resumed.project(SIX), straight.project(SIX))


def test_a_run_of_another_recipe_is_refused(tmp_path):
    create = {"bits": 8, "epochs": 4, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        bp.create("dsdh", recipe="original", **create).fit(
            SIX, SIX_LABELS, run=tmp_path, callback=interrupt
        )
    with pytest.raises(ValueError, match="other options or other data"):
        bp.create("dsdh", **create).fit(SIX, SIX_LABELS, run=tmp_path)


def test_a_model_without_a_recipe_loads_as_original(tmp_path):
    bp.create("dsdh", 8, epochs=1, recipe="original").fit(SIX, SIX_LABELS).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    settings = document["fitted"].pop("settings")
    plan = {name: settings[name] for name in asdict(Training())}
    document["options"] = {
        "bits": 8, "mode": "paper", "mu": None, "nu": None, "eta": None, "backbone": "auto",
        "training": plan, "device": "auto", "seed": 0,
    }  # fmt: skip
    (tmp_path / "model.json").write_text(json.dumps(document))
    loaded = bp.load(tmp_path)
    assert (loaded.recipe, loaded.mode) == ("original", "paper")
    assert loaded.training_ == Training(**plan)
    assert loaded.encode(SIX).bits == 8
