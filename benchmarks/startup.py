"""Measure the run time of short commands relative to `python -c "import numpy"`.

Commands run in turn, so that other load on the machine affects all of them. The last line is the
largest ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bitprint as bp

REPEATS = 11
CODES, BITS = 1_000, 64
LIMITS = {"index info": 0.6, "search INDEX CODES": 1.0}  # seconds on two idle cores


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        index, queries = make_index(Path(folder))
        bitprint = [sys.executable, "-m", "bitprint"]
        commands = {
            "import numpy": [sys.executable, "-c", "import numpy"],
            "--help": [*bitprint, "--help"],
            "index info": [*bitprint, "index", "info", index],
            "search INDEX CODES": [*bitprint, "search", index, queries],
        }
        seconds = measure(commands)
    numpy = seconds["import numpy"]
    print(f"median of {REPEATS} runs; the index has {CODES:,} codes of {BITS} bits")
    for name, each in seconds.items():
        limit = f"   (target: below {LIMITS[name]} s)" if name in LIMITS else ""
        print(f"  {name:20}{each:7.3f} s{each / numpy:8.1f} x import numpy{limit}")
    print(f"ratio {max(seconds.values()) / numpy:.1f}")


def make_index(folder: Path) -> tuple[str, str]:
    """Create a small index of random codes, and a file with one of them."""
    signs = np.random.default_rng(0).choice([-1, 1], (CODES, BITS))
    codes = bp.Codes.from_signs(signs)
    with bp.Index.create(folder / "small.bp", bits=BITS) as index:
        index.add(range(CODES), codes)
    codes[:1].save(folder / "query.codes")
    return str(folder / "small.bp"), str(folder / "query.codes")


def measure(commands: dict[str, list[str]]) -> dict[str, float]:
    """Return the median time of each command, without the first round, which fills caches."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(1 + REPEATS):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


if __name__ == "__main__":
    main()
