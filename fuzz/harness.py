"""What every target has in common: how a parser may answer, and how samples are mutated."""

from __future__ import annotations

import faulthandler
import os
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_NUMBERS = (0, 1, 127, 255, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_WORDS = (b"-1", b"1e999", b"NaN", b"null", b"{}", b"[]", b'""', b"true", b"9" * 20, b"../", b"\0")

_OUTCOMES = ("read", "refused", "a finding")


class Target(NamedTuple):
    """A parser under test."""

    parse: Callable[[bytes, Path], object]
    """Takes bytes and a folder to put them in; returns a value, or raises what the parser does."""
    seeds: Callable[[], list[bytes]]
    """Makes samples that it reads."""
    names_file: bool = True
    """Whether what it refuses is named by its path."""
    apart: bool = False
    """Whether each input has a process of its own, for the parser is known to crash."""


def judge(target: Target, data: bytes, folder: Path) -> str:
    """Return whether bytes were "read", "refused" or, in a process apart, have "crashed" it.

    Anything else that a parser does is a finding, and raised as an AssertionError.
    """
    if not target.apart:
        return _judge(target, data, folder)
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        outcome = "a finding"
        try:
            outcome = _judge(target, data, folder)
        except AssertionError:
            traceback.print_exc()
        finally:
            os._exit(_OUTCOMES.index(outcome))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "crashed"
    if _OUTCOMES[os.WEXITSTATUS(status)] == "a finding":
        raise AssertionError("a finding in a process apart, see above")
    return _OUTCOMES[os.WEXITSTATUS(status)]


def _judge(target: Target, data: bytes, folder: Path) -> str:
    try:
        target.parse(data, folder)
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        if not text.strip() or "\n" in text:
            raise AssertionError(f"not one sentence: {text!r}") from error
        if target.names_file and str(folder) not in text:
            raise AssertionError(f"the file is not named: {text!r}") from error
        return "refused"
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    return "read"


def mutations(seeds: Sequence[bytes], rng: random.Random) -> Iterator[bytes]:
    """Give samples with one to four changes, without end."""
    while True:
        data = rng.choice(seeds)
        for _ in range(rng.randint(1, 4)):
            data = _changed(data, rng, seeds)
        yield data


def _changed(data: bytes, rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Make one change at a random place, often near the beginning, where headers are."""
    size = len(data) + 1
    start = rng.randrange(min(size, 256) if rng.random() < 0.3 else size)
    length = rng.choice((1, 1, 2, 4, 8, rng.randrange(size)))
    head, tail = data[:start], data[start + length :]
    kind = rng.randrange(7)
    if kind == 0:
        return head + rng.randbytes(length) + tail
    if kind == 1:
        return head + tail
    if kind == 2:
        return head + data[start : start + length] + data[start:]
    if kind == 3:
        number = rng.choice(_NUMBERS) % 2 ** (8 * length) if length <= 8 else 0
        return head + number.to_bytes(max(length, 1), rng.choice(("little", "big"))) + tail
    if kind == 4:
        return head + rng.choice(_WORDS) + tail
    if kind == 5:
        other = rng.choice(seeds)
        return head + other[rng.randrange(len(other) + 1) :]
    return head if rng.random() < 0.3 else head + rng.choice(_WORDS) + data[start:]
