"""Short runs of `python -m soak.slow_clients` and `python -m soak.memory`."""

import re
import sys

import pytest

from soak import memory, slow_clients

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")


def test_honest_clients_beside_150_slow_ones_are_served(capsys, monkeypatch):
    """On a busy machine they wait for a processor, but not for the deadlines of 30 seconds."""
    monkeypatch.setattr(slow_clients, "_SLOWEST", 20.0)
    kinds = slow_clients.KINDS
    status = slow_clients.main(["--clients", "150", "--seconds", "1.5", "--only", *kinds])
    output = capsys.readouterr().out
    title, *rows, last = output.splitlines()
    assert status == 0, output
    assert title.split()[2:] == ["requests", "failed", "p50", "ms", "p99", "ms", "MiB"]
    assert [row[:18].rstrip() for row in rows] == [*kinds]
    for row in rows:
        requests, failed, median, slowest, _ = map(int, row[18:].split())
        assert requests >= 16
        assert failed == 0
        assert median <= slowest < 20_000
    assert "lines in the log" in last


def test_memory_is_printed_after_each_part_of_the_requests(capsys):
    memory.main(["--requests", "160"])
    title, *rows, statuses, halves = capsys.readouterr().out.splitlines()
    assert title.split() == ["requests", "MiB"]
    assert [int(row.split()[0]) for row in rows] == [8 * part for part in range(21)]
    found = dict(re.findall(r"(\d+): (\d+)", statuses))
    assert "200" in found
    assert set(found) <= {"200", "404", "415", "431"}
    assert sum(map(int, found.values())) == 160
    largest = max(int(row.split()[1]) for row in rows[1:])
    assert str(largest) in re.findall(r"\d+", halves)
