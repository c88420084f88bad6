"""The protocol of API, edge and node agent: who has connections to the apps of sessions. Pure."""

from __future__ import annotations

from pydantic import Field

from common.messages import Report

APP_CALLERS_PATH = "/agent/v1/app-callers"
"""POST AppCallersReport → AppCallersReply: whose connections to apps are open, and which of them have to end."""
CONTAINER_HEADER = "X-Penstock-Container"
"""In the head of a request the edge says at a port of an agent whose port it takes that for: the container's id."""
CALLER_HEADER = "X-Penstock-Caller"
"""Beside it: by which login or key of the site the request comes, for as long as the connection lasts."""
MAX_CALLER = 64
"""Characters of the name of a login or a key."""


class AppCaller(Report):
    """Somebody with connections to a container: `caller` is what the edge says of the login or the key."""

    container_id: str
    caller: str = Field(max_length=MAX_CALLER)


class AppCallersReport(Report):
    """Whose connections are open at the ports of a node."""

    name: str
    callers: list[AppCaller] = Field(max_length=10_000)


class AppCallersReply(Report):
    """Those of them whose connections have to end, and when to report next, in seconds."""

    leave: list[AppCaller]
    interval_s: float = Field(default=5.0, gt=0)
