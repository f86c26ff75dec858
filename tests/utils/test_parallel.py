import os
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitprint.utils.parallel import on_every_core, thread_count


@given(st.integers(0, 300), st.integers(1, 50))
def test_slices_cover_the_range_once_and_in_order(count, most):
    slices = on_every_core(lambda rows: rows, count, most)
    assert [row for rows in slices for row in range(count)[rows]] == list(range(count))
    assert all(0 < rows.stop - rows.start <= most for rows in slices)


def test_all_threads_run_at_once(monkeypatch):
    """Four threads wait at a barrier that opens only for four."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    barrier = threading.Barrier(4, timeout=120)

    def work(rows):
        barrier.wait()
        return threading.get_ident()

    assert len(set(on_every_core(work, count=40, most=1000))) == 4


def test_one_slice_needs_no_thread(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert on_every_core(lambda rows: threading.get_ident(), 7, 10) == [threading.get_ident()]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_the_work_reaches_the_caller(monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    def work(rows):
        if rows.start >= 5:
            raise ArithmeticError(f"rows from {rows.start}")

    with pytest.raises(ArithmeticError, match="rows from 5"):
        on_every_core(work, count=20, most=5)


@pytest.mark.parametrize(("given", "expected"), [("3", "3"), ("", None), ("0", None), ("x", None)])
def test_thread_count_without_torch_follows_omp(given, expected):
    """In a process that has not imported torch."""
    source = (
        "import os, sys; from bitprint.utils.parallel import thread_count; assert 'torch' not in "
        "sys.modules; print(thread_count(), len(os.sched_getaffinity(0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": given},
    )
    threads, cores = done.stdout.split()
    assert threads == (expected or cores)


def test_thread_count_with_torch_is_that_of_torch(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 17)
    assert thread_count() == 17
