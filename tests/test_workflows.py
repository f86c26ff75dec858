"""Split, train and evaluate: the functions behind the commands and `bp.train`."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import bitprint as bp
from bitprint import workflows
from bitprint.data import draw_shapes, load_digits
from bitprint.methods.estimate import spell_time

DIGITS = load_digits()
QUICK = {"epochs": 1, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of 12 images, and two images without a label."""
    root = tmp_path_factory.mktemp("photos")
    scenes = draw_shapes(26, size=24)
    for number, pixels in enumerate(scenes.pixels):
        place = root / ("cats" if number % 2 else "dogs") if number < 24 else root
        place.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number:02d}.png")
    return root


# ---- progress


def test_train_and_evaluate_report_features_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path))
    parts, calls = bp.split(bp.open_images(folder, size=24)), []
    options = {"bits": 8, "method": "lsh", "features": "small"}
    hasher = bp.train(parts, **options, feature_progress=lambda *count: calls.append(count))
    assert calls[-1] == (24, 24)
    calls.clear()
    bp.evaluate_split(hasher, parts, feature_progress=lambda *count: calls.append(count))
    assert calls == []  # the features are kept


# ---- split


def test_split_parts_are_image_sets_of_the_protocol():
    parts = bp.split(DIGITS, protocol=1, seed=3)
    expected = bp.data.split_for(DIGITS, 1, 3)
    for part in ("training", "queries", "database"):
        assert getattr(parts, part).ids.tolist() == DIGITS.ids[getattr(expected, part)].tolist()


def test_split_leaves_out_unlabeled_images(folder):
    parts = bp.split(bp.open_images(folder))
    assert len(parts.images) == 24


def test_split_of_another_kind_of_data_is_refused(folder):
    with pytest.raises(ValueError, match=r"create one with bp\.open_images\(folder\)"):
        bp.split(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="of each class into a sub-folder"):
        bp.split(bp.open_images(folder / "cats"))


@pytest.mark.parametrize("name", ["", "cifar", "no/such/folder"])
def test_open_images_of_an_unknown_name_lists_the_sets(name):
    with pytest.raises(FileNotFoundError, match=r"no such folder.* cifar10, nuswide"):
        bp.open_images(name)


def test_open_images_expands_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert len(bp.open_images(f"~/{folder.name}")) == 26


def test_open_images_of_an_array_names_image_set():
    with pytest.raises(ValueError, match=r"bp\.ImageSet\(pixels, labels\)"):
        bp.open_images(DIGITS.pixels)


# ---- train


def test_train_with_y_names_labels():
    with pytest.raises(ValueError, match=r"give labels as bp\.train\(X, labels=y\)"):
        bp.train(np.eye(4), y=[0, 1, 0, 1])


def test_train_uses_the_recommended_settings():
    hasher = bp.train(bp.split(DIGITS), bits=12, **QUICK)
    assert (hasher.recipe, hasher.backbone) == ("recommended", "auto")
    settings = hasher.settings_
    assert (settings["mode"], settings["backbone"]) == ("balanced", "small")
    assert (settings["augment"], settings["optimizer"]) == ("shift", "adamw")


def test_train_takes_names_folders_and_arrays(folder):
    assert bp.train("digits", bits=8, method="itq").n_features_in_ == 192
    hasher = bp.train(str(folder), bits=8, features="gist", **QUICK)
    assert hasher.classes_ == 2
    X, y = np.eye(6), ["a", "a", "a", "b", "b", "b"]
    assert bp.train(X, y, bits=8, **QUICK).settings_["backbone"] == "mlp:2048"


def test_a_set_by_name_leaves_its_queries_out():
    hasher = bp.train("digits", bits=8, method="itq")
    parts = bp.split(DIGITS)
    assert hasher.encode(parts.queries) == bp.train(parts, bits=8, method="itq").encode(
        parts.queries
    )
    assert bp.evaluate_split(hasher, parts).map > 0


def test_a_folder_is_trained_whole_and_a_named_set_by_its_protocol(folder):
    images = bp.open_images(folder)
    assert isinstance(workflows.training_images(DIGITS, "dsdh"), workflows.ImageSplit)
    assert len(workflows.training_images(images, "dsdh")) == 24
    assert workflows.training_images(images, "itq") is images
    assert isinstance(workflows.training_images(images, "itq", 2), workflows.ImageSplit)


def test_train_resumes_a_folder_and_refuses_another_run(tmp_path):
    parts = bp.split(DIGITS)
    first = bp.train(parts, bits=8, out=tmp_path, **QUICK)
    again = bp.train(parts, bits=8, out=tmp_path, **QUICK)
    assert again.encode(parts.queries) == first.encode(parts.queries)
    with pytest.raises(ValueError, match="other options or other data"):
        bp.train(parts, bits=9, out=tmp_path, **QUICK)


