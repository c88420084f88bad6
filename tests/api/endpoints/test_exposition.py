"""Metrics for Prometheus: queue, GPUs, agents, scheduler, requests and database, and nobody's name."""

from __future__ import annotations

from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from api.lists.overview import IdleGpus
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE
from tests.api.steps import run

pytestmark = pytest.mark.anyio

LABELS = {
    *("node", "check", "thing", "repair", "acknowledged", "state", "mode"),
    *("route", "method", "status", "le", "kind"),
}

Found = dict[str, dict[tuple[str, ...], float]]


async def shown(cluster: Cluster) -> Found:
    """Return each sample by its name and the values of its labels, in the order of their names."""
    answer = await cluster.admin.get(f"{V1}/metrics")
    assert answer.status_code == 200
    found: Found = defaultdict(dict)
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name][tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def test_the_queue_by_state_and_gpus_in_all_held_and_idle(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(ready, "first", gpu_milli=1500)
    await ready.submit("second", 4000, preemptible=False)
    await ready.settle()

    async def idle(*_: object) -> dict[str, int]:
        return {"team-a": 500}

    monkeypatch.setattr(IdleGpus, "by_project", idle)
    found = await shown(ready)
    assert found["penstock_sessions"] == {
        ("PENDING",): 1,
        ("SCHEDULED",): 0,
        ("PREPARING",): 0,
        ("RUNNING",): 1,
        ("TERMINATING",): 0,
    }
    gpus = [found[name][()] for name in ("penstock_gpus", "penstock_gpus_held", "penstock_gpus_idle")]
    assert gpus == [4, 1.5, 0.5]


async def test_agents_that_report_and_that_are_lost(ready: Cluster) -> None:
    await ready.add_node("worker2")
    async with ready.database.transaction() as db:
        await db.execute(text("UPDATE nodes SET state = 'lost' WHERE name = 'worker2'"))
    assert (await shown(ready))["penstock_agents"] == {("lost",): 1, ("ready",): 1, ("unready",): 0}


async def test_when_the_scheduler_ran_last_and_for_how_long(cluster: Cluster) -> None:
    found = await shown(cluster)
    assert not {"penstock_scheduler_age_seconds", "penstock_scheduler_cycle_seconds"} & set(found), "it has not yet"
    await cluster.add_node()
    await cluster.add_image()
    await cluster.add_project("team-a", 4000)
    await run(cluster, "first")
    cluster.clock.passed += 7
    found = await shown(cluster)
    assert found["penstock_scheduler_age_seconds"][()] >= 7
    assert found["penstock_scheduler_cycle_seconds"][()] >= 0


async def test_requests_by_the_template_of_their_route_and_kind_of_answer(ready: Cluster) -> None:
    await run(ready, "first")
    before = await shown(ready)
    path, wanted = f"{V1}/sessions/{{name}}", {"project": "team-a"}
    for name in ("first", "first", "nobody"):
        await ready.admin.get(f"{V1}/sessions/{name}", params=wanted)
    await ready.admin.get("/nothing-here")
    after = await shown(ready)

    def more(name: str, *labels: str) -> float:
        return after[name][labels] - before[name].get(labels, 0)

    assert more("penstock_requests_total", "GET", path, "2xx") == 2
    assert more("penstock_requests_total", "GET", path, "4xx") == 1
    assert more("penstock_requests_total", "GET", "none", "4xx") == 1
    assert more("penstock_request_duration_seconds_count", "GET", path) == 3
    assert more("penstock_request_duration_seconds_bucket", "+Inf", "GET", path) == 3


async def test_a_request_that_fails_unexpectedly_counts(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setattr("api.endpoints.scheduler.queue.page", broken)
        assert (await ready.admin.get(f"{V1}/scheduler/queue")).status_code == 500
    assert (await shown(ready))["penstock_requests_total"]["GET", f"{V1}/scheduler/queue", "5xx"] == 1


async def test_connections_to_the_database(cluster: Cluster) -> None:
    found = (await shown(cluster))["penstock_database_connections"]
    assert 1 <= found["busy",] <= found["limit",] == 15


async def test_no_label_names_a_user_a_project_or_a_session(ready: Cluster) -> None:
    await ready.add_project("quagga", 1000)
    async with await ready.user("zebediah") as person, ready.client(**PAGE) as browser:
        await ok(ready.admin.patch(f"{V1}/projects/quagga", json={"members": ["zebediah"]}))
        await ready.submit("okapi", project="quagga")
        await ready.settle()
        for path in ("sessions/okapi", "projects/quagga", "users/zebediah", "accounting", "sessions/okapi/logs"):
            for client in (ready.admin, person):
                await client.get(f"{V1}/{path}", params={"project": "quagga"})
        await sign_in(browser, "admin")
        assert (await browser.get("/projects/quagga")).status_code == 200
        await person.request("QUAGGA", f"{V1}/sessions/okapi")
    said = (await ready.admin.get(f"{V1}/metrics")).text
    assert "/projects/{name}" in said
    assert not [name for name in ("zebediah", "quagga", "okapi") if name in said.lower()]
    samples = (each for family in text_string_to_metric_families(said) for each in family.samples)
    assert {label for each in samples for label in each.labels} <= LABELS
