"""How the agent reports: what it tells an API that is away, or whose replies are lost."""

from __future__ import annotations

import json
from typing import Any, cast

import httpx
import pytest

from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.reports.heartbeat import MAX_DELAY_S, HeartbeatReporter, delay_after, own_delay_after
from appliance.agent.settings import Settings
from common.audit_protocol import AUDIT_HEAD_HEADER
from common.protocol import (
    MACHINE_HEADER,
    PROTOCOL_HEADER,
    ContainerState,
    ContainerStatus,
    HeartbeatReply,
    NodeInfo,
)

pytestmark = pytest.mark.anyio


class Idle:
    """A supervisor of a node that runs nothing."""

    def states(self) -> list[Any]:
        return []


class Odd(Idle):
    """A supervisor of three containers, of one of which a word has come that cannot be written."""

    def states(self) -> list[Any]:
        running = ContainerState(id="c1", session_id="s1", status=ContainerStatus.RUNNING)
        odd = {"id": "c2", "status": ContainerStatus.FAILED, "error": "\udcff"}
        return [running, running.model_copy(update=odd), running.model_copy(update={"id": "c3"})]


class Api:
    """A control API that answers with 204 what repeats itself; of `lost` first replies nothing comes through."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.boots: list[str] = []
        self.machines: set[str] = set()
        self.containers: list[Any] = []
        self.displaced = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        heartbeat = json.loads(request.content)
        self.containers = heartbeat.get("containers", [])
        self.machines.add(request.headers[MACHINE_HEADER])
        repeats = heartbeat["boot"] in self.boots
        self.boots.append(heartbeat["boot"])
        if self.lost:
            self.lost -= 1
            raise httpx.ReadTimeout("the reply is lost")
        if self.displaced:
            return httpx.Response(409)
        if repeats:
            return httpx.Response(204)
        return httpx.Response(200, content=HeartbeatReply(interval_s=2).model_dump_json())


def reporter_of(containers: Idle) -> HeartbeatReporter:
    settings = Settings.model_construct(name="worker1", address="10.0.0.1", port=6001)
    node_info = NodeInfo(name="worker1", agent_version="1", engine_version="1", os="o", cpu_milli=1, memory_mib=1)
    return HeartbeatReporter(settings, lambda: node_info, cast("Supervisor", containers), machine="machine-1")


@pytest.fixture
def reporter() -> HeartbeatReporter:
    return reporter_of(Idle())


async def test_a_state_that_cannot_be_told_keeps_no_other_from_being_told() -> None:
    api = Api(0)
    async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="https://api") as client:
        assert await reporter_of(Odd()).report(client) == 2
    told = [(state["id"], state["status"], "warning" in state) for state in api.containers]
    assert told == [("c1", "running", False), ("c2", "failed", True), ("c3", "running", False)]


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_what_a_lost_reply_said_is_learned_from_a_later_one(reporter: HeartbeatReporter, lost: int) -> None:
    api = Api(lost)
    async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="https://api") as client:
        for _ in range(lost):
            with pytest.raises(httpx.ReadTimeout):
                await reporter.report(client)
        assert await reporter.report(client) == 2
        assert await reporter.report(client) == 2
    assert api.boots[-1] == api.boots[-2], "one run of the agent is one boot, once it is known"


async def test_what_an_answer_says_of_the_audit_log_is_noted_whatever_else_it_says() -> None:
    noted: list[str] = []
    settings = Settings.model_construct(name="worker1", address="10.0.0.1", port=6001)
    node_info = NodeInfo(name="worker1", agent_version="1", engine_version="1", os="o", cpu_milli=1, memory_mib=1)
    reporter = HeartbeatReporter(settings, lambda: node_info, cast("Supervisor", Idle()), list, noted.append)
    answers = [
        httpx.Response(200, content="{}", headers={AUDIT_HEAD_HEADER: "1:a"}),
        httpx.Response(204, headers={AUDIT_HEAD_HEADER: "2:b"}),
        httpx.Response(204),
    ]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:
        while answers:
            await reporter.report(client)
    assert noted == ["1:a", "2:b"]


async def test_an_agent_that_another_one_displaced_begins_anew(reporter: HeartbeatReporter) -> None:
    api = Api(0)
    async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="https://api") as client:
        await reporter.report(client)
        api.displaced = True
        assert await reporter.report(client) < 1
        api.displaced = False
        assert await reporter.report(client) == 2
    assert api.boots[0] == api.boots[1] != api.boots[2]
    assert api.machines == {"machine-1"}, "a new boot is of the same machine"


async def test_what_an_api_of_before_refuses_is_not_told_until_one_answers_that_knows_it() -> None:
    """That release refuses a whole heartbeat for one key that it does not know, and says no protocol."""
    told: list[bool] = []
    answers = [
        httpx.Response(422),
        httpx.Response(200, content="{}"),
        httpx.Response(200, content="{}", headers={PROTOCOL_HEADER: "1"}),
        httpx.Response(200, content="{}", headers={PROTOCOL_HEADER: "1"}),
    ]

    def api(request: httpx.Request) -> httpx.Response:
        told.append("no_rdma" in json.loads(request.content)["node_info"])
        return answers.pop(0)

    settings = Settings.model_construct(name="worker1", address="10.0.0.1", port=6001)
    has = NodeInfo(name="w", agent_version="1", engine_version="1", os="o", cpu_milli=1, memory_mib=1, no_rdma="down")
    reporter = HeartbeatReporter(settings, lambda: has, cast("Supervisor", Idle()))
    async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="https://api") as client:
        with pytest.raises(httpx.HTTPStatusError):
            await reporter.report(client)
        while answers:
            await reporter.report(client)
    assert told == [True, False, False, True]


@pytest.mark.parametrize(("failures", "delay_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (7, MAX_DELAY_S), (5000, MAX_DELAY_S)])
def test_waits_longer_with_every_failure_for_ever(failures: int, delay_s: float) -> None:
    assert delay_after(failures) == delay_s


def test_agents_that_failed_together_come_back_apart() -> None:
    delays = {own_delay_after(4) for _ in range(100)}
    assert len(delays) > 90
    assert 2.0 <= min(delays) <= max(delays) <= 4.0
