"""Fuzz one parser, guided by coverage if atheris is installed, otherwise by random mutations.

Example: `python -m fuzz index --seconds 120`
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from pathlib import Path

from fuzz.harness import OUTCOMES
from fuzz.running import FINDINGS, TARGETS, run

_MEMORY = Path("/dev/shm")  # a memory file system, because disk writes dominate the run time


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS, help="parser to fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="duration in seconds (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    options = parser.parse_args(arguments)
    context = multiprocessing.get_context("spawn")
    counts = context.Array("Q", len(OUTCOMES), lock=False)
    place = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="bitprint-fuzz-", dir=place) as scratch:
        process = context.Process(
            target=run, args=(options.target, options.seconds, options.seed, scratch, counts)
        )
        process.start()
        process.join()
    found = [f"{count:,} {name}" for name, count in zip(OUTCOMES, counts, strict=True)]
    verdict = f"1 finding, saved in {FINDINGS}" if process.exitcode else "no finding"
    print(f"{options.target}: {sum(counts):,} inputs, {', '.join(found)}; {verdict}")
    return 1 if process.exitcode else 0


if __name__ == "__main__":
    sys.exit(main())
