"""The protocol of API and node agent: system calls that sandboxes denied. Pure."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from common.messages import Report

DENIED_CALLS_PATH = "/agent/v1/denied-calls"
"""POST DeniedCallReport → 204: which system calls sandboxes denied. Counts only grow, so a report may come twice."""


class DeniedCall(Report):
    """System calls that a sandbox denied to processes of one name in one container, from `first_at` to `last_at`.

    `count` is how many since `first_at`, which tells one series from the next. `pid` is that of the last process, as
    the container numbers them. `effect` is the errno, or `killed`. Where an agent had to put many processes or calls
    together, their name is `*`.
    """

    container_id: str
    session_id: str
    call: str = Field(min_length=1, max_length=40)
    process: str = Field(max_length=64)
    pid: int = Field(ge=0)
    effect: str = Field(min_length=1, max_length=24)
    first_at: datetime
    last_at: datetime
    count: int = Field(ge=1)


class DeniedCallReport(Report):
    """Denied system calls of a node; what was not taken is sent again."""

    name: str
    denied_calls: list[DeniedCall] = Field(max_length=1000)
