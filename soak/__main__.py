"""`python -m soak --minutes 10 --seed 7`: injects faults until the time is up; 1 on a violation."""

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

_ATTEMPTS = 20  # rounds after which a kind that has nothing to check is given up
_PATIENCE = 600.0  # seconds beyond its time after which a soak that hangs is ended

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

    @property
    def begun(self) -> bool:
        """Whether it has shown anything: on a slow machine a fault may come before any promise."""
        return self.checked > 0 or bool(self.violations) or self.rounds >= _ATTEMPTS


def soak(kinds: list[type[Kind]], seconds: float, seed: int, folder: Path) -> list[Tally]:
    """Inject faults of all kinds in turn, each for its share of the time and until it has begun."""
    tallies = [Tally(kind) for kind in kinds]
    running: dict[str, Kind] = {}
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline or not all(tally.begun for tally in tallies):
            tally = min(tallies, key=lambda tally: (tally.begun, tally.seconds))
            started = time.monotonic()
            _strike(tally, running, seed, folder)
            tally.seconds += time.monotonic() - started
    finally:
        for tally in tallies:
            _close(tally, running)
    return tallies


def _strike(tally: Tally, running: dict[str, Kind], seed: int, folder: Path) -> None:
    """Run one round; after a violation the kind starts anew in another folder.

    What a round draws depends on the seed, the kind and the number of the round alone, whatever
    other kinds do meanwhile.
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
        done = running[name].strike()
    except Exception as error:  # whatever comes up here is what the soak is looking for
        _note(tally, error)
        tally.faults += 1
        _close(tally, running)
        return
    tally.faults += done.faults
    tally.checked += done.checked
    tally.unnoticed.update(done.unnoticed)


def _close(tally: Tally, running: dict[str, Kind]) -> None:
    """Stop what a kind has started; if it cannot be stopped, that is a violation too."""
    try:
        if tally.kind.name in running:
            running.pop(tally.kind.name).close()
    except Exception as error:
        _note(tally, error)


def _note(tally: Tally, error: Exception) -> None:
    traceback.print_exc()
    tally.violations.append(f"round {tally.rounds}: {type(error).__name__}: {error}")


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parse(arguments)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"faults for {options.minutes:g} minutes with seed {seed}", flush=True)
    kinds = [kind for kind in KINDS if options.only is None or kind.name in options.only]
    for kind in list(kinds):
        if missing := [name for name in kind.needs if find_spec(name) is None]:
            print(f"{kind.name} is left out: {', '.join(missing)} is not installed")
            kinds.remove(kind)
    seconds = 60 * options.minutes
    faulthandler.dump_traceback_later(seconds + _PATIENCE, exit=True)
    with tempfile.TemporaryDirectory(prefix="bitprint-soak-") as folder:
        tallies = soak(kinds, seconds, seed, Path(folder))
    faulthandler.cancel_dump_traceback_later()
    return report(tallies, seed)


def report(tallies: list[Tally], seed: int) -> int:
    """Print what was found, the verdict last; return the exit code."""
    print(table(tallies))
    for tally in tallies:
        for name, count in sorted((+tally.unnoticed).items()):
            print(f"unnoticed, for there is no checksum: {count:,} in {name}")
    violations = [(tally.kind.name, text) for tally in tallies for text in tally.violations]
    for name, text in violations:
        print(f"violated, {name}, {text}")
        print(f"  python -m soak --seed {seed} --only {name}   draws the same again")
    faults = sum(tally.faults for tally in tallies)
    verdict = f"{len(violations)} violations" if violations else "nothing acknowledged was lost"
    print(f"{faults:,} faults injected with seed {seed}; {verdict}")
    return 1 if violations else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, all kinds together")
    parser.add_argument("--seed", type=int, help="what is drawn at random; by default that too")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", nargs="+", choices=names, help="these kinds of faults alone")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
