import asyncio
import json
from pathlib import Path

import pytest

from bitprint.web.limits import MOST_HEADER_BYTES, BoundedRequests, Limits

LIMITS = Limits(json_bytes=100)


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock skips the time in which all tasks wait."""

    def __init__(self):
        super().__init__()
        self._now = 0.0
        poll = self._selector.select

        def skip(timeout=None):
            events = poll(0)
            assert events or timeout is not None, "all tasks wait forever"
            if not events:
                self._now += max(timeout, 0)
            return events

        self._selector.select = skip

    def time(self):
        return self._now


def run_tasks(scenario):
    """Run a coroutine; waiting takes no time."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(scenario)


async def reader(scope, receive, send):
    """Respond with the length of the request body."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % size})


def run(app, chunks=(b"",), headers=(), pause=0.0):
    """Return status and body of the response to a body in chunks."""
    return run_tasks(ask(BoundedRequests(app, LIMITS), chunks, headers, pause=pause))


async def ask(app, chunks=(b"",), headers=(), method="POST", pause=0.0):
    left = list(chunks)
    messages = []

    async def receive():
        await asyncio.sleep(pause)
        chunk = left.pop(0)
        if isinstance(chunk, asyncio.Event):
            await chunk.wait()
            chunk = left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": method, "path": "/", "headers": list(headers)}
    await app(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages)


def test_a_body_of_just_the_limit_passes():
    assert run(reader, [b"x" * 60, b"x" * 40]) == (200, b"100")


def test_an_announced_size_is_refused_before_anything_is_read():
    async def never(scope, receive, send):
        pytest.fail("the request came through")

    status, body = run(never, headers=[(b"content-length", b"101")])
    assert status == 413
    assert "larger" in json.loads(body)["detail"]


@pytest.mark.parametrize("announced", [None, b"5", b"-1", b"\xb2", b"nonsense"])
def test_a_body_longer_than_announced_is_cut_off_where_it_passes_the_limit(announced):
    headers = [] if announced is None else [(b"content-length", announced)]
    status, body = run(reader, [b"x" * 60, b"x" * 41], headers)
    assert status == 413
    assert "larger" in json.loads(body)["detail"]


def test_a_request_that_does_not_arrive_in_time():
    status, body = run(reader, [b"x"] * 100, pause=LIMITS.seconds / 4)
    assert status == 408
    assert "arrive" in json.loads(body)["detail"]


def test_work_that_takes_too_long():
    async def slow(scope, receive, send):
        await receive()
        await asyncio.sleep(2 * LIMITS.seconds)

    status, body = run(slow)
    assert status == 503
    assert "longer" in json.loads(body)["detail"]


def test_started_response_has_no_time_limit():
    async def long_answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(2 * LIMITS.seconds)
        await send({"type": "http.response.body", "body": b"done"})

    assert run(long_answer) == (200, b"done")


def waiting_app(go):
    """Read the request, wait for an event, respond."""

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


@pytest.mark.parametrize(
    ("limits", "headers", "method"),
    [
        (Limits(waiting=2), [(b"content-type", b"application/json")], "POST"),
        (Limits(waiting=2), [(b"content-type", b"multipart/form-data; boundary=x")], "POST"),
        (Limits(connections=2), [], "POST"),
        (Limits(connections=2), [], "GET"),
    ],
)
def test_one_request_more_than_may_wait_returns_503(limits, headers, method):
    """Requests that have not arrived are not counted."""

    async def scenario():
        go = asyncio.Event()
        app = BoundedRequests(waiting_app(go), limits)
        slow = [
            asyncio.ensure_future(ask(app, headers=headers, pause=60))
            for _ in range(5 if method == "POST" else 0)
        ]
        waiting = [
            asyncio.ensure_future(ask(app, headers=headers, method=method)) for _ in range(2)
        ]
        await asyncio.sleep(0.01)
        refused = await ask(app, headers=headers, method=method)
        go.set()
        answered = await asyncio.gather(*waiting)
        later = await ask(app, headers=headers, method=method)
        for one in slow:
            one.cancel()
        return refused, answered, later

    (refused, _), answered, (later, _) = run_tasks(scenario())
    assert refused == 503
    assert [status for status, _ in answered] == [200, 200]
    assert later == 200


def test_unread_responses_do_not_block_later_requests():
    """A response that has started is not counted, and is not replaced by a refusal."""

    async def scenario():
        go = asyncio.Event()

        async def streaming(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await receive()  # as Starlette does to detect that the client has disconnected
            await go.wait()
            await send({"type": "http.response.body", "body": b"whole"})

        app = BoundedRequests(streaming, Limits(connections=2, waiting=2))
        running = [asyncio.ensure_future(ask(app, method="GET")) for _ in range(20)]
        await asyncio.sleep(0.01)
        go.set()
        return await asyncio.gather(*running)

    assert set(run_tasks(scenario())) == {(200, b"whole")}


def test_bodies_beyond_the_total_refuse_the_slowest():
    async def scenario():
        go = asyncio.Event()
        app = BoundedRequests(reader, Limits(upload_bytes=100, received_bytes=100))
        slow = [asyncio.ensure_future(ask(app, [b"x" * 40, go, b"x"])) for _ in range(2)]
        await asyncio.sleep(0.01)
        quick = await ask(app, [b"x" * 30, b"x" * 10])
        go.set()
        return [quick, *await asyncio.gather(*slow)]

    (quick, size), (slowest, reason), (slow, _) = run_tasks(scenario())
    assert (quick, size) == (200, b"40")
    assert slowest == 503
    assert "overloaded" in json.loads(reason)["detail"]
    assert slow == 200


def test_bodies_in_process_beyond_the_total_refuse_the_next():
    async def scenario():
        go = asyncio.Event()
        app = BoundedRequests(waiting_app(go), Limits(upload_bytes=100, received_bytes=100))
        working = [asyncio.ensure_future(ask(app, [b"x" * 45])) for _ in range(2)]
        await asyncio.sleep(0.01)
        refused, _ = await ask(app, [b"x" * 20])
        go.set()
        return refused, [status for status, _ in await asyncio.gather(*working)], await ask(app)

    assert run_tasks(scenario()) == (503, [200, 200], (200, b""))


def test_header_above_the_limit_returns_431():
    assert run(reader, headers=[(b"x", b"y" * 32_000)])[0] == 200
    status, body = run(reader, headers=[(b"x", b"y" * 16_384)] * 2)
    assert status == 431
    assert "32 KiB" in json.loads(body)["detail"]


def test_length_together_with_chunks_returns_400():
    both = [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")]
    status, body = run(reader, headers=both)
    assert status == 400
    assert "only one" in json.loads(body)["detail"]
    assert run(reader, headers=both[1:])[0] == 200


def test_bodies_are_limited_by_content_type():
    form = [(b"content-type", b"multipart/form-data; boundary=x")]
    json_body = [(b"content-type", b"application/json")]
    limits = Limits(upload_bytes=1000, json_bytes=10)
    app = BoundedRequests(reader, limits)
    assert run_tasks(ask(app, [b"x" * 1000], form)) == (200, b"1000")
    assert run_tasks(ask(app, [b"x" * 1001], form))[0] == 413
    assert run_tasks(ask(app, [b"x" * 11], json_body))[0] == 413
    assert run_tasks(ask(app, [b"x" * 11]))[0] == 413


def test_total_below_the_size_of_an_upload_raises():
    with pytest.raises(ValueError, match=r"received_bytes is 10, less than upload_bytes \(11\)"):
        Limits(upload_bytes=11, received_bytes=10)


def test_threat_model_names_the_limits():
    page = (Path(__file__).parents[2] / "docs" / "threat_model.md").read_text()
    limits = Limits()
    for promise in (
        f"within {limits.seconds:g} seconds",
        f"at most {limits.connections:,} connections",
        f"{limits.connections_per_address:,} of one address",
        f"{limits.waiting} jobs of one kind wait",
        f"at most {MOST_HEADER_BYTES >> 10} KiB (431)",
        f"a form {limits.upload_bytes >> 20} MiB, any other body {limits.json_bytes >> 10} KiB",
        f"at most {limits.received_bytes >> 20} MiB",
    ):
        assert promise in page
