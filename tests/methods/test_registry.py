"""The contract of all registered methods."""

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bitprint as bp
from bitprint.methods import DeepHasher, _kinds, method
from bitprint.methods._store import read_about

FEATURES = np.random.default_rng(0).standard_normal((24, 70)).astype(np.float32)
LABELS = np.arange(24) % 3

every_method = pytest.mark.parametrize("name", bp.list_methods())
hamming_methods = pytest.mark.parametrize(
    "name",
    [name for name in bp.list_methods() if name != "dqn"],  # codes of dqn are not binary
)
deep_methods = pytest.mark.parametrize(
    "name", [name for name in bp.list_methods() if issubclass(method(name), DeepHasher)]
)
labeled_deep_methods = pytest.mark.parametrize(
    "name",
    [
        name
        for name in bp.list_methods()
        if issubclass(method(name), DeepHasher) and method(name).supervision == "labels"
    ],
)


def create(name, bits=7, **options):
    if issubclass(method(name), DeepHasher):
        options = {"epochs": 1, "batch_size": 8} | options
    return bp.create(name, bits=bits, **options)


@cache
def fitted(name):
    """A shared model for tests that do not modify it."""
    return create(name).fit(FEATURES, LABELS)


# ---- fit, encode, parameters


@hamming_methods
@pytest.mark.parametrize("bits", [1, 7, 12, 64])
def test_codes_have_the_asked_length(name, bits):
    hasher = create(name, bits)
    assert hasher.fit(FEATURES, LABELS) is hasher
    outputs, codes = hasher.project(FEATURES[:9]), hasher.encode(FEATURES[:9])
    assert outputs.shape == (9, bits)
    assert outputs.dtype == np.float32
    assert (len(codes), codes.bits) == (9, bits)
    np.testing.assert_array_equal(codes.signs(), np.where(outputs >= 0, 1, -1))


@every_method
def test_encoding_does_not_depend_on_other_rows(name):
    hasher = create(name, 32).fit(FEATURES, LABELS)
    together = hasher.project(FEATURES)
    alone = np.concatenate([hasher.project(FEATURES[i : i + 1]) for i in range(len(FEATURES))])
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    assert len(hasher.encode(FEATURES[:0])) == 0


@every_method
def test_lists_and_other_number_types_are_features_too(name):
    whole = np.rint(4 * FEATURES)
    hasher = create(name).fit(whole, LABELS)
    assert hasher.encode(whole.astype(np.int8).tolist()) == hasher.encode(whole)


@every_method
def test_parameters_can_be_read_and_cloned(name):
    hasher = create(name, 12, seed=5)
    parameters = hasher.get_params()
    assert parameters["bits"] == 12
    assert parameters.get("seed", 5) == 5
    twin = clone(hasher.fit(FEATURES, LABELS))
    assert twin.get_params() == parameters
    with pytest.raises(NotFittedError):
        twin.encode(FEATURES)
    assert twin.fit(FEATURES, LABELS).encode(FEATURES) == hasher.encode(FEATURES)


@every_method
def test_training_data_are_left_alone(name):
    features, labels = FEATURES.copy(), LABELS.copy()
    create(name).fit(features, labels).encode(features)
    np.testing.assert_array_equal(features, FEATURES)
    np.testing.assert_array_equal(labels, LABELS)


@every_method
def test_description(name):
    cls = method(name)
    assert cls.name == name
    assert cls.reference
    assert cls.supervision in ("none", "labels")
    assert cls.__doc__


# ---- saving


@every_method
def test_a_saved_model_gives_the_same_codes(name, tmp_path):
    hasher = create(name, 12, seed=3).fit(FEATURES, LABELS)
    hasher.save(tmp_path / "model", data="noise")
    loaded = bp.load(tmp_path / "model")
    assert type(loaded) is type(hasher)
    assert loaded.encode(FEATURES) == hasher.encode(FEATURES)
    np.testing.assert_array_equal(loaded.project(FEATURES), hasher.project(FEATURES))
    loaded.save(tmp_path / "again")
    first, second = (
        (tmp_path / folder / "model.safetensors").read_bytes() for folder in ("model", "again")
    )
    assert first == second
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    assert document["method"] == name
    assert document["about"] == {"data": "noise"}


