"""Domains whose projects share inside of them: what may be said of one, and that the scheduler hears of it."""

from __future__ import annotations

import pytest

from api.control.loop import Loop
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body

pytestmark = pytest.mark.anyio

FOR_EVER = {"ends_at": None}


async def test_a_domain_shares_by_a_weight_and_up_to_a_limit(cluster: Cluster) -> None:
    body = {"name": "acme", "quota_milli": 2000, "shares": True, "over_quota_weight": 3, "limit_milli": 3000}
    made = await ok(cluster.admin.post(f"{V1}/domains", json=body))
    assert {key: made[key] for key in body} == body
    for weight in (0, None):
        change = {"limit_milli": None, "over_quota_weight": weight}
        changed = await ok(cluster.admin.patch(f"{V1}/domains/acme", json=change))
        assert (changed["shares"], changed["over_quota_weight"], changed["limit_milli"]) == (True, weight, None)
    assert (await ok(cluster.admin.post(f"{V1}/domains", json={"name": "beta"})))["over_quota_weight"] is None


@pytest.mark.parametrize(
    ("fields", "where", "hint"),
    [
        ({"over_quota_weight": 1}, "over_quota_weight", "set shares"),
        ({"over_quota_weight": 0}, "over_quota_weight", "set shares"),
        ({"limit_milli": 1000, "quota_milli": 1000}, "limit_milli", "set shares"),
        ({"limit_milli": 1000, "shares": True}, "limit_milli", "give a quota"),
        ({"limit_milli": 1000, "shares": True, "quota_milli": 2000}, "limit_milli", "no less than the quota"),
    ],
)
async def test_what_says_nothing_or_takes_a_guarantee_away_is_refused(
    cluster: Cluster, fields: dict[str, object], where: str, hint: str
) -> None:
    for error in (
        await refused(cluster.admin.post(f"{V1}/domains", json={"name": "acme", **fields}), 422),
        await _changed_to(cluster, fields),
    ):
        assert error["where"] == where
        assert hint in error["hint"]


async def _changed_to(cluster: Cluster, fields: dict[str, object]) -> dict[str, str]:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "globex"}))
    return await refused(cluster.admin.patch(f"{V1}/domains/globex", json=fields), 422)


async def test_no_limit_is_below_the_quotas_of_its_projects(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/domains", json={"name": "acme"}))
    project = {"name": "rockets", "quota_milli": 4000, "period": FOR_EVER, "domain": "acme"}
    await ok(cluster.admin.post(f"{V1}/projects", json=project))
    body = {"shares": True, "quota_milli": 2000, "limit_milli": 3000}
    error = await refused(cluster.admin.patch(f"{V1}/domains/acme", json=body), 409)
    assert (error["where"], "come to 4 GPUs" in error["reason"]) == ("limit_milli", True)
    assert not (await ok(cluster.admin.get(f"{V1}/domains")))[0]["shares"], "nothing half done"


async def test_the_projects_of_a_domain_hold_no_more_than_its_limit_together(ready: Cluster) -> None:
    body = {"name": "acme", "shares": True, "quota_milli": 1000, "limit_milli": 2000}
    await ok(ready.admin.post(f"{V1}/domains", json=body))
    for name in ("rockets", "planes"):
        project = {"name": name, "quota_milli": 0, "period": FOR_EVER, "domain": "acme"}
        await ok(ready.admin.post(f"{V1}/projects", json=project))
    for name in ("rockets", "planes"):
        for at in range(2):
            await ready.submit(f"{name}-{at}", project=name, gpu_milli=1000)
    loop = Loop(ready.database, ready.settings)
    await loop.run()
    names = [(name, f"{name}-{at}") for name in ("rockets", "planes") for at in range(2)]
    found = [await ready.session(session, project) for project, session in names]
    assert [each["state"] for each in found].count("PENDING") == 2
    reason = (
        "the projects of acme have, or are about to, 2 GPUs of the 2 GPUs that the domain may have; "
        "wait, or ask for a larger limit of acme"
    )
    assert {each["reason"] for each in found if each["state"] == "PENDING"} == {reason}
    assert await loop.run() == 0
    await ok(ready.admin.patch(f"{V1}/domains/acme", json={"limit_milli": None}))
    assert await loop.run() == 2, "a change of the domain is heard of"


async def test_what_is_larger_than_the_limit_of_the_domain_is_refused_at_once(ready: Cluster) -> None:
    """Whatever its project may hold: it would wait for ever. That much is taken, and so is what comes one by one."""
    domain = {"name": "acme", "shares": True, "quota_milli": 1000, "limit_milli": 2000}
    await ok(ready.admin.post(f"{V1}/domains", json=domain))
    project = {"name": "rockets", "quota_milli": 0, "period": FOR_EVER, "domain": "acme"}
    await ok(ready.admin.post(f"{V1}/projects", json=project))
    await ready.submit("whole", project="rockets", gpu_milli=2000)
    await ready.submit("other", project="rockets", gpu_milli=1000)
    gang = body("gang", "rockets", gpu_milli=1000, replicas=3)
    error = await refused(ready.admin.post(f"{V1}/sessions", json=gang), 422)
    assert error == error | {
        "where": "gpu_milli",
        "reason": "the projects of acme may hold 2 GPU together, and 3 GPU are asked for",
        "hint": "ask for fewer, or for a larger limit of acme",
    }
