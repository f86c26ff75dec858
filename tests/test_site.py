"""Tests of the documentation site: its build, its equations, its figures and its examples."""

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
from bitprint.methods import ITQ, METHODS, DeepHasher

ROOT = Path(__file__).parents[1]
NEEDS = ("mkdocs", "material", "mkdocstrings_handlers.python", "latex2mathml")
PARTS = ["What it minimizes", "When to use it", "Example", "Measured", "Options"]


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


def test_site_has_every_page(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name == "index" else name
        assert (site / folder / "index.html").exists(), f"{page} is not on the site"


def test_options_of_a_method_come_from_its_class(site):
    text = (site / "methods" / "itq" / "index.html").read_text("utf-8")
    assert "rotation" in ITQ.__doc__
    sentence = re.search(r"iterations : int\n +(\w+ \w+ \w+)", ITQ.__doc__)[1]
    assert sentence in text.partition('<h2 id="options">')[2]


def test_pages_load_nothing_from_other_sites(site):
    """Except that Material's script loads Mermaid for drawings, whose content is also in text."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text("utf-8"))
        assert tags
        assert [tag for tag in tags if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)] == []


def test_equations_become_mathml(site):
    for page in [*(ROOT / "docs" / "methods").glob("*.md"), ROOT / "docs" / "how_dsdh_works.md"]:
        blocks = page.read_text("utf-8").count("```math\n")
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name == "index" else name
        text = (site / folder / "index.html").read_text("utf-8")
        assert text.count('display="block"') == blocks, page
        assert "<math" in text
        assert "arithmatex" not in text
        assert "\\frac" not in text


def test_navigation_lists_every_method_by_group(site, tool):
    text = (site / "methods" / "index.html").read_text("utf-8")
    pages = tool("method_list").method_pages()
    places = [text.index(f'href="{page.path.stem}/" class="md-nav__link"') for page in pages]
    assert places == sorted(places)
    assert [text.index(f"{group}\n") for group in tool("method_list").GROUPS]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module


def test_unknown_latex_is_rejected(tool):
    pytest.importorskip("latex2mathml")
    pytest.importorskip("mkdocs")
    hooks = tool("mkdocs_hooks")
    assert "<mi>sgn</mi>" in hooks.to_mathml(r"\operatorname{sgn}(x)")
    for wrong in (r"\nonsense{x}", r"\begin{aligned} a & b \end{aligned}", r"\left( x"):
        with pytest.raises(ValueError, match="cannot convert"):
            hooks.to_mathml(wrong)


def test_method_pages_have_the_same_parts(tool):
    pages = tool("method_list").method_pages()
    assert len(pages) > 25
    for page in pages:
        text = page.path.read_text("utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS, page.path
        assert "```math\n" in text.partition("## When to use it")[0], page.path
        classes = {f"{METHODS[name].__module__}.{METHODS[name].__name__}" for name in page.methods}
        assert set(re.findall(r"^::: (\S+)$", text, re.MULTILINE)) == classes, page.path


def test_method_page_is_in_the_group_of_its_class(tool):
    for page in tool("method_list").method_pages():
        for name in page.methods:
            deep = issubclass(METHODS[name], DeepHasher)
            labels = METHODS[name].supervision == "labels"
            groups = {(True, True): ["Deep"], (False, True): ["Supervised, on features"]}
            without = ["Data-independent", "Unsupervised"]
            assert page.group in groups.get((deep, labels), without), name


@pytest.mark.parametrize(
    "text",
    [
        "# ITQ\n\nRotations.\n<!-- measured: itq -->\n<!-- end -->",
        "---\ngroup: Other\n---\n\n# ITQ\n\nRotations.\n<!-- measured: itq -->\n<!-- end -->",
        "---\ngroup: Deep\n---\n\n# ITQ\n\nRotations.\n",
    ],
)
def test_incomplete_method_page_is_rejected(tool, tmp_path, text):
    path = tmp_path / "itq.md"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"itq\.md: (must begin with|has no)"):
        tool("method_list").read_page(path)


def test_quoted_code_is_a_function_without_docstring(tool):
    quote = tool("quoted_code").quote
    source = (
        'class A:\n    @property\n    def b(self):\n        """Two\n        lines."""\n'
        "        # why\n        return 1\n"
    )
    assert quote(source, "A.b") == "def b(self):\n    # why\n    return 1"
    with pytest.raises(ValueError, match=r"A\.c: not in the source"):
        quote(source, "A.c")


def test_dsdh_page_quotes_the_source(tool):
    page = (ROOT / "docs" / "how_dsdh_works.md").read_text("utf-8")
    assert page.count("<!-- code: ") >= 6
    assert tool("quoted_code").refresh(page) == page
    stale = page.replace("gram.diagonal()", "gram.diagonal(0)")
    assert stale != page
    assert tool("quoted_code").refresh(stale) == page


def test_drawing_of_dsdh_can_be_drawn(tool, tmp_path):
    drawing = tool("dsdh_drawing")
    assert drawing.draw(tmp_path / "drawing.png").stat().st_size > 10_000
    assert f"(images/{drawing.PATH.name})" in (ROOT / "docs" / "how_dsdh_works.md").read_text()
    assert drawing.PATH.exists()


@pytest.fixture
def pictures(tool):
    return tool("metric_pictures")


def test_figures_of_the_metrics_exist_and_can_be_drawn(pictures, tmp_path):
    drawn = {path.name for path in pictures.draw(tmp_path)}
    shown = re.findall(r"\(images/(metrics_\w+\.png)\)", (ROOT / "docs" / "metrics.md").read_text())
    assert drawn == set(shown) == {path.name for path in tmp_path.iterdir()}
    assert all((ROOT / "docs" / "images" / name).exists() for name in shown)


def test_closed_form_is_the_mean_over_all_orders(pictures):
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
