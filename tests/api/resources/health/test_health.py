"""Checks that agents report: their states, what they close, their history, and what people say of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from api.clock import now
from api.tables.nodes import Node
from appliance.agent.health import gpu_checks
from appliance.agent.health.gpu_checks import LogLine
from appliance.agent.health.monitor import Monitor
from appliance.gpu.devices import GpuHealth
from common.check_protocol import CheckReport
from common.checks import Check, CheckState
from common.health import Damping
from common.protocol import HEARTBEAT_PATH
from common.settings.health import HealthSettings
from tests.api.cluster import V1, Cluster, ok, refused
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio

FULL = "97 % is full"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def disk(state: str = "fail", since: datetime = AT) -> CheckReport:
    hint = "" if state == "ok" else "look at `du`"
    return CheckReport(
        id="disk", name="disk has room", state=CheckState(state), thing="/", evidence=FULL, hint=hint, since=since
    )


async def told(cluster: Cluster, *checks: CheckReport) -> None:
    assert (await cluster.heartbeat(checks=checks)).is_success
    await cluster.settle()


async def check_of(cluster: Cluster, node: str = "worker1", check: str = "disk") -> dict[str, Any]:
    [found] = [
        each for each in await ok(cluster.admin.get(f"{V1}/health/checks?node={node}")) if each["check"] == check
    ]
    return dict(found)


@pytest.mark.parametrize("field", ["id", "thing", "evidence"])
async def test_a_check_that_the_database_cannot_keep_is_left_out(ready: Cluster, field: str) -> None:
    await told(ready, disk().model_copy(update={field: "a\0"}), disk(since=AT).model_copy(update={"id": "memory"}))
    checks = await ok(ready.admin.get(f"{V1}/health/checks?node=worker1"))
    assert [each["check"] for each in checks if each["check"] != "agent"] == ["memory"]


async def test_a_failing_check_closes_its_node_and_says_why(ready: Cluster) -> None:
    await told(ready, disk())
    found = await check_of(ready)
    assert (found["state"], found["evidence"], found["closes"]) == ("fail", FULL, True)
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert (node["state"], node["unhealthy"]) == ("ready", "disk /")
    assert (await ok(ready.admin.get(f"{V1}/nodes")))[0]["unhealthy"] == "disk /"
    await ready.submit("waits")
    await ready.settle()
    session = await ready.session("waits")
    assert session["state"] == "PENDING"
    assert session["reason"].startswith("no node is ready, worker1 is unhealthy (disk /)")
    await told(ready, disk("ok"))
    assert (await ready.session("waits"))["state"] == "RUNNING"
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["unhealthy"] == ""


async def test_where_others_are_full_the_unhealthy_one_is_named_too(ready: Cluster) -> None:
    await ready.add_node("worker2", gpus=1)
    await ready.add_project("team-b", 4000)
    await told(ready, disk())
    await ready.submit("one", gpu_milli=1000, project="team-b")
    await ready.settle()
    await ready.submit("two", gpu_milli=1000, project="team-b")
    await ready.settle()
    assert "worker1 is unhealthy (disk /)" in (await ready.session("two", "team-b"))["reason"]


async def test_a_warning_closes_nothing(ready: Cluster) -> None:
    await told(ready, disk("warn"))
    assert not (await check_of(ready))["closes"]
    await ready.submit("runs")
    await ready.settle()
    assert (await ready.session("runs"))["state"] == "RUNNING"


async def test_what_matters_is_the_site_s_choice(closing_nothing: Cluster) -> None:
    await told(closing_nothing, disk())
    assert not (await check_of(closing_nothing))["closes"]
    assert (await ok(closing_nothing.admin.get(f"{V1}/nodes/worker1")))["unhealthy"] == ""


async def test_history_has_every_change_newest_first(ready: Cluster) -> None:
    for state in ("ok", "warn", "warn", "fail", "ok"):
        await told(ready, disk(state))
    found = await ok(ready.admin.get(f"{V1}/health/changes?node=worker1&check=disk"))
    assert [(one["before"], one["after"]) for one in found] == [("fail", "ok"), ("warn", "fail"), ("ok", "warn")]
    page = await ready.admin.get(f"{V1}/health/changes?node=worker1&check=disk&limit=2")
    rest = await ok(ready.admin.get(f"{V1}/health/changes?check=disk&after={page.headers['X-Next']}"))
    assert [one["number"] for one in [*page.json(), *rest]] == [one["number"] for one in found]


async def test_an_agent_that_just_began_changes_nothing_and_what_is_gone_is_well(ready: Cluster) -> None:
    await told(ready, disk())
    await told(ready)
    assert (await check_of(ready))["state"] == "fail"
    other = CheckReport(id="memory", name="memory is left", state=CheckState.OK)
    await told(ready, other)
    checks = await ok(ready.admin.get(f"{V1}/health/checks?node=worker1"))
    assert [each["check"] for each in checks if each["check"] != "agent"] == ["memory"]
    [gone, *_] = await ok(ready.admin.get(f"{V1}/health/changes?check=disk"))
    assert (gone["after"], gone["evidence"]) == ("ok", "it is not reported any more")
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["unhealthy"] == ""


async def test_what_was_cleared_counts_again_when_it_occurs_anew(ready: Cluster) -> None:
    await told(ready, disk())
    identity = (await check_of(ready))["id"]
    cleared = await ok(ready.admin.post(f"{V1}/health/checks/{identity}/clear"))
    assert (cleared["state"], cleared["evidence"]) == ("ok", f"cleared by admin; it was: {FULL}")
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["unhealthy"] == ""
    # the same occurrence, as an agent tells it that was started again
    await told(ready, disk(since=AT + timedelta(seconds=1)))
    assert (await check_of(ready))["state"] == "ok"
    await told(ready, disk(since=AT + timedelta(minutes=1)))
    assert (await check_of(ready))["state"] == "fail"


class Gpu:
    """An agent's looks at one GPU, of whose temperature and errors a test tells."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._moment = 0.0
        self.heat = 40
        self.silent = ""
        self.log: list[LogLine] = []
        self.start()

    def start(self) -> None:
        """Start the agent again, which knows nothing of before."""
        self._monitor = Monitor({"gpu": self._look}, Damping(), lambda: self._moment)

    def xid(self, at: datetime) -> None:
        self.log.append(LogLine(at.isoformat(), "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."))

    async def looks(self, number: int) -> str:
        """Look so often; returns why the node is closed."""
        for _ in range(number):
            self._moment += 10
            await self._monitor.look()
            await told(self._cluster, *self._monitor.reports())
        return str((await ok(self._cluster.admin.get(f"{V1}/nodes/worker1")))["unhealthy"])

    async def clear(self, check: str) -> None:
        identity = (await check_of(self._cluster, check=check))["id"]
        await ok(self._cluster.admin.post(f"{V1}/health/checks/{identity}/clear"))

    def _look(self) -> list[Check]:
        found = {"GPU-1": GpuHealth(bus="0000:3b:00.0", silent=self.silent, temperature_c=self.heat)}
        return list(gpu_checks.checks(found, self.log, HealthSettings()))


