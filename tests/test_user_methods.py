"""User-defined methods and backbones, built-in methods, and public class names."""

import ast
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import bitprint as bp
from bitprint.cli import app
from bitprint.methods import FeatureHasher, method
from bitprint.methods._registry import GROUPS
from bitprint.nets import Trunk, create_trunk, list_backbones
from bitprint.nets.small import Small
from bitprint.utils.discovery import decorated_classes

FEATURES = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
PIXELS = np.random.default_rng(1).integers(0, 256, (12, 8, 8, 3), np.uint8)


def define(**attributes):
    """Return a class with these attributes."""

    class Columns(FeatureHasher):
        def __init__(self, bits, *, first=0):
            self.bits = bits
            self.first = first

        def _fit(self, features, labels):
            self.mean_ = features.mean(axis=0)

        def _project(self, features):
            return (features - self.mean_)[:, self.first : self.first + self.bits]

    for name, value in attributes.items():
        setattr(Columns, name, value)
    return Columns


def define_network():
    class MeanColour(Trunk):
        out_features, preprocess = 3, torch.nn.Identity()

        def forward(self, inputs):
            return inputs.float().mean(dim=(1, 2)) / 255

    return MeanColour


# ---- methods


def test_a_registered_method_is_created_and_loaded(tmp_path):
    cls = define(name="columns", supervision="none")
    assert bp.register_method(cls) is cls
    assert bp.list_methods()[-1] == "columns"
    hasher = bp.create("columns", bits=3, first=2).fit(FEATURES)
    assert type(hasher) is cls
    hasher.save(tmp_path)
    loaded = bp.load(tmp_path)
    assert loaded.first == 2
    assert loaded.encode(FEATURES) == hasher.encode(FEATURES)


def test_a_registered_method_is_in_the_list_of_the_command_line():
    bp.register_method(define(name="columns", supervision="none"))
    done = CliRunner().invoke(app, ["methods", "--json"])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)[-1]
    assert (row["name"], row["learns_from"], row["supervision"]) == ("columns", "features", "none")
    assert set(row["our_map_cifar10"].values()) == {None}


def test_a_registered_method_of_images_trains():
    @bp.register_method
    class Plain(bp.DPSH):
        name = "plain"

    hasher = bp.create("plain", bits=4, epochs=1, batch_size=8).fit(FEATURES, np.arange(20) % 2)
    assert type(hasher) is Plain
    assert hasher.supervision == "labels"


def test_a_method_defined_again_replaces_the_first():
    first = bp.register_method(define(name="columns", supervision="none"))
    second = bp.register_method(define(name="columns", supervision="none"))
    assert first is not second
    assert method("columns") is second


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"supervision": "none"}, "Columns needs a name without spaces or commas.*got None"),
        ({"name": "", "supervision": "none"}, "needs a name .*got ''"),
        ({"name": "a b", "supervision": "none"}, "needs a name .*got 'a b'"),
        ({"name": "a,b", "supervision": "none"}, "needs a name .*got 'a,b'"),
        ({"name": "a"}, "Columns needs supervision = 'none' or supervision = 'labels', got None"),
        ({"name": "a", "supervision": "some"}, "needs supervision .*got 'some'"),
        (
            {"name": "itq", "supervision": "none"},
            r"Columns needs another name: 'itq' is registered for bitprint\.methods\.itq\.ITQ",
        ),
    ],
)
def test_a_method_that_cannot_be_registered_is_refused(attributes, message):
    before = bp.list_methods()
    with pytest.raises(ValueError, match=message) as error:
        bp.register_method(define(**attributes))
    assert "\n" not in str(error.value)
    assert bp.list_methods() == before


@pytest.mark.parametrize("thing", [dict, "itq", bp.Codes])
def test_a_thing_that_is_no_method_is_refused(thing):
    with pytest.raises(ValueError, match="a method must be a subclass of FeatureHasher"):
        bp.register_method(thing)


# ---- built-in methods


def test_decorated_classes_are_the_built_in_methods():
    found = decorated_classes(Path(bp.__file__).parent / "methods", "register_method")
    classes = [method(name) for name in bp.list_methods()]
    assert found == {cls.__name__: cls.__module__.rpartition(".")[2] for cls in classes}


def test_built_in_methods_are_sorted_by_group_and_year():
    classes = [method(name) for name in bp.list_methods()]
    places = [(GROUPS.index(cls.group), cls.year, cls.title) for cls in classes]
    assert places == sorted(places)
    assert {cls.group for cls in classes} == set(GROUPS)
    assert method("sblsh").title == "Super-bit LSH"
    assert method("dsdh").title == "DSDH"


