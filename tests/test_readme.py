"""The README's Python is run, with less training."""

import re
import shutil
from pathlib import Path

import typer
from PIL import Image

from bitprint.data import draw_shapes

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    code = blocks[0].replace("bits=48)", "bits=48, epochs=1)")
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


def test_every_command_of_the_readme_exists():
    from bitprint.cli import app

    known = set(typer.main.get_command(app).commands)
    used = set(re.findall(r"^bitprint (\w+)", README.read_text(), re.MULTILINE))
    assert used
    assert used <= known
