"""Work of many requests at once: in batches on one thread, or on a few threads, never unbounded."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Batcher(Generic[Job, Result]):
    """Gathers the jobs that wait into batches, which one thread works off.

    A job that comes while the thread is idle starts at once; those that come while it works
    wait and form the next batch. So nobody waits for a batch to fill.

    Parameters
    ----------
    work : callable
        Takes a list of jobs and returns as many results, in order.
    most : int
        How many jobs a batch may have.
    waiting : int
        How many jobs may wait; one more is refused at once.

    Examples
    --------
    >>> async def squares() -> list[int]:
    ...     batcher = Batcher(lambda jobs: [job * job for job in jobs], most=2, waiting=8)
    ...     return await asyncio.gather(*map(batcher.submit, range(4)))
    >>> asyncio.run(squares())
    [0, 1, 4, 9]
    """

    def __init__(
        self, work: Callable[[list[Job]], Sequence[Result]], *, most: int, waiting: int
    ) -> None:
        self._work = work
        self._most = most
        self._line: queue.Queue[tuple[Job, Future[Result]] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._work_off, daemon=True)
        self._thread.start()

    async def submit(self, job: Job) -> Result:
        """Have a job done; raises `queue.Full` at once where too many wait already."""
        future: Future[Result] = Future()
        self._line.put_nowait((job, future))
        return await asyncio.wrap_future(future)

    def waiting(self) -> int:
        """Count the jobs that wait, roughly."""
        return self._line.qsize()

    def close(self) -> None:
        """Do what waits, then stop the thread."""
        self._line.put(None)
        self._thread.join()

    def _work_off(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            # A job whose request was given up while it waited is not begun.
            batch = [
                (job, future) for job, future in batch if future.set_running_or_notify_cancel()
            ]
            if not batch:
                continue
            try:
                results = self._work([job for job, _ in batch])
            except Exception as error:  # Each of the requests reports it.
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    future.set_result(result)

    def _next_batch(self) -> tuple[list[tuple[Job, Future[Result]]], bool]:
        """Wait for a job, take what else is there; also tell whether it is the last batch."""
        batch = []
        entry = self._line.get()
        while entry is not None:
            batch.append(entry)
            if len(batch) == self._most:
                return batch, False
            try:
                entry = self._line.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True


class Crew:
    """A few threads for work that blocks, and a line before them that has an end.

    Parameters
    ----------
    threads : int
        How many jobs are done at a time.
    waiting : int
        How many more may wait; one more is refused at once.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._room = threading.BoundedSemaphore(threads + waiting)

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Call `work` on a thread; raises `queue.Full` at once where too many wait already."""
        if not self._room.acquire(blocking=False):
            raise queue.Full
        future = self._pool.submit(work, *arguments)
        future.add_done_callback(lambda _: self._room.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish what has begun, then stop the threads."""
        self._pool.shutdown(cancel_futures=True)
