"""Common part of all targets: permitted results of a parser, and limits on time and memory."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
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
    """Parses bytes, using a folder for files; returns a value or raises the parser's error."""
    seeds: Callable[[], list[bytes]]
    """Returns valid samples."""
    mutate: Mutate | None = None
    """Changes a sample but keeps lengths and checksums valid, as an attacker would."""
    names_file: bool = True
    """Whether errors must contain the path of the file."""
    isolated: bool = False
    """Whether each input is parsed in a new process, because the parser is known to crash.

    The memory of isolated parsers is not checked.
    """


def file_bytes(write: Callable[[Path], object]) -> bytes:
    """Return the content of the file that `write` creates at a given path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample"
        write(path)
        return path.read_bytes()


def judge(target: Target, data: bytes, folder: Path) -> str:
    """Parse bytes and return "read", "refused" or, for an isolated parser, "crashed".

    Everything else is a finding and raises AssertionError: another error type, an error message
    that is not one sentence, or excessive memory. After 30 seconds the process is aborted.
    """
    if target.isolated:
        return _judge_isolated(target, data, folder)
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
            raise AssertionError(f"the error does not contain the path: {text!r}") from error
        return "refused"
    except Exception as error:
        traceback.print_exc()  # libFuzzer prints only the last error
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    return "read"


def _judge_isolated(target: Target, data: bytes, folder: Path) -> str:
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
            raise AssertionError(f"not finished after {MOST_SECONDS} seconds in a child process")
        return "crashed"
    if os.WEXITSTATUS(status) == _FINDING:
        raise AssertionError("a finding in a child process, see above")
    return OUTCOMES[os.WEXITSTATUS(status)]


@contextmanager
def _limited_growth() -> Iterator[None]:
    """Raise AssertionError if the peak memory of the process grows beyond the limit."""
    before = peak()
    yield
    growth = peak() - before
    if growth > _MOST_GROWTH:
        raise AssertionError(f"{growth / 2**20:.0f} MiB of memory for one input")


def peak() -> int:
    """Return the peak memory of the process in bytes; 0 if it is not available (no Linux)."""
    if not _STATUS.exists():
        return 0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
