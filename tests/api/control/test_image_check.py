"""Row G1: a registered image is unchecked, pulling, and then ready or failed, as a node says."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.clock import now
from api.control import image_check as check
from api.control.image_check import Checker
from api.control.reconcilers.failures import Failures
from api.engine.base import UnreachableError
from api.resources.images import service
from common.errors import InputError
from common.protocol import ImageState, ImageStatus
from tests.api.cluster import V1, Cluster, ok

pytestmark = pytest.mark.anyio

REFERENCE = "registry:5000/torch:1.7"


@pytest.fixture(autouse=True)
def moments(monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """A clock of the checker that a test sets forward, by one item."""
    ahead = [timedelta(0)]

    def clock() -> datetime:
        return now() + ahead[0]

    monkeypatch.setattr(check, "now", clock)
    monkeypatch.setattr(check, "POLL_S", 0.0)
    return ahead


async def add_image(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/images", json={"name": "torch", "tag": "1.7", "reference": REFERENCE}))


async def look(cluster: Cluster) -> None:
    """Let the checker look for what is due once."""
    checker = Checker(cluster.database, cluster.engine, Failures())
    async with cluster.database.reading() as db:
        due = await checker.due(db)
    for image_id in due:
        await checker.check(image_id)


async def run(cluster: Cluster) -> dict[str, Any]:
    """Let the checker look once; returns what the only image is afterwards."""
    await look(cluster)
    (shown,) = await ok(cluster.admin.get(f"{V1}/images"))
    return dict(shown)


def answer(cluster: Cluster, status: ImageStatus, **more: Any) -> None:
    cluster.engine.images[REFERENCE] = ImageState(reference=REFERENCE, status=status, **more)


async def test_an_image_that_is_pulled_is_ready(cluster: Cluster) -> None:
    await cluster.add_node()
    await add_image(cluster)
    answer(cluster, ImageStatus.PULLING)
    assert (await run(cluster))["status"] == "pulling"
    assert (await run(cluster))["status"] == "pulling"
    answer(cluster, ImageStatus.READY, digest="sha256:abc", size=123_456_789_012)
    shown = await run(cluster)
    assert (shown["status"], shown["digest"], shown["size"]) == ("ready", "sha256:abc", 123_456_789_012)
    assert ("pull", "worker1", REFERENCE) in cluster.engine.calls
    calls = len(cluster.engine.calls)
    await run(cluster)
    assert len(cluster.engine.calls) == calls, "what is settled is not looked for"


async def test_a_wrong_address_fails_with_the_reason_and_is_looked_for_again_on_request(cluster: Cluster) -> None:
    await cluster.add_node()
    await add_image(cluster)
    answer(cluster, ImageStatus.FAILED, error="manifest unknown")
    shown = await run(cluster)
    assert (shown["status"], shown["error"]) == ("failed", "manifest unknown")
    answer(cluster, ImageStatus.READY, digest="sha256:abc", size=1)
    assert (await run(cluster))["status"] == "failed"
    again = await ok(cluster.admin.post(f"{V1}/images/torch:1.7/check"))
    assert (again["status"], again["error"]) == ("unchecked", "")
    assert (await run(cluster))["status"] == "ready"


async def test_what_an_agent_refuses_has_failed(cluster: Cluster) -> None:
    await cluster.add_node()
    await add_image(cluster)
    cluster.engine.failure = InputError("that is no image", hint="write another")
    shown = await run(cluster)
    assert (shown["status"], shown["error"]) == ("failed", "worker1 refused it: that is no image")


async def test_the_error_of_an_image_names_no_node_that_was_deleted(cluster: Cluster) -> None:
    await cluster.add_node()
    await add_image(cluster)
    cluster.engine.failure = InputError("that is no image", hint="write another")
    await run(cluster)
    await ok(cluster.admin.patch(f"{V1}/nodes/worker1/mode", json={"mode": "maintenance"}))
    await ok(cluster.admin.delete(f"{V1}/nodes/worker1"))
    (shown,) = await ok(cluster.admin.get(f"{V1}/images"))
    assert (shown["status"], shown["error"]) == ("failed", "a node refused it: that is no image")


async def test_without_an_agent_that_answers_it_waits(cluster: Cluster) -> None:
    await add_image(cluster)
    assert (await run(cluster))["status"] == "unchecked", "no node at all"
    for name in ("worker1", "worker2"):
        await cluster.heartbeat(name)
    await cluster.manager.observe()
    cluster.engine.failure = UnreachableError("nobody there", delivered=False)
    cluster.engine.calls.clear()
    assert (await run(cluster))["status"] == "unchecked"
    assert {node for call, node, _ in cluster.engine.calls if call == "pull"} == {"worker1", "worker2"}
    cluster.engine.failure = None
    assert (await run(cluster))["status"] == "ready"


async def test_a_pull_that_never_ends_has_failed(cluster: Cluster, moments: list[timedelta]) -> None:
    await cluster.add_node()
    await add_image(cluster)
    answer(cluster, ImageStatus.PULLING)
    await run(cluster)
    moments[0] = timedelta(minutes=59)
    assert (await run(cluster))["status"] == "pulling"
    moments[0] = timedelta(minutes=61)
    shown = await run(cluster)
    assert (shown["status"], shown["error"]) == ("failed", "it was not there after 60 minutes")


async def test_an_image_is_asked_of_one_node_and_many_of_many(cluster: Cluster) -> None:
    for number in range(4):
        await cluster.add_node(f"worker{number}", 1)
    for tag in range(12):
        body = {"name": "torch", "tag": str(tag), "reference": f"registry:5000/torch:{tag}"}
        await ok(cluster.admin.post(f"{V1}/images", json=body))
    for _ in range(6):
        await look(cluster)
    asked = {(node, reference) for call, node, reference in cluster.engine.calls if call == "pull"}
    assert len(asked) == 12
    assert len({node for node, _ in asked}) > 1


async def test_only_a_few_images_are_pulled_at_once(cluster: Cluster) -> None:
    await cluster.add_node()
    for tag in range(6):
        reference = f"registry:5000/torch:{tag}"
        await ok(cluster.admin.post(f"{V1}/images", json={"name": "torch", "tag": str(tag), "reference": reference}))
        cluster.engine.images[reference] = ImageState(reference=reference, status=ImageStatus.PULLING)
    for _ in range(2):
        await look(cluster)
    shown = await ok(cluster.admin.get(f"{V1}/images"))
    assert sorted(image["tag"] for image in shown if image["status"] == "pulling") == ["0", "1", "2", "3"]
    cluster.engine.images.clear()
    await look(cluster)
    await look(cluster)
    assert {image["status"] for image in await ok(cluster.admin.get(f"{V1}/images"))} == {"ready"}


async def test_a_changed_reference_of_a_publication_is_looked_for_again(cluster: Cluster) -> None:
    await cluster.add_node()
    index = {"images": [{"name": "penstock/python", "tag": "3.11"}, {"name": "tool", "tag": "1", "session": False}]}
    for registry, changes in (("one:5000", True), ("one:5000", False), ("two:5000", True)):
        async with cluster.database.transaction() as db:
            assert await service.register(db, index, registry, "index.json") is changes
        (before,) = await ok(cluster.admin.get(f"{V1}/images"))
        assert (before["status"] == "unchecked") is changes
        shown = await run(cluster)
        assert (shown["status"], shown["reference"]) == ("ready", f"{registry}/penstock/python:3.11")