@deep_methods
def test_a_saved_network_for_images_gives_the_same_codes(name, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (24, 8, 8, 3), np.uint8)
    names = ["ant", "bee", "cat"]
    images = bp.ImageSet(pixels, labels=LABELS, label_names=names)
    hasher = create(name, 12, backbone="small").fit(images)
    hasher.save(tmp_path)
    loaded = bp.load(tmp_path)
    np.testing.assert_array_equal(loaded.project(images), hasher.project(pixels))
    assert loaded.label_names_ == (names if method(name).supervision == "labels" else None)


@every_method
def test_saving_before_fitting_is_refused(name, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted"):
        create(name).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# ---- errors


def one_sentence(error):
    message = str(error.value)
    return message and "\n" not in message


def test_unknown_method():
    with pytest.raises(ValueError, match=r"unknown method 'dsdg'.*lsh.*dsdh"):
        bp.create("dsdg", bits=12)
    with pytest.raises(ValueError, match=r"unknown method 'DSDG' \(did you mean dsdh\?\)"):
        bp.create("DSDG", bits=12)


@every_method
def test_unknown_option(name):
    with pytest.raises(ValueError, match=f"^{re.escape(name)}: .*'colour'.*choose from") as error:
        bp.create(name, bits=12, colour="red")
    assert one_sentence(error)
    options = str(error.value).rpartition("choose from ")[2].split(", ")
    assert ("trunk_lr" in options) == issubclass(method(name), DeepHasher)
    assert not {"bits", "training"} & set(options)
    assert "meant" not in str(error.value)


@deep_methods
def test_the_nearest_option_is_named(name):
    with pytest.raises(ValueError, match=r": unknown option 'lrr' \(did you mean lr\?\); choose"):
        create(name, lrr=3)


@every_method
@pytest.mark.parametrize("bits", [0, -3, 2.5, True, "12"])
def test_bits_that_are_no_length(name, bits):
    with pytest.raises(ValueError, match="bits must be an integer >= 1") as error:
        create(name, bits).fit(FEATURES, LABELS)
    assert one_sentence(error)


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite(name, bad):
    features = FEATURES.copy()
    features[11, 2] = bad
    with pytest.raises(ValueError, match=r"NaN or infinity.*row 11"):
        create(name).fit(features, LABELS)
    with pytest.raises(ValueError, match=r"NaN or infinity.*row 11"):
        fitted(name).encode(features)


@every_method
def test_features_of_another_width(name):
    with pytest.raises(ValueError, match=r"70.*got.*4|4 features.*70") as error:
        fitted(name).encode(FEATURES[:, :4])
    assert one_sentence(error)
    with pytest.raises(ValueError, match="shape"):
        fitted(name).encode(FEATURES[0])


@every_method
def test_no_training_items(name):
    with pytest.raises(ValueError, match="there are no training"):
        create(name).fit(FEATURES[:0], LABELS[:0])


@every_method
def test_encoding_before_fitting(name):
    with pytest.raises(NotFittedError, match="not fitted"):
        create(name).encode(FEATURES)


@labeled_deep_methods
def test_constant_labels(name):
    hasher = create(name)
    with pytest.raises(ValueError, match="same labels"):
        hasher.fit(FEATURES, np.full(24, 2))
    with pytest.raises(ValueError, match="24 images but 23 labels"):
        hasher.fit(FEATURES, LABELS[:-1])
    with pytest.raises(ValueError, match="learns from labels"):
        hasher.fit(FEATURES)
    with pytest.raises(ValueError, match=r"class numbers must be integers >= 0"):
        hasher.fit(FEATURES, LABELS - 1)
    with pytest.raises(ValueError, match="only 0 and 1"):
        hasher.fit(FEATURES, 2 * np.eye(3, dtype=int)[LABELS])


@deep_methods
def test_images_for_a_model_of_features_and_the_other_way_round(name):
    images = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match="trained on feature vectors of length"):
        fitted(name).encode(images)
    with pytest.raises(ValueError, match="backbone mlp takes feature vectors"):
        create(name, backbone="mlp").fit(images, [0, 0, 1, 1])


