"""Child processes that acknowledge each finished step and can be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# The fork server imports these once, so that a child starts in milliseconds.
_PRELOADED = [
    "bitprint.cli",
    "bitprint.data",
    "bitprint.methods",
    "bitprint.photos.encoding",
    "bitprint.search.index",
    "bitprint.web",
    "torch._dynamo",
]
_PATIENCE = 120.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOADED)

Acknowledge = Callable[[str], None]


class Child:
    """A child process that runs `task(acknowledge, *arguments)`.

    Parameters
    ----------
    task : callable
        A module-level function, because the new process imports it.
    *arguments
        Paths, numbers and strings.
    """

    def __init__(self, task: Callable[..., None], *arguments: Any) -> None:
        self._receiving, sending = _context.Pipe(duplex=False)
        # A daemon ends with the soak, even if a violation skips the cleanup.
        self._process = _context.Process(target=_run, args=(task, sending, *arguments), daemon=True)
        self._process.start()
        sending.close()
        self.acknowledged: list[str] = []

    def wait_for_one(self, seconds: float = _PATIENCE) -> bool:
        """Wait for the next acknowledgement; return False on a timeout or the end of the child."""
        if not self._receiving.poll(seconds):
            return False
        try:
            self.acknowledged.append(self._receiving.recv_bytes().decode())
        except EOFError:
            return False
        return True

    def kill(self) -> bool:
        """Kill the child with SIGKILL, read all acknowledgements; return whether it was running."""
        self._process.kill()
        self._process.join()
        self._drain()
        code = self._process.exitcode
        if code not in (0, -signal.SIGKILL):
            raise AssertionError(f"a child failed with exit code {code} before it was killed")
        return code != 0

    def wait(self) -> int | None:
        """Wait until the child ends, read all acknowledgements; return the exit code."""
        while self.wait_for_one():
            pass
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
        self._drain()
        return code

    def finish(self) -> None:
        """Wait until the child ends successfully, and read all acknowledgements."""
        code = self.wait()
        if code != 0:
            raise AssertionError(f"an undisturbed child ended with exit code {code}")

    def _drain(self) -> None:
        if not self._receiving.closed:
            while self.wait_for_one(0):
                pass
            self._receiving.close()


def run_command(_acknowledge: Acknowledge, arguments: list[str], log: Path) -> None:
    """Run the command `bitprint` with its output written to a log."""
    from bitprint import cli

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = ["bitprint", *arguments]
    cli.main()


def _run(task: Callable[..., None], sending: Connection, *arguments: Any) -> None:
    task(lambda text: sending.send_bytes(text.encode()), *arguments)
