"""Inject faults for a given time and check for data loss; the exit code is 1 on a violation.

Example: `python -m soak --minutes 10 --seed 7`
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soak.bytes import ByteFaults
from soak.connections import ConnectionFaults
from soak.disk import DiskFaults
from soak.encoding import EncodingFaults
from soak.indexing import CompactionFaults, IndexingFaults
from soak.power import PowerFaults
from soak.rounds import FaultKind
from soak.serving import ServingFaults
from soak.training import TrainingFaults

_ATTEMPTS = 20  # maximum rounds of a kind that has checked nothing
_PATIENCE = 600.0  # seconds after the deadline until a soak that hangs is aborted

KINDS: list[type[FaultKind]] = [
    TrainingFaults,
    EncodingFaults,
    IndexingFaults,
    CompactionFaults,
    ServingFaults,
    ByteFaults,
    DiskFaults,
    PowerFaults,
    ConnectionFaults,
]


@dataclass
class Tally:
    """Totals over the rounds of one kind of fault."""

    kind: type[FaultKind]
    seconds: float = 0.0
    rounds: int = 0
    faults: int = 0
    checked: int = 0
    unnoticed: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def has_result(self) -> bool:
        """Whether a fault hit data; some come too early or too late, depending on the machine."""
        is_tested = self.faults > 0 and self.checked > 0
        return is_tested or bool(self.violations) or self.rounds >= _ATTEMPTS


def soak(kinds: list[type[FaultKind]], seconds: float, seed: int, folder: Path) -> list[Tally]:
    """Inject faults of all kinds, in equal shares of time, until each has a result."""
    tallies = [Tally(kind) for kind in kinds]
    running: dict[str, FaultKind] = {}
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline or not all(tally.has_result for tally in tallies):
            tally = min(tallies, key=lambda tally: (tally.has_result, tally.seconds))
            started = time.monotonic()
            _run_round(tally, running, seed, folder)
            tally.seconds += time.monotonic() - started
    finally:
        for tally in tallies:
            _close(tally, running)
    return tallies


def _run_round(tally: Tally, running: dict[str, FaultKind], seed: int, folder: Path) -> None:
    """Run one round; after a violation, the kind restarts in a new folder.

    The random draws of a round depend only on the seed, the kind and the number of the round.
    """
    name = tally.kind.name
    tally.rounds += 1
    rng = random.Random(f"{seed} {name} {tally.rounds}")
    try:
        if name not in running:
            place = folder / f"{name}-{tally.rounds}"
            place.mkdir(parents=True)
            running[name] = tally.kind(place, rng)
        running[name].rng = rng
        done = running[name].inject()
    except Exception as error:  # every error is a violation
        _record(tally, error)
        tally.faults += 1
        _close(tally, running)
        return
    tally.faults += done.faults
    tally.checked += done.checked
    tally.unnoticed.update(done.unnoticed)


def _close(tally: Tally, running: dict[str, FaultKind]) -> None:
    """Stop a kind of fault; an error while stopping is a violation."""
    try:
        if tally.kind.name in running:
            running.pop(tally.kind.name).close()
    except Exception as error:
        _record(tally, error)


def _record(tally: Tally, error: Exception) -> None:
    traceback.print_exc()
    tally.violations.append(f"round {tally.rounds}: {type(error).__name__}: {error}")


def table(tallies: list[Tally]) -> str:
    """Return the totals as a text table, one kind per line."""
    rows = [["kind", "seconds", "rounds", "faults", "checked", "unnoticed", "violations"]]
    for tally in tallies:
        unnoticed, violations = tally.unnoticed.total(), len(tally.violations)
        counts = (tally.rounds, tally.faults, tally.checked, unnoticed, violations)
        rows.append([tally.kind.name, f"{tally.seconds:.0f}", *(f"{n:,}" for n in counts)])
    return "\n".join(
        f"{name:<12}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parse(arguments)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"injecting faults for {options.minutes:g} minutes with seed {seed}", flush=True)
    kinds = [kind for kind in KINDS if options.only is None or kind.name in options.only]
    for kind in list(kinds):
        if missing := kind.missing():
            print(f"skipping {kind.name}: {', '.join(missing)} is not installed")
            kinds.remove(kind)
    seconds = 60 * options.minutes
    faulthandler.dump_traceback_later(seconds + _PATIENCE, exit=True)
    with tempfile.TemporaryDirectory(prefix="bitprint-soak-") as folder:
        tallies = soak(kinds, seconds, seed, Path(folder))
    faulthandler.cancel_dump_traceback_later()
    return report(tallies, seed)


def report(tallies: list[Tally], seed: int) -> int:
    """Print the results and the verdict; return the exit code."""
    print(table(tallies))
    for tally in tallies:
        for name, count in sorted((+tally.unnoticed).items()):
            print(f"unnoticed because there is no checksum: {count:,} in {name}")
    violations = [(tally.kind.name, text) for tally in tallies for text in tally.violations]
    for name, text in violations:
        print(f"violation in {name}, {text}")
        print(f"  reproduce with: python -m soak --seed {seed} --only {name}")
    faults = sum(tally.faults for tally in tallies)
    verdict = f"{len(violations)} violations" if violations else "nothing acknowledged was lost"
    print(f"{faults:,} faults injected with seed {seed}; {verdict}")
    return 1 if violations else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="total time (default: 10)")
    parser.add_argument("--seed", type=int, help="random seed (default: drawn and printed)")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", nargs="+", choices=names, help="inject only these faults")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