@deep_methods
def test_invalid_training_options_are_refused(name):
    for options in ({"epochs": 0}, {"lr": -1.0}, {"optimizer": "newton"}, {"batch_size": 2.5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            bp.create(name, bits=4, **options)


# ---- damaged model folders


@pytest.fixture(params=["lsh", "dsdh"])
def folder(request, tmp_path):
    create(request.param, 12).fit(FEATURES, LABELS).save(tmp_path / "model")
    return tmp_path / "model"


def change(folder, **changes):
    document = json.loads((folder / "model.json").read_text())
    for key, value in changes.items():
        document[key] = value
    (folder / "model.json").write_text(json.dumps(document))


def flip_last_byte(folder):
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


def truncate(folder):
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def truncate_and_vouch(folder):
    """Truncate before the checksum is computed, so that the parser reads the damaged file."""
    truncate(folder)
    weights = (folder / "model.safetensors").read_bytes()
    change(folder, sha256=hashlib.sha256(weights).hexdigest())


def spoil(folder, value):
    """Change the last number of a tensor and the checksum; training may have diverged."""
    arrays = load_file(folder / "model.safetensors")
    name = max(name for name, array in arrays.items() if array.dtype.kind == "f")
    arrays[name].flat[-1] = value
    save_file(arrays, folder / "model.safetensors")
    weights = (folder / "model.safetensors").read_bytes()
    change(folder, sha256=hashlib.sha256(weights).hexdigest())


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "wrong checksum": (flip_last_byte, ValueError, "checksum does not match"),
    "other checksum": (lambda f: change(f, sha256="0" * 64), ValueError, "checksum"),
    "newer version": (lambda f: change(f, version=2), ValueError, "version 2.*upgrade"),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        FileNotFoundError,
        "model.safetensors is missing",
    ),
    "no description": (
        lambda f: (f / "model.json").unlink(),
        FileNotFoundError,
        "model.json is missing",
    ),
    "not JSON": (lambda f: (f / "model.json").write_text("{"), ValueError, "not valid JSON"),
    "JSON without end": (
        lambda f: (f / "model.json").write_text("[" * 200_000),
        ValueError,
        "not valid JSON .*recursion",
    ),
    "not text": (lambda f: (f / "model.json").write_bytes(b"\xff\xfe\x00"), ValueError, "JSON"),
    "foreign JSON": (
        lambda f: (f / "model.json").write_text('{"name": "left-pad"}'),
        ValueError,
        "not a Bitprint model description",
    ),
    "a list": (
        lambda f: (f / "model.json").write_text("[]"),
        ValueError,
        "not a Bitprint model description",
    ),
    "truncated": (truncate, ValueError, "checksum"),
    "truncated before checksum": (truncate_and_vouch, ValueError, "not readable"),
    "not a number": (
        lambda f: spoil(f, np.nan),
        ValueError,
        "model.safetensors: '.+' contains NaN or infinity; train",
    ),
    "infinity": (lambda f: spoil(f, -np.inf), ValueError, "contains NaN or infinity"),
    "weights from a pipe": (
        lambda f: replace_by_pipe(f / "model.safetensors"),
        ValueError,
        "model.safetensors: expected a regular file, got a pipe",
    ),
    "description from a pipe": (
        lambda f: replace_by_pipe(f / "model.json"),
        ValueError,
        "model.json: expected a regular file, got a pipe",
    ),
    "unknown method": (lambda f: change(f, method="md5"), ValueError, "unknown method 'md5'"),
    "unknown option": (
        lambda f: change(f, options={"bits": 12, "colour": "red"}),
        ValueError,
        "model.json does not match",
    ),
    "no method": (lambda f: change(f, method=None), ValueError, "unknown method None"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_model_folders_are_refused(kind, folder):
    damage, error, message = DAMAGE[kind]
    damage(folder)
    with pytest.raises(error, match=message) as raised:
        bp.load(folder)
    assert str(folder) in str(raised.value) or kind in ("unknown method", "no method")
    assert one_sentence(raised)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    hasher = create("lsh", 12).fit(FEATURES, LABELS)
    hasher.projections_[0, 0] = np.inf
    with pytest.raises(ValueError, match="'projections_' contains NaN or infinity"):
        hasher.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("renamed", [0, 1])
def test_interrupted_saving_leaves_a_complete_model(tmp_path, monkeypatch, renamed):
    """The process stops before it renames the weights, or between weights and description."""
    old, new = (create("lsh", 12, seed=seed).fit(FEATURES) for seed in (0, 1))
    old.save(tmp_path)
    calls, replace = [], Path.replace

    def stop(path, target):
        calls.append(path)
        if len(calls) > renamed:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path, note="new")
    expected = new if renamed else old
    assert bp.load(tmp_path).encode(FEATURES) == expected.encode(FEATURES)
    assert ("note" in read_about(tmp_path)) == bool(renamed)
    old.save(tmp_path)
    assert bp.load(tmp_path).encode(FEATURES) == old.encode(FEATURES)
    assert len(list(tmp_path.iterdir())) == 2


def test_deeply_nested_facts_are_refused(tmp_path):
    """Options of a loaded model can be nested too deeply to write, in some Python versions."""
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="nested too deeply"):
        fitted(bp.list_methods()[0]).save(tmp_path, note=nested)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        bp.load(tmp_path / "nowhere")