async def test_an_error_of_a_gpu_that_was_cleared_counts_when_it_occurs_anew(ready: Cluster) -> None:
    gpu = Gpu(ready)
    gpu.xid(AT)
    assert await gpu.looks(1) == "gpu.xid GPU-1"
    await gpu.clear("gpu.xid")
    gpu.start()
    assert await gpu.looks(3) == ""
    gpu.xid(AT + timedelta(minutes=90))
    assert await gpu.looks(1) == "gpu.xid GPU-1"


async def test_an_error_after_the_clock_of_its_node_was_put_back_counts_though_one_was_cleared(ready: Cluster) -> None:
    gpu = Gpu(ready)
    gpu.xid(AT)
    await gpu.looks(1)
    await gpu.clear("gpu.xid")
    gpu.xid(AT - timedelta(days=1))
    assert await gpu.looks(3) == "gpu.xid GPU-1"


async def test_what_was_cleared_stays_so_when_its_agent_starts_again(ready: Cluster) -> None:
    gpu = Gpu(ready)
    gpu.heat = 99
    assert await gpu.looks(1) == "gpu.temperature GPU-1"
    await gpu.clear("gpu.temperature")
    gpu.start()
    assert await gpu.looks(3) == ""
    gpu.heat = 40
    await gpu.looks(3)
    gpu.heat = 99
    assert await gpu.looks(2) == "gpu.temperature GPU-1"