def test_a_model_file_records_its_training_set(tmp_path, folder):
    parts = bp.split(bp.open_images(folder), protocol=2, seed=5)
    bp.train(parts, bits=8, method="sdh", features="gist", out=tmp_path, progress=False)
    about = json.loads((tmp_path / "model.json").read_text())["about"]
    assert about == bp.load(tmp_path).about
    assert (about["protocol"], about["seed"], about["features"]) == (2, 5, "gist")
    assert about["split"] == parts.rows.fingerprint


def test_progress_notes_settings_and_time_on_a_cpu(folder, monkeypatch):
    notes = []
    images = bp.open_images(folder)
    given = {"bits": 8, "backbone": "small", "epochs": 1, "progress": False}
    bp.train(images, device="cpu", note=notes.append, **given)
    assert notes[0].startswith("recommended settings (override with --set): backbone=small")
    assert "mode=balanced" in notes[0]
    assert notes[1].startswith("training on this CPU takes about")
    assert len(notes) == 2


@pytest.mark.parametrize(("device", "lines"), [("auto", 3), ("cpu", 2)])
def test_a_long_training_suggests_features(device, lines, folder, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(workflows, "estimate_training", lambda *_: (7200.0, 30.0))
    notes = []
    given = {"bits": 8, "backbone": "small", "epochs": 1, "progress": False}
    bp.train(bp.open_images(folder), device=device, note=notes.append, **given)
    assert len(notes) == lines
    assert notes[1] == "training on this CPU takes about 2 hours"
    if lines == 3:
        assert "--features small is much faster" in notes[2]
        assert "30 seconds" in notes[2]


def test_estimate_follows_epochs_and_images(folder):
    from bitprint.methods.estimate import estimate_training
    from bitprint.methods.recipes import Items, settle

    images = bp.open_images(folder)
    hasher = settle(bp.create("dsdh", 8, backbone="small", epochs=10**6), Items.of(images))
    training, features = estimate_training(hasher, images)
    assert training > 1e5 * features > 0
    assert spell_time(3 * 86_400) == "3 days"


# ---- evaluate


def test_evaluate_split_with_wrong_arguments_shows_the_usage():
    parts, hasher = bp.split(DIGITS), bp.ITQ(bits=4)
    for wrong in ((parts, hasher), (hasher, DIGITS)):
        with pytest.raises(ValueError, match=r"bp\.evaluate_split\(hasher, bp\.split\(images\)\)"):
            bp.evaluate_split(*wrong)


def test_evaluate_split_equals_evaluate_by_hand():
    parts = bp.split(DIGITS)
    hasher = bp.train(parts, bits=16, method="itq")
    by_hand = bp.evaluate(
        hasher.encode(parts.queries),
        parts.queries.labels,
        hasher.encode(parts.database),
        parts.database.labels,
    )
    assert bp.evaluate_split(hasher, parts).map == by_hand.map
    assert bp.evaluate_split(hasher, parts, top=10, ties="optimistic").top == 10


@pytest.mark.parametrize("saved", [False, True])
def test_a_split_whose_queries_were_trained_on_is_refused(saved, tmp_path):
    parts = bp.split(DIGITS, seed=0)
    hasher = bp.train(parts.training, bits=8, method="itq", out=tmp_path)
    if saved:
        hasher = bp.load(tmp_path)
    assert bp.evaluate_split(hasher, parts).map > 0
    for other in (bp.split(DIGITS, seed=1), bp.split(DIGITS.subset(range(1000)))):
        with pytest.raises(ValueError, match="trained on other images of digits"):
            bp.evaluate_split(hasher, other)


def test_a_split_of_another_set_is_evaluated(tmp_path, folder):
    hasher = bp.train(bp.split(DIGITS), bits=8, method="itq", features="gist")
    assert 0 < bp.evaluate_split(hasher, bp.split(bp.open_images(folder))).map <= 1


def test_digits_by_name_and_by_path_are_trained_alike(tmp_path, monkeypatch):
    """A folder with the name of a built-in set is opened by its path."""
    monkeypatch.chdir(tmp_path)
    scenes = draw_shapes(20, size=24)
    for number, pixels in enumerate(scenes.pixels):
        place = tmp_path / "digits" / f"class {number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number}.png")
    by_name, by_path = bp.open_images("digits"), bp.open_images("./digits")
    assert (len(by_name), len(by_path)) == (1797, 20)
    for images in (by_name, by_path):
        hasher = bp.train(images, bits=8, features="gist", **QUICK)
        assert hasher.settings_["mode"] == "balanced"
    shutil.rmtree(tmp_path / "digits")
