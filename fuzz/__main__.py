"""`python -m fuzz TARGET --seconds N`: coverage-guided with atheris, or mutations without it."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from pathlib import Path

from fuzz.harness import OUTCOMES
from fuzz.running import FINDINGS, TARGETS, run

_MEMORY = Path("/dev/shm")  # files there cost no disk, which is what most inputs wait for


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn at random")
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
    verdict = f"a finding, kept in {FINDINGS}" if process.exitcode else "no finding"
    print(f"{options.target}: {sum(counts):,} inputs, {', '.join(found)}; {verdict}")
    return 1 if process.exitcode else 0


if __name__ == "__main__":
    sys.exit(main())
