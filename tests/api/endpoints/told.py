"""Lines of the audit log that requests of tests leave, held against the answers: none may be missing, or be wrong."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.database import Database
from api.endpoints import auditing
from api.endpoints.change_rate import ChangeRate, DryRunRate
from api.tables.audit import AuditEvent
from tests.api.cluster import V1, Cluster
from tests.installed import PASSWORD

DRY_RUNS = (f"{V1}/sessions/check", "/launch/check")
READS = (f"{V1}/audit", "/audit", f"{V1}/logs")
"""What is told though it changes nothing, by the beginnings of its path."""
EDGE = f"{V1}/apps/authorize"
A_KEY = re.compile(r"psk_[\w-]{7}")
"""More of a key than lists of keys show."""
LOGIN = f"{V1}/auth/login"
"""Is told by the name that somebody signs in with."""


@dataclass
class Told:
    """What a cluster answers and what it tells: `entries` are the lines by request, none of which stays."""

    entries: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    answers: list[httpx.Response] = field(default_factory=list)

    @asynccontextmanager
    async def undone(self, database: Database) -> AsyncIterator[AsyncSession]:
        """Give a transaction of which nothing stays, when its lines are read in it: those are the change's own."""
        async with database._writers() as db:
            yield db
            for entry in await db.scalars(select(AuditEvent.entry)):
                self.entries[entry["request"]].append(entry)
            await db.rollback()

    async def hear(self, answer: httpx.Response) -> None:
        """Take note of an answer; a hook of a client."""
        await answer.aread()
        self.answers.append(answer)

    def faults(self, user: str) -> str:
        """Return what is not told of the answers so far that somebody had, or not as it was, a line each."""
        return "\n".join(dict.fromkeys(fault for answer in self.answers if (fault := self._fault(answer, user))))

    def _fault(self, answer: httpx.Response, user: str) -> str:
        request, status = answer.request, _meant(answer)
        said = f"{request.method} {request.url.path} -> {status}"
        lines = self.entries.pop(answer.headers["X-Request-Id"], [])
        wanted = _wanted(answer, status)
        if request.url.path == EDGE and [line["status"] for line in lines] == [403]:
            # who may open no app at all is told that there is none
            status, wanted = 403, "refused"
        if [line["result"] for line in lines] != ([wanted] if wanted else []):
            return f"{said} is told as {[line['result'] for line in lines]}, not as {wanted or 'nothing'}"
        text = json.dumps(lines)
        if PASSWORD in text or A_KEY.search(text) or _secret_of(answer) in text:
            return f"{said} tells a secret: {text}"
        by = "" if request.url.path.startswith("/agent/") else user
        if lines and request.url.path != LOGIN and (lines[0]["user"], lines[0]["method"]) != (by, request.method):
            return f"{said} is told as by {lines[0]['user']}"
        if lines and lines[0]["status"] != status:
            return f"{said} is told with status {lines[0]['status']}"
        return ""


def watch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Return what a cluster tells from now on: nothing that it does stays, and nobody asks for too much."""
    told = Told()
    monkeypatch.setattr(cluster.database, "transaction", lambda: told.undone(cluster.database))
    monkeypatch.setattr(auditing, "OF_A_MINUTE", 10**9)
    monkeypatch.setattr(auditing, "OF_PROGRAMS", 10**9)
    cluster.app.state.change_rate = ChangeRate(10**9, cluster.clock)
    cluster.app.state.dry_run_rate = DryRunRate(10**9, cluster.clock)
    return told


def _meant(answer: httpx.Response) -> int:
    return int(answer.headers.get("X-Status", answer.status_code))


def _wanted(answer: httpx.Response, status: int) -> str:
    """Return how an answer has to be told; empty where it need not be.

    Whoever shows nothing of who he is learns nothing by looking, and pages send him to sign in.
    """
    request, path = answer.request, answer.request.url.path
    changes = request.method not in ("GET", "HEAD") and path not in DRY_RUNS
    shows = {"authorization", "cookie"} & {*request.headers}
    if status in (401, 403):
        return "refused" if changes or shows or path.startswith(READS) else ""
    if path.startswith("/agent/"):
        return ""
    if status == 404 and shows:
        return "failed"
    if not changes and not path.startswith(READS):
        return ""
    return "failed" if status >= 400 else "done"


def _secret_of(answer: httpx.Response) -> str:
    """Return the secret that an answer shows once; a text that no line has where it shows none."""
    is_json = answer.headers.get("Content-Type") == "application/json"
    found = json.loads(answer.text) if is_json and answer.text else None
    told = found.get("key") or found.get("csrf_token") if isinstance(found, dict) else None
    return str(told) if told and isinstance(told, str) else "\0"
