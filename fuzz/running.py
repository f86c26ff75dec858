"""Run a target with coverage-guided fuzzing (atheris) or with random mutations."""

from __future__ import annotations

import importlib
import random
import resource
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzz.harness import MOST_SECONDS, OUTCOMES, Target, judge
from fuzz.mutating import WORDS, change_inside, mutations

TARGETS = (
    "codes",
    "quantised",
    "model",
    "index",
    "photos",
    "checkpoint",
    "features",
    "caches",
    "partitions",
    "cifar10",
    "nuswide",
    "mat",
    "table",
    "upload",
)
FINDINGS = Path(tempfile.gettempdir(), "bitprint-findings")

_MOST_BYTES = 128 * 1024
_MOST_MEMORY = 8 * 2**30

# Numba cannot compile the instrumentation that atheris would add to these modules.
_COMPILED = [
    "bitprint.evaluation.kernels",
    "bitprint.methods._trees",
    "bitprint.methods.cnnh",
    "bitprint.methods.discrete",
    "bitprint.methods.fasth",
    "bitprint.search.kernels",
    "bitprint.search.mih_probes",
    "bitprint.search.mih_tables",
    "bitprint.utils.words",
]


def find_target(name: str) -> Target:
    """Return the target with a name."""
    target: Target = importlib.import_module(f"fuzz.{name}").TARGET
    return target


def run(name: str, seconds: int, seed: int, scratch: str, counts: Any) -> None:
    """Fuzz a target in a folder until the time is up, and add to the counts of outcomes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    FINDINGS.mkdir(exist_ok=True)
    if find_spec("atheris") is None:
        fuzz_randomly(name, find_target(name), seconds, seed, Path(scratch), counts)
        return
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["bitprint"], exclude=_COMPILED):
        target = find_target(name)
    # atheris does not see the coverage of child processes.
    fuzz = fuzz_randomly if target.isolated else fuzz_with_atheris
    fuzz(name, target, seconds, seed, Path(scratch), counts)


def fuzz_randomly(
    name: str, target: Target, seconds: float, seed: int, scratch: Path, counts: Any
) -> None:
    """Mutate samples until the time is up; the input of a finding stays in a file."""
    deadline = time.monotonic() + seconds
    last = FINDINGS / f"{name}-last"
    for data in mutations(target.seeds(), random.Random(seed), target.mutate):
        if time.monotonic() > deadline:
            break
        last.write_bytes(data)
        counts[OUTCOMES.index(judge(target, data, scratch))] += 1
    last.unlink(missing_ok=True)


def fuzz_with_atheris(
    name: str, target: Target, seconds: float, seed: int, scratch: Path, counts: Any
) -> None:
    """Mutate samples guided by coverage; does not return, because libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")
    corpus, place = scratch / "corpus", scratch / "place"
    for folder in (corpus, place):
        folder.mkdir()
    seeds = target.seeds()
    for number, sample in enumerate(seeds):
        (corpus / str(number)).write_bytes(sample)
    words = scratch / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS))
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed + 1}",  # 0 means a random seed
        f"-max_len={_MOST_BYTES}",
        f"-timeout={MOST_SECONDS - 5}",  # less than in the harness, which does not save the input
        f"-dict={words}",
        "-rss_limit_mb=0",  # the harness checks the memory
        "-verbosity=0",
        f"-artifact_prefix={FINDINGS}/{name}-",
    ]

    def test_one_input(data: bytes) -> None:
        counts[OUTCOMES.index(judge(target, data, place))] += 1

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if target.mutate is not None and rng.random() < 0.7:
            return change_inside(target.mutate, data, rng, seeds)[:most]
        return bytes(atheris.Mutate(data, most))

    atheris.Setup(["fuzz", *options, str(corpus)], test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)
