"""The logs of the site: found by their fields in journals of all nodes, by those who may, and not without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.auth.policy import UserRole
from tests import journals
from tests.api.cluster import V1, Cluster, ok, problems, refused
from tests.api.steps import run

pytestmark = pytest.mark.anyio
HIDDEN = "0b1b1b1b-0000-4000-8000-000000000000"


def line(number: int, host: str, unit: str, level: str = "6", **fields: str) -> dict[str, str]:
    told = {"MESSAGE": f"line {number}", "PRIORITY": level, "_HOSTNAME": host, "_SYSTEMD_UNIT": f"{unit}.service"}
    return told | {f"PENSTOCK_{name.upper()}": value for name, value in fields.items()}


def send(folder: Path, node: str, entries: dict[int, dict[str, str]]) -> None:
    """Keep entries as those that a node has sent, by the seconds at which they were written."""
    (folder / node).mkdir(exist_ok=True)
    journals.write(folder / node / f"{node}.journal", [told | journals.at(second) for second, told in entries.items()])


@pytest.fixture
def gathered(cluster: Cluster, tmp_path: Path) -> Path:
    """Journals of a master and two workers."""
    folder = tmp_path / "remote"
    folder.mkdir()
    cluster.app.state.settings = cluster.settings.model_copy(update={"logs_folder": folder})
    written = [
        line(0, "master1", "penstock-api", request="r1", user="ann", session=HIDDEN),
        line(1, "worker1", "penstock-agent", request="r1", session=HIDDEN, node="worker1"),
        line(2, "worker2", "penstock-agent", "3", node="worker2"),
        line(3, "master1", "penstock-api", "4", node="worker2"),
        line(4, "worker2", "docker"),
    ]
    for node in ("master1", "worker1", "worker2"):
        send(folder, node, {at: each for at, each in enumerate(written) if each["_HOSTNAME"] == node})
    return folder


async def found(cluster: Cluster, **query: str | int) -> list[str]:
    entries: list[dict[str, Any]] = await ok(cluster.admin.get(f"{V1}/logs", params=query))
    return [entry["message"].removeprefix("line ") for entry in entries]


async def test_each_field_finds_its_lines_newest_first(cluster: Cluster, gathered: Path) -> None:
    assert await found(cluster) == ["4", "3", "2", "1", "0"]
    assert await found(cluster, request="r1") == ["1", "0"]
    assert await found(cluster, session=HIDDEN) == ["1", "0"]
    assert await found(cluster, user="ann") == ["0"]
    assert await found(cluster, unit="penstock-agent") == ["2", "1"]
    assert await found(cluster, node="worker2") == ["4", "3", "2"], "from it, and about it"
    assert await found(cluster, node="worker2", unit="penstock-api") == ["3"]
    assert await found(cluster, level="warning") == ["3", "2"]
    assert await found(cluster, node="worker2", level="error") == ["2"]
    assert await found(cluster, since="2026-01-01T00:00:02Z", until="2026-01-01T00:00:04Z") == ["3", "2"]
    assert await found(cluster, request="r2") == []


async def test_a_line_says_what_it_is_about(cluster: Cluster, gathered: Path) -> None:
    [entry] = await ok(cluster.admin.get(f"{V1}/logs", params={"user": "ann"}))
    assert entry == {
        "time": "2026-01-01T00:00:00.000000Z",
        "node": "master1",
        "host": "",
        "unit": "penstock-api.service",
        "level": "info",
        "message": "line 0",
        "request": "r1",
        "session": HIDDEN,
        "user": "ann",
    }


async def test_a_line_is_of_the_node_that_has_sent_it(cluster: Cluster, gathered: Path) -> None:
    send(
        gathered, "worker1", {5: line(5, "worker2", "penstock-agent"), 6: line(6, "worker2", "docker", node="worker1")}
    )
    assert await found(cluster, node="worker2") == ["4", "3", "2"]
    entries = await ok(cluster.admin.get(f"{V1}/logs", params={"limit": 3}))
    assert [(entry["node"], entry["host"]) for entry in entries] == [
        ("worker1", "worker2"),
        ("worker1", "worker2"),
        ("worker2", ""),
    ]
    assert await found(cluster, node="worker1") == ["6", "1"]


async def test_a_file_whose_writer_was_killed_is_searched(cluster: Cluster, gathered: Path) -> None:
    file = gathered / "worker1" / "worker1.journal"
    file.rename(file.with_name("worker1@0006474848270c80-00000000.journal~"))
    assert await found(cluster, node="worker1") == ["1"]


async def test_pages_follow_each_other(cluster: Cluster, gathered: Path) -> None:
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = await cluster.admin.get(f"{V1}/logs", params={"limit": 2, "node": "worker2", **after})
        seen += [entry["message"] for entry in answer.json()]
        if "X-Next" not in answer.headers:
            break
        after = {"after": answer.headers["X-Next"]}
    assert seen == ["line 4", "line 3", "line 2"]


async def test_pages_of_a_request_follow_each_other_from_node_to_node(cluster: Cluster, gathered: Path) -> None:
    for number, node in enumerate(("worker1", "worker2", "storage1", "worker1"), 5):
        send(gathered, f"{node}", {number: line(number, node, "penstock-agent", request="r1")})
    seen: list[str] = []
    after: dict[str, str] = {}
    for _ in range(6):
        answer = await cluster.admin.get(f"{V1}/logs", params={"limit": 1, "request": "r1", **after})
        seen += [entry["message"].removeprefix("line ") for entry in answer.json()]
        after = {"after": answer.headers["X-Next"]}
    assert seen == ["8", "7", "6", "5", "1", "0"]
    assert await found(cluster, request="r1", node="storage1") == ["7"]


async def test_a_session_is_found_by_its_name_in_its_project(ready: Cluster, gathered: Path) -> None:
    session = await run(ready, "one")
    send(gathered, "worker1", {5: line(5, "worker1", "penstock-agent", session=session["id"])})
    assert await found(ready, session="one", project="team-a") == ["5"]
    assert await found(ready, session="one") == []
    answer = await ready.admin.get(f"{V1}/logs", params={"session": "two", "project": "team-a"})
    assert answer.status_code == 404


async def test_no_line_hides_the_others(cluster: Cluster, gathered: Path) -> None:
    odd = line(5, "worker1", "nginx", "²", user="a\u2029b") | {"MESSAGE": "line GET /\u2028x"}
    send(gathered, "worker1", {5: odd})
    assert "GET /\u2028x" in await found(cluster)
    assert sorted(await found(cluster)) == ["0", "1", "2", "3", "4", "GET /\u2028x"]


@pytest.mark.parametrize(
    "query",
    [
        {"request": "--flush"},
        {"request": "a b"},
        {"session": "x\ny"},
        {"unit": "*"},
        {"node": "a+b"},
        {"after": "--vacuum-size=1"},
        {"level": "9"},
        {"limit": "1001"},
    ],
)
async def test_nothing_but_values_reaches_the_program(cluster: Cluster, gathered: Path, query: dict[str, str]) -> None:
    answer = await cluster.admin.get(f"{V1}/logs", params=query)
    assert answer.status_code == 422
    assert problems(answer)


async def test_who_reads_them_is_told_of_and_others_may_not(audited: Cluster, tmp_path: Path) -> None:
    audited.app.state.settings = audited.settings.model_copy(update={"logs_folder": tmp_path})
    member = await audited.user("mallory")
    await refused(member.get(f"{V1}/logs"), 403)
    auditor = await audited.user("audrey", UserRole.AUDITOR)
    assert await ok(auditor.get(f"{V1}/logs", params={"request": "r1"})) == []
    await audited.settle()
    told = await ok(audited.admin.get(f"{V1}/audit", params={"object": "logs"}))
    assert [(entry["user"], entry["action"], entry["result"]) for entry in told] == [
        ("audrey", "logs_read", "done"),
        ("mallory", "logs_read", "refused"),
    ]


async def test_a_site_that_gathers_none_says_so(cluster: Cluster) -> None:
    problem = await refused(cluster.admin.get(f"{V1}/logs"), 409)
    assert problem["hint"] == "set `logs.gather` in the site file, and deploy"
