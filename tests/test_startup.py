"""Fast commands do not import slow packages; each command runs in a new process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import bitprint as bp
from bitprint.data import draw_shapes
from bitprint.photos import Photos
from bitprint.utils.lazy import import_on_use

SLOW = {"torch", "sklearn", "scipy", "numba", "matplotlib", "pandas", "fastapi", "ray"}

REPORT = """
import json, sys
from bitprint.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(*arguments, modules=False):
    """Run a command that must succeed; return the packages, or modules, that it imported."""
    # Measuring coverage in child processes would import more modules.
    environment = {name: value for name, value in os.environ.items() if "COV" not in name}
    command = [sys.executable, "-c", REPORT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stderr.splitlines()[-1])
    return set(names) if modules else {name.partition(".")[0] for name in names}


@pytest.fixture
def codes_index(tmp_path):
    """An index of codes, and a file with two of them."""
    codes = bp.Codes.from_signs(np.random.default_rng(0).choice([-1, 1], (200, 64)))
    with bp.Index.create(tmp_path / "codes.bp", bits=64) as index:
        index.add(range(200), codes)
    codes[:2].save(tmp_path / "queries.codes")
    return tmp_path / "codes.bp", tmp_path / "queries.codes"


@pytest.fixture
def photos_index(tmp_path):
    """An index of images with a model that was learned."""
    (tmp_path / "album").mkdir()
    for number, pixels in enumerate(draw_shapes(4, size=16).pixels):
        Image.fromarray(pixels).save(tmp_path / "album" / f"{number}.png")
    bp.create("itq", bits=16).fit(draw_shapes(24, size=16)).save(
        tmp_path / "run", features="pixels"
    )
    from bitprint.photos.encoder import Encoder

    with Photos.create(tmp_path / "photos.bp", Encoder.load(tmp_path / "run")) as photos:
        photos.add(tmp_path / "album")
    return tmp_path / "photos.bp"


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["index"],
        ["index", "add"],
        ["vectors", "search"],
        ["search"],
        ["train"],
        ["reproduce"],
    ],
)
def test_help_of_a_command_imports_nothing_slow(command):
    assert imported(*command, "--help") & {*SLOW, "numpy", "PIL"} == set()


def test_bitprint_alone_imports_nothing_slow():
    assert imported() & {*SLOW, "numpy", "PIL"} == set()


def test_index_info_on_codes_imports_nothing_slow(codes_index):
    assert imported("index", "info", codes_index[0]) & SLOW == set()


def test_index_info_on_photos_imports_nothing_slow(photos_index):
    assert imported("index", "info", photos_index) & SLOW == set()


def test_search_by_codes_imports_nothing_slow(codes_index):
    assert imported("search", *codes_index) & SLOW == set()


def test_vector_search_imports_nothing_slow(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(200, 16))
    np.save(tmp_path / "queries.npy", vectors[:2])
    with bp.VectorIndex.learn(tmp_path / "docs.bp", vectors, bits=16) as index:
        index.add(vectors)
    for options in ([], ["--hamming"], ["--rescore", "0"]):
        found = imported(
            "vectors", "search", tmp_path / "docs.bp", tmp_path / "queries.npy", *options
        )
        assert found & {*SLOW, "pyarrow"} == set()


def test_index_add_of_photos_imports_no_compiler_or_table_library(tmp_path):
    """The first image is encoded before torch's compiler, pandas or scipy.stats are needed."""
    Image.fromarray(draw_shapes(1, size=16).pixels[0]).save(tmp_path / "a.png")
    found = imported("index", "add", tmp_path / "photos.bp", tmp_path / "a.png", modules=True)
    assert "bitprint.photos.encoder" in found
    slow = {"torch._dynamo", "sympy", "scipy.stats._stats_py", "pandas.core", "sklearn.svm"}
    assert found & slow == set()


def test_postponed_module_is_imported_on_first_use(monkeypatch):
    import_on_use("xml.dom.pulldom", "no_such_module", "json")
    assert "no_such_module" not in sys.modules
    assert sys.modules["json"] is json
    postponed = sys.modules["xml.dom.pulldom"]
    assert not hasattr(postponed, "__file__")
    from xml.dom.pulldom import START_ELEMENT

    assert START_ELEMENT == "START_ELEMENT"
    assert postponed.START_ELEMENT == "START_ELEMENT"
    assert sys.modules["xml.dom.pulldom"].__file__
    with pytest.raises(AttributeError, match="nothing"):
        postponed.nothing  # noqa: B018
