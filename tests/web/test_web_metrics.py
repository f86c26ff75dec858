import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitprint.web.metrics import _BOUNDS, Metrics, MetricsMiddleware


@given(st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.floats(0, 20)), max_size=30))
def test_histogram_counts_like_a_plain_loop(requests):
    metrics = Metrics()
    for route, seconds in requests:
        metrics.record(route, 200, seconds)
    text = metrics.render({})
    for route in {route for route, _ in requests}:
        mine = [seconds for name, seconds in requests if name == route]
        for bound in _BOUNDS:
            line = f'bitprint_request_seconds_bucket{{route="{route}",le="{bound}"}} '
            assert f"{line}{sum(seconds <= bound for seconds in mine)}\n" in text
        assert f'_bucket{{route="{route}",le="+Inf"}} {len(mine)}\n' in text
        assert f'bitprint_request_seconds_count{{route="{route}"}} {len(mine)}\n' in text
        total = re.search(rf'seconds_sum{{route="{route}"}} (\S+)', text)
        assert float(total[1]) == pytest.approx(sum(mine), abs=1e-6)


def test_every_line_is_in_the_text_format():
    metrics = Metrics()
    metrics.record("/api/search", 503, 0.3)
    text = metrics.render({"codes": 12, "waiting_searches": 0})
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+({\w+="[^"]*"(,\w+="[^"]*")*})? \S+', line)
    assert "bitprint_codes 12\n" in text


def run(app, path="/x"):
    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(app({"type": "http", "method": "GET", "path": path}, receive, send))
    return messages


def test_a_failure_is_counted_logged_and_answered_without_its_cause(caplog):
    async def failing(scope, receive, send):
        raise RuntimeError("secret path /home/me")

    metrics = Metrics()
    start, body = run(MetricsMiddleware(failing, metrics), path="/\n\x1b[2Jx")
    assert start["status"] == 500
    assert b"secret" not in body["body"]
    assert b"Traceback" not in body["body"]
    assert "secret path /home/me" in caplog.text
    assert "\x1b" not in caplog.text
    assert 'bitprint_requests_total{route="other",status="500"} 1' in metrics.render({})