@every_method
def test_values_of_the_wrong_kind_are_refused_in_one_sentence(name):
    for option in set(_kinds(method(name))) - {"training"}:
        for wrong in ([1], {"a": 1}, b"x", object()):
            with pytest.raises(ValueError, match=rf"^{re.escape(name)}: {option} must be .*, got "):
                bp.create(name, bits=8, **{option: wrong})


@every_method
def test_default_values_have_the_right_kind(name):
    options = create(name).get_params(deep=False)
    assert bp.create(name, **options).get_params(deep=False) == options


@pytest.mark.filterwarnings("ignore:.*gives the same code")
@every_method
def test_numbers_may_be_of_numpy(name, tmp_path):
    kinds = {bool: np.bool_, int: np.int64, float: np.float64}
    plain = create(name, 12, seed=3)
    options = {
        option: kinds.get(type(value), lambda same: same)(value)
        for option, value in plain.get_params(deep=False).items()
    }
    codes = plain.fit(FEATURES, LABELS).encode(FEATURES)
    made = [bp.create(name, **options), method(name)(**options)]
    assert not any(isinstance(value, np.generic) for value in made[0].get_params().values())
    for hasher in made:
        assert hasher.fit(FEATURES, LABELS).encode(FEATURES) == codes
        hasher.save(tmp_path)
        assert bp.load(tmp_path).encode(FEATURES) == codes
    if len(made) == 2:
        parameters = hasher.get_params(deep=False)
        assert all(parameters[option] is value for option, value in options.items())


SEEDS = "seed must be an integer from 0 to 2\\^63 - 1, got "


@every_method
def test_seeds_that_not_all_generators_take_are_refused(name):
    for seed in (-1, 2**63, 2**64, np.int64(-3)):
        with pytest.raises(ValueError, match=f"^{SEEDS}{seed}$"):
            bp.create(name, 8, seed=seed)
    hasher = create(name)
    if "seed" in hasher.get_params():
        for seed in (-1, 2**64, 1.5, True, None):
            with pytest.raises(ValueError, match=f"^{SEEDS}"):
                hasher.set_params(seed=seed).fit(FEATURES, LABELS)
        hasher.set_params(seed=2**63 - 1).fit(FEATURES, LABELS)


@every_method
def test_other_bits_than_were_fitted_are_refused(name, tmp_path):
    hasher = create(name, 8).fit(FEATURES, LABELS)
    codes = hasher.encode(FEATURES)
    fitted(name).save(tmp_path)
    for used in (hasher, bp.load(tmp_path)):
        was = used.bits
        for bits in (1, 4, 16):
            used.set_params(bits=bits)
            for use in (used.encode, used.encode_queries, used.project, used.save):
                with pytest.raises(ValueError, match=f"{was} bits, and bits is now {bits}; fit"):
                    use(FEATURES if use != used.save else tmp_path)
    assert hasher.set_params(bits=8).encode(FEATURES) == codes
    assert hasher.set_params(bits=4).fit(FEATURES, LABELS).encode(FEATURES).bits == 4
