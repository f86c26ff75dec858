"""The README's Python is run, with less training."""

import re
from pathlib import Path

import typer

import bitprint as bp

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    code = "\n".join(blocks).replace("epochs=30", "epochs=1").replace("progress=True", "")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    assert names["ids"].shape == (185, 10)
    with bp.Index.open("digits.bp") as index:
        assert len(index) == 1612


def test_every_command_of_the_readme_exists():
    from bitprint.cli import app

    known = set(typer.main.get_command(app).commands)
    used = set(re.findall(r"^bitprint (\w+)", README.read_text(), re.MULTILINE))
    assert used
    assert used <= known
