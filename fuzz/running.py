"""Running a target: with atheris, which coverage guides, or by plain mutations."""

from __future__ import annotations

import importlib
import random
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzz.harness import Target, judge, mutations

TARGETS = (
    "codes",
    "model",
    "index",
    "checkpoint",
    "cifar10",
    "mat",
    "table",
    "upload",
    "features",
)

# Numba compiles parts of these, and cannot compile what atheris adds.
_COMPILED = [
    "bitprint.evaluation.kernels",
    "bitprint.methods._trees",
    "bitprint.methods.cnnh",
    "bitprint.methods.discrete",
    "bitprint.methods.fasth",
    "bitprint.search.mih_probes",
    "bitprint.search.mih_tables",
    "bitprint.search.scans",
    "bitprint.words",
]


def find_target(name: str) -> Target:
    """Return the target of a name."""
    target: Target = importlib.import_module(f"fuzz.{name}").TARGET
    return target


def run(name: str, seconds: int, seed: int, scratch: str) -> None:
    """Fuzz a target in a folder until the time is up."""
    if find_spec("atheris") is None:
        fuzz_plainly(find_target(name), seconds, seed, Path(scratch))
        return
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["bitprint"], exclude=_COMPILED):
        target = find_target(name)
    # What happens in processes apart is not seen, and guides nothing.
    fuzz = fuzz_plainly if target.apart else fuzz_with_atheris
    fuzz(target, seconds, seed, Path(scratch))


def fuzz_plainly(target: Target, seconds: int, seed: int, scratch: Path) -> None:
    """Mutate samples until the time is up."""
    deadline = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    for data in mutations(target.seeds(), random.Random(seed)):
        if time.monotonic() > deadline:
            break
        outcomes[judge(target, data, scratch)] += 1
    print(f"{outcomes.total():,} mutations: {dict(outcomes)}", flush=True)


def fuzz_with_atheris(target: Target, seconds: int, seed: int, scratch: Path) -> None:
    """Let coverage guide the mutations; does not return, for libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")
    corpus, place = scratch / "corpus", scratch / "place"
    findings = Path(tempfile.gettempdir(), "bitprint-findings")
    for folder in (corpus, place, findings):
        folder.mkdir(exist_ok=True)
    for number, sample in enumerate(target.seeds()):
        (corpus / str(number)).write_bytes(sample)
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed + 1}",  # 0 would draw one
        "-max_len=65536",
        "-rss_limit_mb=4096",
        "-timeout=60",
        "-print_final_stats=1",
        "-verbosity=0",
        f"-artifact_prefix={findings}/",
    ]

    def test_one_input(data: bytes) -> None:
        judge(target, data, place)

    atheris.Setup(["fuzz", *options, str(corpus)], test_one_input)
    atheris.Fuzz()
