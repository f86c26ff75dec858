"""Run the work of concurrent requests on a few threads with bounded queues."""

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
    """Process queued jobs in batches on one thread.

    A job starts at once if the thread is idle. Jobs that arrive while it is busy form the next
    batch; the thread never waits for a batch to fill up.

    Parameters
    ----------
    work : callable
        Called with a list of jobs; returns their results in the same order.
    most : int
        Maximum number of jobs in a batch.
    waiting : int
        Maximum number of queued jobs; further jobs raise `queue.Full`.

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
        self._queue: queue.Queue[tuple[Job, Future[Result]] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._process, daemon=True)
        self._thread.start()

    async def submit(self, job: Job) -> Result:
        """Queue a job and return its result; raise `queue.Full` if the queue is full."""
        future: Future[Result] = Future()
        self._queue.put_nowait((job, future))
        return await asyncio.wrap_future(future)

    def waiting(self) -> int:
        """Return the approximate number of queued jobs."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finish the queued jobs and stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _process(self) -> None:
        last = False
        while not last:
            batch, last = self._next_batch()
            # Skip jobs whose requests were canceled while they were queued.
            batch = [
                (job, future) for job, future in batch if future.set_running_or_notify_cancel()
            ]
            if not batch:
                continue
            try:
                results = self._work([job for job, _ in batch])
            except Exception as error:  # reported by each request
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    future.set_result(result)

    def _next_batch(self) -> tuple[list[tuple[Job, Future[Result]]], bool]:
        """Wait for a job, add other queued jobs; return the batch and whether it is the last."""
        batch = []
        entry = self._queue.get()
        while entry is not None:
            batch.append(entry)
            if len(batch) == self._most:
                return batch, False
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True


class BoundedExecutor:
    """Run blocking functions on a thread pool with a bounded queue.

    Parameters
    ----------
    threads : int
        Number of threads.
    waiting : int
        Maximum number of queued calls; further calls raise `queue.Full`.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._free = threading.BoundedSemaphore(threads + waiting)

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Call `work` on a thread; raise `queue.Full` if the queue is full."""
        if not self._free.acquire(blocking=False):
            raise queue.Full
        future = self._pool.submit(work, *arguments)
        future.add_done_callback(lambda _: self._free.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish the running calls, cancel the queued ones and stop the threads."""
        self._pool.shutdown(cancel_futures=True)
