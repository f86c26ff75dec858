import asyncio
import json

import pytest

from bitprint.web.limits import BoundedRequests, Limits

LIMITS = Limits(upload_bytes=100, seconds=0.2)


async def reader(scope, receive, send):
    """An application that reads the whole body and says how long it is."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % size})


def run(app, chunks=(b"",), headers=(), pause=0.0):
    """Statuses and bodies that the application sends for a body that comes in chunks."""
    left = list(chunks)
    messages = []

    async def receive():
        await asyncio.sleep(pause)
        chunk = left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers)}
    asyncio.run(BoundedRequests(app, LIMITS)(scope, receive, send))
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
    from starlette.exceptions import HTTPException

    headers = [] if announced is None else [(b"content-length", announced)]
    with pytest.raises(HTTPException) as caught:
        run(reader, [b"x" * 60, b"x" * 41], headers)
    assert caught.value.status_code == 413


def test_a_request_that_does_not_arrive_in_time():
    status, body = run(reader, [b"x"] * 100, pause=0.05)
    assert status == 408
    assert "arrive" in json.loads(body)["detail"]


def test_work_that_takes_too_long():
    async def slow(scope, receive, send):
        await receive()
        await asyncio.sleep(30)

    status, body = run(slow)
    assert status == 503
    assert "longer" in json.loads(body)["detail"]


def test_an_answer_that_has_begun_may_take_its_time():
    async def long_answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(2 * LIMITS.seconds)
        await send({"type": "http.response.body", "body": b"done"})

    assert run(long_answer) == (200, b"done")


def test_one_request_more_than_may_wait_is_refused_at_once():
    """Those that have not arrived yet take no room."""
    from starlette.exceptions import HTTPException

    limits = Limits(waiting=2, seconds=30)
    going_on = asyncio.Event()

    async def patient(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await going_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = BoundedRequests(patient, limits)

    async def ask(pause=0.0):
        statuses = []

        async def receive():
            await asyncio.sleep(pause)
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            statuses.append(message.get("status"))

        try:
            await app({"type": "http", "path": "/", "headers": []}, receive, send)
        except HTTPException as refusal:
            return refusal.status_code, refusal.headers
        return statuses[0], None

    async def scenario():
        slow = [asyncio.ensure_future(ask(pause=60)) for _ in range(5)]
        waiting = [asyncio.ensure_future(ask()) for _ in range(2)]
        await asyncio.sleep(0.01)
        refused = await ask()
        going_on.set()
        answered = await asyncio.gather(*waiting)
        later = await ask()
        for one in slow:
            one.cancel()
        return refused, answered, later

    refused, answered, later = asyncio.run(scenario())
    assert refused == (503, {"Retry-After": "1"})
    assert [status for status, _ in answered] == [200, 200]
    assert later == (200, None)
