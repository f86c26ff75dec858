"""The pages in `docs/` run from top to bottom."""

import re
from pathlib import Path

import pytest

from bitprint.methods import METHODS, DeepHasher

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    "page",
    [
        "add_a_method.md",
        "own_photos.md",
        "pytorch.md",
        "reproduce.md",
        "scale.md",
        "scikit_learn.md",
    ],
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec("\n".join(blocks), names)
    EXPECTED[page](names, capsys.readouterr().out)


def check_own_photos(names, printed):
    assert "Added(new=61, unchanged=0, skipped=[], left_out=[], relabelled=0)" in printed
    first, *_ = printed.splitlines()
    assert first == f"0 {Path('pictures/smaller.png').resolve()}"
    assert Path(names["hits"][0].path).name in ("scene-07.jpg", "smaller.png")
    assert any(
        {"scene-07.jpg", "smaller.png"} <= {Path(i).name for i in group.ids}
        for group in names["groups"]
    )


def check_pytorch(names, printed):
    by_hand, by_fit = (float(found) for found in re.findall(r"MAP (0\.\d+)", printed))
    assert by_hand > 0.7
    assert by_fit > 0.7
    assert re.findall(r"^(True|False)$", printed, re.MULTILINE) == ["True", "True"]
    assert names["ids"].shape == (200, 5)


def test_criteria_of_the_pytorch_page_name_every_deep_method():
    page = (DOCS / "pytorch.md").read_text().partition("### What each method needs")[2]
    named = re.findall(r"`([\w+-]+)`", " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)))
    deep = [name for name, cls in METHODS.items() if issubclass(cls, DeepHasher)]
    assert sorted(named) == sorted([*deep, "vdsh"])


def check_reproduce(names, printed):
    maps = {name: report.map for name, report in names["reports"].items()}
    assert maps["dsdh"] > maps["itq"] > 0.3
    assert len(list(Path("plots").iterdir())) > 2


def check_add_a_method(names, printed):
    assert names["distances"][0] < names["distances"][-1]
    assert f"MAP {names['learned']:.3f}" in printed
    sharpness = [row["beta"] for row in names["hasher"].history_]
    assert sharpness == pytest.approx([1 + 0.1 * (epoch + 1) for epoch in range(60)])
    assert METHODS.keys() >= {"sklsh", "hashnet"}
    page = (DOCS / "add_a_method.md").read_text()
    for path in re.findall(r"`((?:src|tests|tools)/[^`]+)`", page):
        assert "NAME" in path or (DOCS.parent / path).exists(), path


def check_scale(names, printed):
    assert "3000 codes copied" in printed
    distances = names["codes"][:5].hamming(names["codes"])
    assert names["merged"].tolist() == distances.argsort(axis=1, kind="stable")[:, :10].tolist()


def check_scikit_learn(names, printed):
    score, options, pipeline_score = printed.splitlines()
    assert float(score) > 0.7
    assert options == "{'sdh__anchors': 200}"
    assert float(pipeline_score) > 0.7
    assert names["signs"].tolist() == names["hasher"].encode(names["X"]).signs().tolist()
    assert names["codes"].bits == 16


EXPECTED = {
    "own_photos.md": check_own_photos,
    "pytorch.md": check_pytorch,
    "reproduce.md": check_reproduce,
    "add_a_method.md": check_add_a_method,
    "scale.md": check_scale,
    "scikit_learn.md": check_scikit_learn,
}


def test_every_picture_of_the_pages_exists():
    for page in DOCS.glob("*.md"):
        for name in re.findall(r"\]\((images/[^)]+)\)", page.read_text()):
            assert (DOCS / name).exists(), f"{page.name}: {name}"
