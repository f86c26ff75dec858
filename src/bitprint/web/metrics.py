"""Request counts and latencies in the Prometheus text format."""

from __future__ import annotations

import errno
import logging
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bitprint.web.limits import OVERLOADED, RETRY

_log = logging.getLogger("bitprint.web")

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds."""


class Metrics:
    """Request counts by route and status, and a latency histogram by route.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.record("/health", 200, seconds=0.002)
    >>> print(metrics.render({"codes": 3}).splitlines()[2])
    bitprint_requests_total{route="/health",status="200"} 1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_BOUNDS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def record(self, route: str, status: int, seconds: float) -> None:
        """Record one request."""
        with self._lock:
            self._requests[route, status] += 1
            self._buckets[route][bisect_left(_BOUNDS, seconds)] += 1
            self._seconds[route] += seconds

    def render(self, gauges: dict[str, float]) -> str:
        """Return all metrics and the given gauges in the Prometheus text format."""
        with self._lock:
            lines = [
                "# HELP bitprint_requests_total Requests answered.",
                "# TYPE bitprint_requests_total counter",
            ]
            for (route, status), count in sorted(self._requests.items()):
                labels = f'route="{route}",status="{status}"'
                lines.append(f"bitprint_requests_total{{{labels}}} {count}")
            lines += [
                "# HELP bitprint_request_seconds Time from the start of a request to its end.",
                "# TYPE bitprint_request_seconds histogram",
            ]
            for route, buckets in sorted(self._buckets.items()):
                totals = list(accumulate(buckets))
                for bound, total in zip((*_BOUNDS, "+Inf"), totals, strict=True):
                    labels = f'route="{route}",le="{bound}"'
                    lines.append(f"bitprint_request_seconds_bucket{{{labels}}} {total}")
                seconds = self._seconds[route]
                lines.append(f'bitprint_request_seconds_sum{{route="{route}"}} {seconds:.6f}')
                lines.append(f'bitprint_request_seconds_count{{route="{route}"}} {totals[-1]}')
        for name, value in gauges.items():
            lines += [f"# TYPE bitprint_{name} gauge", f"bitprint_{name} {value:g}"]
        return "\n".join(lines) + "\n"


class MetricsMiddleware:
    """Middleware that records requests, logs failures and hides tracebacks from clients.

    The start of a response is sent with the first part of its body, so that a failure until then,
    such as a file that cannot be opened, has a status of its own.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request and record its status and duration."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        start: Message | None = None
        started = time.perf_counter()

        async def noted_send(message: Message) -> None:
            nonlocal start, status
            if message["type"] == "http.response.start":
                start = message
                return
            if start is not None:
                status = start["status"]
                await send(start)
                start = None
            await send(message)

        try:
            await self._app(scope, receive, noted_send)
        except ClientDisconnect:
            status = status or 499  # nginx convention: client closed request
        except Exception as error:
            response = _failure(scope, error)
            if not status:  # otherwise the connection is closed, because the response is incomplete
                await response(scope, receive, noted_send)
        finally:
            # Use the route template, because there are arbitrarily many paths.
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.record(route, status or 499, time.perf_counter() - started)


def _failure(scope: Scope, error: Exception) -> JSONResponse:
    """Log an error and return its response."""
    place = scope["method"], ascii(scope["path"])
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        _log.error("%s %s failed: too many open files; raise the limit (ulimit -n)", *place)
        return JSONResponse({"detail": OVERLOADED}, 503, RETRY)
    _log.error("%s %s failed", *place, exc_info=error)
    return JSONResponse({"detail": "internal server error; see the server log"}, 500)
