"""`python -m fuzz TARGET --seconds N`: coverage-guided with atheris, or mutations without it."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile

from fuzz.running import TARGETS, run


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn at random")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bitprint-fuzz-") as scratch:
        process = multiprocessing.get_context("spawn").Process(
            target=run, args=(options.target, options.seconds, options.seed, scratch)
        )
        process.start()
        process.join()
    print(f"{options.target}: {'a finding, see above' if process.exitcode else 'no finding'}")
    return 1 if process.exitcode else 0


if __name__ == "__main__":
    sys.exit(main())