def test_register_method_sets_missing_title_group_and_year():
    cls = bp.register_method(define(name="columns", supervision="labels", reference="A, B 1999"))
    assert (cls.title, cls.group, cls.year) == ("Columns", "supervised", 1999)
    cls = bp.register_method(define(name="columns", supervision="none"))
    assert (cls.title, cls.group, cls.year) == ("Columns", "unsupervised", None)

    @bp.register_method
    class Plain(bp.DPSH):
        name = "plain"

    assert (Plain.title, Plain.group, Plain.year) == ("Plain", "deep", 2016)


METHOD = """
from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method


@register_method
class Columns(FeatureHasher):
    name = "columns"
    supervision = "none"
    reference = "A and B, 2001"

    def __init__(self, bits):
        self.bits = bits

    def _fit(self, features, labels):
        pass

    def _project(self, features):
        return features[:, : self.bits]
"""
USE = """
import sys, bitprint as bp
assert "Columns" in bp.__all__ and "torch" not in sys.modules
assert "columns" in bp.list_methods()
print(bp.Columns is type(bp.create("columns", bits=2).fit([[1, 2], [3, 4]])))
"""


def test_a_new_file_in_the_package_registers_its_method(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "published")
    shutil.copytree(Path(bp.__file__).parent, tmp_path / "bitprint", ignore=ignored)
    (tmp_path / "bitprint" / "methods" / "columns.py").write_text(METHOD)
    run = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(tmp_path)}}
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, **run)
    assert done.stdout == "True\n", done.stderr


# ---- backbones


@pytest.mark.filterwarnings("ignore:.*gives the same code")
def test_a_registered_backbone_trains_and_is_loaded(tmp_path):
    cls = define_network()
    assert bp.register_backbone("mean-colour")(cls) is cls
    assert "mean-colour" in list_backbones()
    assert type(create_trunk("mean-colour", input_shape=(8, 8, 3))) is cls
    images = bp.ImageSet(PIXELS, labels=np.arange(12) % 2)
    options = {"backbone": "mean-colour", "epochs": 1, "batch_size": 4}
    hasher = bp.create("dpsh", bits=4, **options).fit(images)
    hasher.save(tmp_path)
    assert bp.load(tmp_path).encode(images) == hasher.encode(images)


def test_a_backbone_defined_again_replaces_the_first():
    bp.register_backbone("mean-colour")(define_network())
    second = bp.register_backbone("mean-colour")(define_network())
    assert type(create_trunk("mean-colour", input_shape=(8, 8, 3))) is second
    assert bp.register_backbone("mean-colour")(second) is second


@pytest.mark.parametrize("name", ["", "a b", "a,b", "hub:a", None, 3])
def test_a_name_that_is_no_backbone_name_is_refused(name):
    with pytest.raises(ValueError, match="a backbone needs a name without spaces, commas or col"):
        bp.register_backbone(name)


def test_a_backbone_that_cannot_be_registered_is_refused():
    before = list_backbones()
    with pytest.raises(ValueError, match="a backbone must be a subclass of bitprint"):
        bp.register_backbone("identity")(torch.nn.Identity)
    with pytest.raises(ValueError, match=r"another name: 'small' is bitprint\.nets\.small\.Small"):
        bp.register_backbone("small")(define_network())
    with pytest.raises(ValueError, match="Small is already registered as 'small'"):
        bp.register_backbone("smaller")(Small)
    assert list_backbones() == before
    assert Small.name == "small"


# ---- public names


def test_every_method_is_a_public_class():
    for name in bp.list_methods():
        cls = method(name)
        assert getattr(bp, cls.__name__) is cls, name
        assert cls.__name__ in bp.__all__
        assert cls.__name__ in dir(bp)
    assert bp.CNNHPlus.name == "cnnh+"
    assert bp.DSDHA.name == "dsdh-a"


def test_names_for_type_checkers_are_public():
    source = ast.parse(Path(bp.__file__).read_text("utf-8"))
    (block,) = (node for node in source.body if isinstance(node, ast.If))
    named = {(each.module, alias.name) for each in block.body for alias in each.names}
    assert {name for _, name in named} <= set(bp.__all__)
    assert all(getattr(import_module(home), name) is getattr(bp, name) for home, name in named)


def test_every_public_name_can_be_used():
    assert len(set(bp.__all__)) == len(bp.__all__)
    assert all(getattr(bp, name) is not None for name in bp.__all__)
    with pytest.raises(AttributeError, match="module 'bitprint' has no attribute 'DSDHX'"):
        bp.DSDHX  # noqa: B018


def test_import_of_bitprint_imports_nothing_slow():
    code = "import sys, bitprint; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'bitprint'" in done.stdout
    for slow in ("torch", "sklearn", "numpy", "scipy"):
        assert f"'{slow}'" not in done.stdout
