import asyncio
import queue
import threading

import pytest

from bitprint.web.batching import Batcher, BoundedExecutor


class Held:
    """Record batches and block until `go` is set."""

    def __init__(self):
        self.batches = []
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, jobs):
        self.batches.append(jobs)
        self.begun.set()
        assert self.go.wait(60)
        return [job * 10 for job in jobs]


def run(scenario):
    """Run a coroutine with a timeout."""
    asyncio.run(asyncio.wait_for(scenario, timeout=120))


async def started(event):
    assert await asyncio.to_thread(event.wait, 60)


def test_jobs_that_come_while_the_thread_works_form_the_next_batches():
    async def scenario():
        work = Held()
        batcher = Batcher(work, most=3, waiting=10)
        tasks = [asyncio.create_task(batcher.submit(0))]
        await started(work.begun)
        tasks += [asyncio.create_task(batcher.submit(job)) for job in range(1, 6)]
        await asyncio.sleep(0)
        assert batcher.waiting() == 5
        work.go.set()
        assert await asyncio.gather(*tasks) == [0, 10, 20, 30, 40, 50]
        assert work.batches == [[0], [1, 2, 3], [4, 5]]
        batcher.close()

    run(scenario())


def test_one_job_too_many_is_refused_at_once_and_the_others_are_done():
    async def scenario():
        work = Held()
        batcher = Batcher(work, most=1, waiting=2)
        first = asyncio.create_task(batcher.submit(1))
        await started(work.begun)
        waiting = [asyncio.create_task(batcher.submit(job)) for job in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(queue.Full):
            await batcher.submit(4)
        work.go.set()
        assert await asyncio.gather(first, *waiting) == [10, 20, 30]
        batcher.close()

    run(scenario())


def test_canceled_queued_job_is_skipped():
    async def scenario():
        work = Held()
        batcher = Batcher(work, most=4, waiting=4)
        first = asyncio.create_task(batcher.submit(1))
        await started(work.begun)
        given_up = asyncio.create_task(batcher.submit(2))
        kept = asyncio.create_task(batcher.submit(3))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        work.go.set()
        assert await asyncio.gather(first, kept) == [10, 30]
        assert work.batches == [[1], [3]]
        batcher.close()

    run(scenario())


def test_a_batch_that_fails_fails_its_own_jobs_only():
    def work(jobs):
        if 13 in jobs:
            raise OSError("the disk is gone")
        return jobs

    async def scenario():
        batcher = Batcher(work, most=1, waiting=4)
        with pytest.raises(OSError, match="the disk is gone"):
            await batcher.submit(13)
        assert await batcher.submit(14) == 14
        batcher.close()

    run(scenario())


def test_close_drains_the_queue():
    async def scenario():
        work = Held()
        batcher = Batcher(work, most=2, waiting=5)
        tasks = [asyncio.create_task(batcher.submit(job)) for job in range(4)]
        await started(work.begun)
        work.go.set()
        await asyncio.to_thread(batcher.close)
        assert await asyncio.gather(*tasks) == [0, 10, 20, 30]

    run(scenario())


def test_executor_with_a_full_queue_refuses():
    async def scenario():
        executor = BoundedExecutor(threads=2, waiting=1)
        go, busy = threading.Event(), threading.Semaphore(0)

        def work(number):
            busy.release()
            assert go.wait(60)
            return number

        tasks = [asyncio.create_task(executor.run(work, number)) for number in range(3)]
        for _ in range(2):
            assert await asyncio.to_thread(busy.acquire, timeout=60)
        assert not busy.acquire(timeout=0.05)
        with pytest.raises(queue.Full):
            await executor.run(work, 3)
        go.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]
        assert await executor.run(work, 4) == 4
        executor.close()

    run(scenario())