async def test_what_was_cleared_counts_when_it_gets_worse(ready: Cluster) -> None:
    gpu = Gpu(ready)
    gpu.heat = 90
    await gpu.looks(1)
    await gpu.clear("gpu.temperature")
    assert await gpu.looks(3) == ""
    gpu.heat = 99
    assert await gpu.looks(2) == "gpu.temperature GPU-1"


async def test_a_gpu_that_is_silent_for_a_moment_loses_neither_its_error_nor_who_knows_of_it(ready: Cluster) -> None:
    gpu = Gpu(ready)
    gpu.xid(AT)
    await gpu.looks(2)
    path = f"{V1}/health/checks/{(await check_of(ready, check='gpu.xid'))['id']}/acknowledgement"
    await ok(ready.admin.put(path, json={"until": (now() + timedelta(hours=1)).isoformat()}))
    gpu.silent = "it has fallen off the bus"
    assert await gpu.looks(1) == "gpu.xid GPU-1"
    gpu.silent = ""
    await gpu.looks(2)
    found = await check_of(ready, check="gpu.xid")
    assert (found["state"], found["acknowledged_by"]) == ("fail", "admin")


async def test_an_acknowledgement_has_an_end_and_keeps_the_node_closed(ready: Cluster) -> None:
    await told(ready, disk())
    path = f"{V1}/health/checks/{(await check_of(ready))['id']}/acknowledgement"
    until = now() + timedelta(hours=1)
    found = await ok(ready.admin.put(path, json={"until": until.isoformat(), "comment": "a disk is ordered"}))
    assert (found["acknowledged_by"], found["comment"], found["closes"]) == ("admin", "a disk is ordered", True)
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["unhealthy"] == "disk /"
    assert (await ok(ready.admin.delete(path)))["acknowledged_until"] is None
    over = {"until": (now() - timedelta(seconds=1)).isoformat()}
    assert (await refused(ready.admin.put(path, json=over), 422))["where"] == "until"


async def test_an_acknowledgement_ends_after_90_days_at_most(ready: Cluster) -> None:
    await told(ready, disk())
    path = f"{V1}/health/checks/{(await check_of(ready))['id']}/acknowledgement"
    await ok(ready.admin.put(path, json={"until": (now() + timedelta(days=90)).isoformat()}))
    too_long = {"until": (now() + timedelta(days=90, minutes=1)).isoformat()}
    problem = await refused(ready.admin.put(path, json=too_long), 422)
    assert (problem["where"], "90 days" in problem["reason"], "acknowledge it again" in problem["hint"]) == (
        "until",
        True,
        True,
    )


async def test_checks_of_a_node_go_with_it_and_its_history_stays(ready: Cluster) -> None:
    await told(ready, disk())
    await ok(ready.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    await ok(ready.admin.delete(f"{V1}/nodes/worker1"))
    assert await ok(ready.admin.get(f"{V1}/health/checks?node=worker1")) == []
    assert len(await ok(ready.admin.get(f"{V1}/health/changes?node=worker1"))) == 1


async def test_a_check_that_nobody_knows_costs_no_heartbeat(ready: Cluster) -> None:
    body = beat(next(ready.sequences), "boot-1", gpus=4, checks=[disk()]).model_dump(mode="json")
    body["checks"][0]["state"] = "smouldering"
    body["checks"].append({"id": 7})
    async with ready.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        assert (await agent.post(HEARTBEAT_PATH, json=body)).status_code == 200
    await ready.settle()
    assert (await check_of(ready))["state"] == "unknown"


async def test_a_node_that_the_scheduler_passes_over_is_not_open_in_the_metrics(ready: Cluster) -> None:
    line = 'penstock_node_open{mode="active",node="worker1",state="ready"} '
    assert f"{line}1.0\n" in (await ready.admin.get(f"{V1}/metrics")).text
    async with ready.database.transaction() as db:
        await db.execute(update(Node).values(unknown_containers=1))
    assert f"{line}0.0\n" in (await ready.admin.get(f"{V1}/metrics")).text


async def test_metrics_have_a_line_for_each_check_and_node(ready: Cluster) -> None:
    await told(ready, disk())
    text = (await ready.admin.get(f"{V1}/metrics")).text
    assert 'penstock_check_state{acknowledged="no",check="disk",node="worker1",repair="",thing="/"} 3.0\n' in text
    assert 'penstock_node_open{mode="active",node="worker1",state="ready"} 0.0\n' in text
