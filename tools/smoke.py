"""Test an installed package without its repository: `python smoke.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import bitprint as bp
from bitprint.data import load_digits, split_for


def main() -> None:
    """Train, save, load, search and run the command line; raise an AssertionError on failure."""
    package = Path(bp.__file__).parent
    assert "site-packages" in package.parts, f"not the installed package: {package}"
    for name in ("py.typed", "web/static/index.html", "experiments/measured.csv"):
        assert files("bitprint").joinpath(name).is_file(), f"{name} is missing from the package"
    digits = load_digits()
    split = split_for(digits, 1)
    pixels = digits.read(slice(None)).reshape(len(digits), -1) / 255
    hasher = bp.create("itq", bits=32).fit(pixels[split.training])
    with tempfile.TemporaryDirectory() as folder:
        hasher.save(f"{folder}/model")
        codes = bp.load(f"{folder}/model").encode(pixels[split.database])
        with bp.Index.create(f"{folder}/digits.bp", bits=32) as index:
            index.add(split.database, codes)
            assert (index.search(codes[:5], k=1).distances == 0).all()
        network = bp.create("dsdh", bits=12, backbone="small", epochs=1)
        network.fit(digits.subset(split.training[:200])).save(f"{folder}/network")
        assert len(bp.load(f"{folder}/network").encode(digits.subset(range(3)))) == 3
    command = [str(Path(sys.executable).with_name("bitprint")), "methods", "--json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert [row["name"] for row in listed] == bp.list_methods()
    print(f"bitprint {bp.__version__} works: {len(listed)} methods")


if __name__ == "__main__":
    main()
