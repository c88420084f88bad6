"""Traffic: how many requests there were, and for how long their answers took to begin, by route and kind of answer."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.endpoints.access import PREFIX

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)
"""Seconds."""
NOWHERE = "none"
"""The route of a request that no route takes."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

disable_created_metrics()  # type: ignore[no-untyped-call] # it has no types


class Traffic:
    """Counts since the process began. What callers write is no label: there would be no end of them."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self.registry = CollectorRegistry()
        labels = ("route", "method")
        self._requests = Counter(
            "penstock_requests", "Requests that were answered.", (*labels, "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "penstock_request_duration_seconds",
            "How long a request waited until its answer began.",
            labels,
            registry=self.registry,
            buckets=BUCKETS,
        )

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        route = _template(scope)
        method = scope["method"] if scope["method"] in METHODS else NOWHERE
        self._requests.labels(route, method, f"{status // 100}xx").inc()
        self._seconds.labels(route, method).observe(seconds)


def _template(scope: Scope) -> str:
    """Return the whole path of the route that took a request; FastAPI leaves out with what it was included."""
    path = str(getattr(scope.get("route"), "path", NOWHERE))
    return PREFIX + path if path.startswith("/") and scope["path"].startswith(f"{PREFIX}/") else path


class Counted:
    """ASGI middleware that notes each request in the application's traffic."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the application, and note with what and after how long."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        traffic: Traffic = scope["app"].state.traffic
        begun, answered = time.perf_counter(), False

        async def noted(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                traffic.note(scope, message["status"], time.perf_counter() - begun)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            # who answers then stands before all middleware
            if not answered:
                traffic.note(scope, 500, time.perf_counter() - begun)
            raise
