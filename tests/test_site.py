"""The documentation site builds without a warning, its pictures are true, and its pages run."""

import importlib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import bitprint as bp

ROOT = Path(__file__).parents[1]
NEEDS = ("mkdocs", "material", "mkdocstrings_handlers.python")


def missing():
    try:
        return [name for name in NEEDS if find_spec(name) is None]
    except ModuleNotFoundError as error:
        return [error.name]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if missing():
        pytest.skip(f"{', '.join(missing())} is not installed")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_without_a_warning(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name == "index" else name
        assert (site / folder / "index.html").exists(), f"{page} is not on the site"


def test_options_of_a_method_come_from_its_class(site):
    text = (site / "methods" / "itq" / "index.html").read_text("utf-8")
    assert "How often both steps are taken" in text


def test_pages_name_nothing_from_elsewhere(site):
    """But Material's script fetches Mermaid for drawings; those pages say the same in words."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text("utf-8"))
        assert tags
        assert [tag for tag in tags if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)] == []


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("metric_pictures")


def test_the_pictures_of_the_metrics_are_there_and_can_be_drawn(pictures, tmp_path):
    drawn = {path.name for path in pictures.draw(tmp_path)}
    shown = re.findall(r"\(images/(metrics_\w+\.png)\)", (ROOT / "docs" / "metrics.md").read_text())
    assert drawn == set(shown) == {path.name for path in tmp_path.iterdir()}
    assert all((ROOT / "docs" / "images" / name).exists() for name in shown)


def test_the_orders_of_the_picture_are_what_the_closed_form_averages(pictures):
    orders = pictures.precisions_of_all_orders()
    assert len(orders) == 6 * 10  # two of four, and two of five
    assert np.isclose(np.mean(orders), bp.evaluate(*pictures.example()).map, atol=1e-12, rtol=0)
    for ties, bound in {"optimistic": max(orders), "pessimistic": min(orders)}.items():
        assert np.isclose(bp.evaluate(*pictures.example(), ties=ties).map, bound, atol=1e-12)


def run_page(name, folder, monkeypatch):
    text = (ROOT / "docs" / name).read_text("utf-8")
    monkeypatch.chdir(folder)
    names: dict = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), names)
    return names


def test_the_quickstart_runs(tmp_path, monkeypatch):
    names = run_page("quickstart.md", tmp_path, monkeypatch)
    assert names["report"].map > 0.9
    assert repr(names["codes"]) == "Codes(1612 x 32 bits)"
    assert names["ids"].shape == (185, 5)


def test_the_example_of_the_metrics_runs(tmp_path, monkeypatch):
    names = run_page("metrics.md", tmp_path, monkeypatch)
    orders = names["orders"]
    assert min(orders) < names["expected"] < max(orders)
    assert np.isclose(names["expected"], sum(orders) / len(orders), atol=1e-12, rtol=0)
    assert names["codes"] == names["packed"] == bp.Codes.from_signs(names["signs"])
    signs, labels, loops = names["signs"], names["labels"], []
    for query, wanted in zip(signs[:100], labels[:100], strict=True):
        near = (signs[100:] != query).sum(axis=1) <= 2
        relevant = np.array([bool(wanted & label) for label in labels[100:]])
        loops.append(relevant[near].mean() if near.any() else 0)
    assert np.isclose(names["report"].precision_radius2, np.mean(loops), atol=1e-12, rtol=0)


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == bp.__version__
    keys = re.findall(r"^([\w-]+):", citation, re.MULTILINE)
    assert {"cff-version", "message", "title", "authors"} <= set(keys)
