"""Run the README's Python with less training, and check its commands, table and links."""

import csv
import re
import shutil
from pathlib import Path

import pytest
import typer
from PIL import Image

from bitprint.data import draw_shapes
from bitprint.experiments.published import published_map

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def python_block(page):
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return block


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    code = python_block(README).replace("bits=48)", "bits=48, epochs=1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Pictures").mkdir()
    for number, pixels in enumerate(draw_shapes(5).pixels):
        Image.fromarray(pixels).save(tmp_path / "Pictures" / f"{number}.png")
    shutil.copy(tmp_path / "Pictures" / "3.png", tmp_path / "cat.jpg")
    names: dict = {}
    exec(code, names)
    assert names["hasher"].settings_["mode"] == "balanced"
    printed = capsys.readouterr().out
    assert "MAP" in printed
    assert len(names["photos"].index) == 5
    assert "3.png" in printed
    names["photos"].close()


def test_first_page_of_the_site_has_the_same_python():
    assert python_block(ROOT / "docs" / "index.md") == python_block(README)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/quickstart.md"])
def test_commands_of_a_page_exist(page):
    from bitprint.cli import app

    known = set(typer.main.get_command(app).commands)
    used = set(re.findall(r"^bitprint (\w+)", (ROOT / page).read_text("utf-8"), re.MULTILINE))
    assert used
    assert used <= known


def test_table_of_the_readme_matches_the_results():
    with (ROOT / "results" / "recommended_cifar10.csv").open(newline="") as file:
        maps = {(row["variant"], row["bits"]): float(row["map"]) for row in csv.DictReader(file)}
    rows = re.findall(r"^\| (D\w+)(.*) \| .+ \| (\.\d+) \| (\.\d+) \|$", README.read_text(), re.M)
    assert len(rows) == 4
    for name, note, *figures in rows:
        for bits, figure in zip((12, 48), figures, strict=True):
            method = name.lower()
            if note:
                value = published_map("cifar10", 1, method, bits)
            else:
                value = maps[f"{method} recommended", str(bits)]
            assert float(figure) == pytest.approx(value, abs=0.0005 + 1e-9)
