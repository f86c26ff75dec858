"""What every target has in common: how a parser may answer, and what it may cost."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fuzz.mutating import Mutate

OUTCOMES = ("read", "refused", "crashed")

MOST_SECONDS = 30
_MOST_GROWTH = 512 * 2**20
_STATUS = Path("/proc/self/status")
_FINDING = len(OUTCOMES)


class Target(NamedTuple):
    """A parser under test."""

    parse: Callable[[bytes, Path], object]
    """Takes bytes and a folder to put them in; returns a value, or raises what the parser does."""
    seeds: Callable[[], list[bytes]]
    """Makes samples that it reads."""
    mutate: Mutate | None = None
    """Changes a sample so that lengths and checksums fit, as whoever means harm would."""
    names_file: bool = True
    """Whether what it refuses is named by its path."""
    apart: bool = False
    """Whether each input has a process of its own, for the parser is known to crash.

    Then memory is not looked at either.
    """


def judge(target: Target, data: bytes, folder: Path) -> str:
    """Return whether bytes were "read", "refused" or, in a process apart, have "crashed" it.

    Anything else that a parser does is a finding, and raised as an AssertionError: another error,
    one that is not a sentence, or memory out of proportion. Half a minute ends the process.
    """
    if target.apart:
        return _judge_apart(target, data, folder)
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    try:
        with _limited_growth():
            return _judge(target, data, folder)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _judge(target: Target, data: bytes, folder: Path) -> str:
    try:
        target.parse(data, folder)
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        if not text.strip() or len(text.splitlines()) > 1:
            raise AssertionError(f"not one sentence: {text!r}") from error
        if target.names_file and str(folder) not in text:
            raise AssertionError(f"the file is not named: {text!r}") from error
        return "refused"
    except Exception as error:
        traceback.print_exc()  # libFuzzer shows the last error alone
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    return "read"


def _judge_apart(target: Target, data: bytes, folder: Path) -> str:
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(MOST_SECONDS)
        code = _FINDING
        try:
            code = OUTCOMES.index(_judge(target, data, folder))
        except AssertionError:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGALRM:
            raise AssertionError(f"not done after {MOST_SECONDS} seconds, in a process apart")
        return "crashed"
    if os.WEXITSTATUS(status) == _FINDING:
        raise AssertionError("a finding in a process apart, see above")
    return OUTCOMES[os.WEXITSTATUS(status)]


@contextmanager
def _limited_growth() -> Iterator[None]:
    """Raise an AssertionError if memory in use has never been so high, and that by far."""
    before = _peak()
    yield
    growth = _peak() - before
    if growth > _MOST_GROWTH:
        raise AssertionError(f"{growth / 2**20:.0f} MiB of memory for one input")


def _peak() -> int:
    """Return the most bytes that were ever in use; 0 where there is no Linux to tell."""
    if not _STATUS.exists():
        return 0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
