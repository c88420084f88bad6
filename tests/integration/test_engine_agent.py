"""The engine `direct` and an agent's interface over mutual TLS: what the agent refuses is what the API hears."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog
import uvicorn
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.typing import EventDict

from api.engine.base import AgentAddress, UnreachableError
from api.engine.direct import DirectEngine, client_context
from appliance.agent.app import make
from appliance.agent.server import PeerProtocol
from appliance.agent.settings import Settings
from common.errors import ConflictError, InputError, NotFoundError, PenstockError, Problem, UnavailableError
from common.protocol import ContainerSpec
from tests.fakes.refusing_runtime import refusing
from tests.integration.agent.conftest import Authority, authority, free_port  # noqa: F401

pytestmark = pytest.mark.anyio
SPEC = ContainerSpec(id="c1", session_id="s", session_name="s", project="p", user="u", image="i")


@pytest.fixture
def lines() -> Iterator[list[EventDict]]:
    """What is logged in the threads of this process."""
    found: list[EventDict] = []

    def keep(_logger: object, _method: str, line: EventDict) -> EventDict:
        found.append(line)
        raise structlog.DropEvent

    structlog.configure(processors=[merge_contextvars, keep])
    yield found
    structlog.reset_defaults()


@asynccontextmanager
async def agent(pki: Authority, error: Exception) -> AsyncIterator[AgentAddress]:
    """Serve an agent that refuses everything."""
    certificate, key = pki.issue("worker1")
    settings = Settings(
        name="worker1",
        address="127.0.0.1",
        port=free_port(),
        api_url="https://127.0.0.1",
        ca=pki.ca,
        cert=certificate,
        key=key,
        allowed=("master",),
    )
    config = uvicorn.Config(
        make(settings, refusing(error)),
        host="127.0.0.1",
        port=settings.port,
        http=PeerProtocol,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_ca_certs=str(pki.ca),
        ssl_cert_reqs=2,
        log_level="critical",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        await asyncio.sleep(0.01)
    try:
        yield AgentAddress("worker1", "127.0.0.1", settings.port)
    finally:
        server.should_exit = True
        await asyncio.to_thread(thread.join)


@asynccontextmanager
async def calling(pki: Authority) -> AsyncIterator[DirectEngine]:
    """Return the engine of an API that answers the request `r1`."""
    engine = DirectEngine(client_context(pki.ca, *pki.issue("master")))
    try:
        with bound_contextvars(request_id="r1"):
            yield engine
    finally:
        await engine.close()


@pytest.mark.parametrize("kind", [InputError, ConflictError, NotFoundError])
async def test_a_refusal_is_the_same_error_on_both_sides(
    authority: Authority,  # noqa: F811
    kind: type[PenstockError],
) -> None:
    told = kind("GPU-1 is in use", where="gpus[0].uuid", hint="take another")
    async with agent(authority, told) as worker, calling(authority) as engine:
        with pytest.raises(kind) as heard:
            await engine.launch(worker, SPEC)
    assert heard.value.problems == told.problems == (Problem("gpus[0].uuid", "GPU-1 is in use", "take another"),)


@pytest.mark.parametrize("error", [UnavailableError("Docker is away"), ZeroDivisionError()])
async def test_what_fails_on_the_agent_s_side_may_pass(
    authority: Authority,  # noqa: F811
    error: Exception,
) -> None:
    failed = pytest.raises(UnreachableError, match="the agent of worker1 failed: ")
    async with agent(authority, error) as worker, calling(authority) as engine:
        with failed as heard:
            await engine.launch(worker, SPEC)
    assert heard.value.delivered
    assert heard.value.answered


async def test_the_agent_s_lines_name_the_request_that_led_to_them(
    authority: Authority,  # noqa: F811
    lines: list[EventDict],
) -> None:
    async with agent(authority, NotFoundError("no container c1")) as worker, calling(authority) as engine:
        with pytest.raises(NotFoundError):
            await engine.launch(worker, SPEC)
        with pytest.raises(NotFoundError):
            await anext(aiter(engine.logs(worker, "c1", follow=False, tail=None)))
        async with engine.terminal(worker, "c1", ["sh"], tty=None, apart=False) as terminal:
            assert "no container c1" in str(await anext(aiter(terminal)))
    asked = ["launch", "logs", "terminal"]
    assert [(line["event"], line["request_id"]) for line in lines if line["event"] in asked] == [
        (event, "r1") for event in asked
    ]


async def test_no_proxy_of_the_environment_stands_before_agents(
    authority: Authority,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, nobody)
        monkeypatch.setenv(name.lower(), nobody)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with agent(authority, NotFoundError("no container c1")) as worker, calling(authority) as engine:
        with pytest.raises(NotFoundError):
            await engine.launch(worker, SPEC)
        async with engine.terminal(worker, "c1", ["sh"], tty=None, apart=False) as terminal:
            assert "no container c1" in str(await anext(aiter(terminal)))
