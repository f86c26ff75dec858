"""Run the Python of the pages in `docs/`, and check links, pictures and the list of results."""

import re
from pathlib import Path

import pytest

from bitprint.methods import METHODS, DeepHasher

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    "page",
    [
        "add_a_method.md",
        "embeddings.md",
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


@pytest.mark.parametrize(
    "page",
    [path.name for path in sorted((DOCS / "methods").glob("*.md")) if path.name != "index.md"],
)
def test_example_of_a_method_page_runs(page, tmp_path, monkeypatch):
    text = (DOCS / "methods" / page).read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(blocks[0], names)
    methods = re.search(r"<!-- measured: (.+?) -->", text)[1].split()
    assert names["hasher"].name in methods
    chance = 0.35 if page == "dsrh.md" else 0.1
    assert names["report"].map > chance + 0.1


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
    margins = [row["margin"] for row in names["hasher"].history_]
    assert margins == pytest.approx([0.5 + 0.005 * (epoch + 1) for epoch in range(60)])
    assert METHODS.keys() >= {"sklsh", "growing-margin"}
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


def check_embeddings(names, printed):
    first, *recalls = (float(found) for found in re.findall(r"recall ([01]\.\d+)", printed))
    assert len(recalls) == 2
    assert first - 0.1 > recalls[0] > recalls[1]
    assert names["exported"].ntotal == 5000
    assert names["ids"].shape == (100, 10)
    assert names["codes"].shape == (3, 8)
    assert "SBLSH, 128 bits, on vectors of length 64, l2" in printed


EXPECTED = {
    "embeddings.md": check_embeddings,
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


def outside_the_site():
    return [*ROOT.glob("*.md"), *(ROOT / "results").rglob("*.md")]


@pytest.mark.parametrize("page", outside_the_site(), ids=lambda page: page.name)
def test_links_outside_the_site_lead_to_files(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            name, _, heading = target.partition("#")
            file = page.parent / name if name else page
            assert file.exists(), target
            if heading:
                titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
                anchors = [
                    re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
                ]
                assert heading in anchors, target


def test_results_readme_names_every_file():
    text = (ROOT / "results" / "README.md").read_text("utf-8")
    for file in (ROOT / "results").rglob("*.*"):
        if file.name != "README.md":
            name = file.relative_to(ROOT / "results").as_posix()
            assert name in text, f"{name} is not in results/README.md"


def test_results_readme_is_short():
    assert len((ROOT / "results" / "README.md").read_text("utf-8").splitlines()) < 150
