"""The agent's interface: what it refuses, and how."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from appliance.agent import supervision
from appliance.agent.app import make
from appliance.agent.settings import Settings
from common import problem
from common.errors import ConflictError, ForbiddenError, NotFoundError, PenstockError, UnavailableError
from tests.fakes.refusing_runtime import refusing

pytestmark = pytest.mark.anyio
SETTINGS = Settings(
    name="worker1", address="192.0.2.2", api_url="https://master1", ca=Path(), cert=Path(), key=Path(), allowed=("m",)
)
SPEC = {"id": "c1", "session_id": "s", "session_name": "s", "project": "p", "user": "u", "image": "i"}


def agent(error: Exception, peer: str = "m") -> httpx.AsyncClient:
    """Return a caller of an agent whose containers refuse everything."""
    application = make(SETTINGS, refusing(error))

    async def served(scope: MutableMapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        await application({**scope, "state": {"peer": peer}}, receive, send)

    return httpx.AsyncClient(
        transport=httpx.ASGITransport(served, raise_app_exceptions=False), base_url="https://worker1"
    )


async def put(error: Exception, body: Any = SPEC, **headers: str) -> httpx.Response:
    async with agent(error) as caller:
        return await caller.put("/v1/containers/c1", json=body, headers=headers)


@pytest.mark.parametrize("kind", [ConflictError, NotFoundError, UnavailableError, ForbiddenError])
async def test_what_its_parts_refuse_is_told_as_it_was_said(kind: type[PenstockError]) -> None:
    answer = await put(kind("is in use", where="gpus.0.uuid", hint="take another"))
    assert (answer.status_code, answer.headers["Content-Type"]) == (kind.http_status, problem.MEDIA_TYPE)
    assert answer.json()["errors"] == [{"pointer": "/gpus/0/uuid", "detail": "is in use", "hint": "take another"}]
    assert type(problem.read(answer.status_code, answer.content)) is kind


async def test_what_is_not_valid_is_pointed_at() -> None:
    answer = await put(ZeroDivisionError(), {**SPEC, "colour": "red", "gpus": [{"uuid": 1}]})
    assert answer.status_code == 422
    assert {"/colour", "/gpus/0/uuid"} <= {one["pointer"] for one in answer.json()["errors"]}


async def test_a_call_of_another_release_is_no_answer_about_a_container() -> None:
    async with agent(ZeroDivisionError()) as caller:
        for answer in (await caller.get("/v1/unknown"), await caller.post("/v1/containers/c1")):
            assert answer.status_code == 501
            assert type(problem.read(501, answer.content)) is UnavailableError


async def test_who_may_not_call_is_refused_in_the_same_form() -> None:
    async with agent(ZeroDivisionError(), peer="worker2") as caller:
        answer = await caller.get("/v1/health")
    error = problem.read(answer.status_code, answer.content)
    assert str(error).startswith("certificate: the certificate of worker2 may not call this agent.")


async def test_the_name_that_the_api_gives_a_request_stands_in_answer_and_log() -> None:
    with capture_logs(processors=[merge_contextvars]) as lines:
        answer = await put(ZeroDivisionError(), **{"X-Request-Id": "r1"})
    assert (answer.status_code, answer.headers["X-Request-Id"], answer.json()["request_id"]) == (500, "r1", "r1")
    assert [(line["event"], line["request_id"]) for line in lines] == [("launch", "r1"), ("unexpected", "r1")]


async def test_nobody_else_names_requests() -> None:
    async with agent(ZeroDivisionError(), peer="worker2") as caller:
        answer = await caller.get("/v1/health", headers={"X-Request-Id": "r1"})
    assert answer.headers["X-Request-Id"] == answer.json()["request_id"] != "r1"


async def test_no_task_of_the_agent_ends_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats, which cannot begin without certificates, and what a runtime wants, which fails twice."""
    monkeypatch.setattr(supervision, "PAUSE_S", 0.01)
    begun: list[float] = []
    runs = asyncio.Event()

    async def work() -> None:
        begun.append(time.monotonic())
        if len(begun) <= 2:
            raise KeyError("what nobody expected")
        runs.set()
        await asyncio.Event().wait()

    application = make(SETTINGS, dataclasses.replace(refusing(ZeroDivisionError()), tasks={"odd": work}))
    with capture_logs() as lines:
        async with application.router.lifespan_context(application):
            await asyncio.wait_for(runs.wait(), 60)
    failed = [line["task"] for line in lines if line["log_level"] == "error"]
    assert failed.count("odd") == 2
    assert failed.count("heartbeats") > 1
