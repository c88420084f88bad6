"""The audit log elsewhere: nodes remember how far it went, and so a log that was put back is found out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from api.resources.audit import retention, service
from api.resources.audit.log_files import LogFiles
from api.tables.audit import AuditHead as Row
from common.audit_protocol import AUDIT_HEAD_HEADER, AuditHead
from common.errors import UnavailableError
from common.protocol import HEARTBEAT_PATH
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.fakes.heartbeats import beat

pytestmark = pytest.mark.anyio


async def told(cluster: Cluster, name: str = "worker1") -> AuditHead:
    """What the answer to a heartbeat says of the log."""
    await cluster.manager.observe()
    answer = await cluster.heartbeat(name)
    seq, _, mac = answer.headers[AUDIT_HEAD_HEADER].partition(":")
    return AuditHead(seq=int(seq), mac=mac)


async def findings(cluster: Cluster) -> list[str]:
    verdict = await ok(cluster.admin.get(f"{V1}/audit/verification"))
    return [one["what"] for one in verdict["findings"]]


def files_of(cluster: Cluster) -> LogFiles:
    files = service.log_of(cluster.settings)
    assert files
    return files


async def test_an_old_head_and_a_log_that_was_cut_off_to_it_are_found_out_by_the_nodes(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_project("vision", 0)
    await audited.settle()
    before = await told(audited)
    path = Path(str(audited.settings.audit_folder)) / f"{files_of(audited).days()[0].day}.log"
    kept = path.read_bytes()
    await audited.add_project("sound", 0)
    await audited.settle()
    after = await told(audited)
    assert after.seq == before.seq + 1
    audited.engine.heads["worker1"] = [before, after]
    assert await findings(audited) == []
    path.write_bytes(kept)
    async with audited.database.transaction() as db:
        await db.execute(update(Row).values(seq=before.seq, mac=before.mac))
    assert await findings(audited) == [f"the log ends with line {before.seq}, and worker1 has seen {after.seq}"]
    for name in ("smell", "touch", "taste"):
        await audited.add_project(name, 0)
    await audited.settle()
    assert await findings(audited) == [f"line {after.seq} is another one than worker1 has seen"]


async def test_a_heartbeat_that_repeats_the_last_one_is_told_the_head_too(audited: Cluster) -> None:
    body = beat(7).model_dump_json()
    async with audited.client(**{"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}) as agent:
        first = await agent.post(HEARTBEAT_PATH, content=body, headers={"Content-Type": "application/json"})
        assert AUDIT_HEAD_HEADER not in first.headers, "there is none yet"
        await audited.add_project("vision", 0)
        await audited.settle()
        await audited.manager.observe()
        again = await agent.post(HEARTBEAT_PATH, content=body.replace('"sequence":7', '"sequence":8'))
    assert again.status_code == 204
    async with audited.database.reading() as db:
        assert again.headers[AUDIT_HEAD_HEADER] == str(await service.head(db))


async def test_a_node_that_does_not_say_what_it_has_seen_is_named(audited: Cluster) -> None:
    await audited.add_node()
    audited.engine.failure = UnavailableError("it is away")
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert (verdict["ok"], verdict["unheard"]) == (True, ["worker1"])


async def test_what_touched_a_node_is_found_by_it(audited: Cluster) -> None:
    await audited.add_node()
    await audited.add_node("worker2")
    await audited.add_image()
    await audited.add_project("team-a", 4000)
    await audited.submit("one")
    await audited.settle()
    node = (await audited.session("one"))["node"]
    await ok(audited.admin.delete(f"{V1}/sessions/one", params={"project": "team-a"}))
    await audited.settle()
    await ok(audited.admin.patch(f"{V1}/nodes/{node}/mode", json={"mode": "maintenance"}))
    other = "worker2" if node == "worker1" else "worker1"
    await ok(audited.admin.patch(f"{V1}/nodes/{other}/mode", json={"mode": "maintenance"}))
    await audited.settle()
    found = await ok(audited.admin.get(f"{V1}/audit", params={"node": node}))
    assert [(line["action"], line["nodes"]) for line in found] == [
        ("node_change", [node]),
        ("session_end", [node]),
    ]


def entry(seq: int, at: datetime) -> tuple[str, dict[str, Any]]:
    """A line of some day."""
    plain = retention.deletion([{"day": "", "first": 0, "last": -1, "mac": ""}], f"{at:%FT%T.%fZ}")
    return f"{seq}", {**plain, "user": "alice", "deleted": None, "domains": [], "changes": [], "nodes": []}


def write_days(cluster: Cluster, ago: range) -> list[str]:
    """Write a line for each of some days; the log's last day comes with what the cluster is asked next."""
    files, days = files_of(cluster), []
    for days_ago in ago:
        at = datetime.now(UTC) - timedelta(days=days_ago)
        files.append([entry(days_ago, at)], at)
        days.append(f"{at:%Y%m%d}")
    return days


async def test_files_that_are_too_old_go_and_the_log_says_which_lines_they_had(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "key").write_text("a key of these tests")
    folders = {"audit_folder": tmp_path / "log", "audit_key": tmp_path / "key", "audit_keep_days": 3}
    async with running_cluster(database_url, **folders) as cluster:
        days = write_days(cluster, range(6, 0, -1))
        await cluster.add_project("vision", 0)
        await cluster.settle()
        today = f"{datetime.now(UTC):%Y%m%d}"
        assert [one.day for one in files_of(cluster).days()] == [*days[3:], today]
        await cluster.settle()
        verdict = await ok(cluster.admin.get(f"{V1}/audit/verification"))
        assert verdict["ok"], verdict["findings"]
        (gone,) = verdict["deleted"]
        assert (gone["day"], gone["through"], gone["first"], gone["last"]) == (days[0], days[2], 1, 3)
        assert gone["user"] == ""
        lines = await ok(cluster.admin.get(f"{V1}/audit", params={"action": "audit_expire"}))
        assert [line["user"] for line in lines] == ["", *["alice"] * 3]
        (tmp_path / "log" / f"{days[3]}.log").unlink()
        verdict = await ok(cluster.admin.get(f"{V1}/audit/verification"))
        assert [one["what"] for one in verdict["findings"]] == ["lines 1 to 4 of the log before this one are missing"]
