"""`python -m soak --minutes 10 --seed 0`: injects faults until the time is up; 1 on a violation."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from soak.bytes import Bytes
from soak.connections import Connections
from soak.disk import Disk
from soak.encoding import Encoding
from soak.indexing import Compaction, Indexing
from soak.rounds import Kind
from soak.serving import Serving
from soak.training import Training

KINDS: list[type[Kind]] = [
    Training,
    Encoding,
    Indexing,
    Compaction,
    Serving,
    Bytes,
    Disk,
    Connections,
]


@dataclass
class Tally:
    """What the rounds of one kind have come to."""

    kind: type[Kind]
    seconds: float = 0.0
    rounds: int = 0
    faults: int = 0
    checked: int = 0
    unnoticed: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def soak(kinds: list[type[Kind]], seconds: float, seed: int, folder: Path) -> list[Tally]:
    """Inject faults of all kinds in turn, each for its share of the time and at least once."""
    tallies = [Tally(kind) for kind in kinds]
    running: dict[str, Kind] = {}
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline or any(not tally.rounds for tally in tallies):
            tally = min(tallies, key=lambda tally: (tally.rounds > 0, tally.seconds))
            started = time.monotonic()
            _strike(tally, running, seed, folder)
            tally.seconds += time.monotonic() - started
    finally:
        for kind in running.values():
            kind.close()
    return tallies


def _strike(tally: Tally, running: dict[str, Kind], seed: int, folder: Path) -> None:
    """Run one round; after a violation the kind starts anew in another folder."""
    name = tally.kind.name
    tally.rounds += 1
    try:
        if name not in running:
            place = folder / f"{name}-{tally.rounds}"
            place.mkdir(parents=True)
            running[name] = tally.kind(place, random.Random(f"{seed} {name} {tally.rounds}"))
        done = running[name].strike()
    except Exception as error:  # whatever comes up here is what the soak is looking for
        tally.faults += 1
        tally.violations.append(f"{type(error).__name__}: {error}")
        traceback.print_exc()
        if name in running:
            running.pop(name).close()
        return
    tally.faults += done.faults
    tally.checked += done.checked
    tally.unnoticed.update(done.unnoticed)


def table(tallies: list[Tally]) -> str:
    """Return the counts as text, one kind to a line."""
    rows = [["kind", "seconds", "rounds", "faults", "checked", "unnoticed", "violations"]]
    for tally in tallies:
        unnoticed, violations = tally.unnoticed.total(), len(tally.violations)
        counts = (tally.rounds, tally.faults, tally.checked, unnoticed, violations)
        rows.append([tally.kind.name, f"{tally.seconds:.0f}", *(f"{n:,}" for n in counts)])
    return "\n".join(
        f"{name:<12}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows
    )


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn at random")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", nargs="+", choices=names, help="these kinds of faults alone")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.only is None or kind.name in options.only]
    for kind in kinds:
        if missing := [name for name in kind.needs if find_spec(name) is None]:
            print(f"{kind.name} is left out: {', '.join(missing)} is not installed")
            kinds = [other for other in kinds if other is not kind]
    with tempfile.TemporaryDirectory(prefix="bitprint-soak-") as folder:
        tallies = soak(kinds, 60 * options.minutes, options.seed, Path(folder))
    print(table(tallies))
    for tally in tallies:
        for name, count in sorted((+tally.unnoticed).items()):
            print(f"unnoticed, for there is no checksum: {count:,} in {name}")
    violations = [(tally.kind.name, text) for tally in tallies for text in tally.violations]
    faults = sum(tally.faults for tally in tallies)
    for name, text in violations:
        print(f"violated, {name}: {text}")
    verdict = f"{len(violations)} violations" if violations else "nothing acknowledged was lost"
    print(f"{faults:,} faults injected with seed {options.seed}; {verdict}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
