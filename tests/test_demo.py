from pathlib import Path

import pytest
from rich.console import Console

import bitprint as bp
from bitprint import demo


def test_demo_writes_plots_hits_and_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "BITS", (12, 24))
    shorter = {
        title: (name, options | ({"epochs": 3} if options else {}))
        for title, (name, options) in demo.METHODS.items()
    }
    monkeypatch.setattr(demo, "METHODS", shorter)
    console = Console(record=True, width=120, file=(tmp_path / "log").open("w"))
    demo.run_demo(tmp_path / "out", console)
    text = console.export_text()
    for title in shorter:
        assert text.count(f"{title} ") >= 2
    assert "nearest (Hamming distance)" in text
    written = {path.name for path in Path(tmp_path / "out").rglob("*.png")}
    assert {"neighbours.png", "precision_radius2.png", "precision_recall_12.png"} <= written
    assert bp.load(tmp_path / "out" / "model").bits == 24


@pytest.mark.parametrize("title", list(demo.METHODS))
def test_every_method_of_the_demo_exists(title):
    name, options = demo.METHODS[title]
    assert bp.create(name, 12, **options).bits == 12
