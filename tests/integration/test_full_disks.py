"""Disks that are full, real ones: what can wait is refused with the reason, and all else goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.clock import now
from appliance.agent.docker.engine import Image
from appliance.agent.docker.images import Images
from common.disk_limit import DiskLimit, used_percent
from common.errors import UnavailableError
from common.protocol import METRICS_PATH, GpuMetrics, ImageStatus, MetricsReport
from reservoir.contents.artifact import PythonArtifact
from reservoir.intake.take import take
from tests.api.cluster import V1, Cluster, ok, running_cluster
from tests.api.steps import body
from tests.integration.reservoir.disks import Disk, mounted
from tests.unit.appliance.agent.docker.test_images import FakeEngine, until
from tests.unit.reservoir.parts import artifact, make_bundle, wheel

pytestmark = pytest.mark.anyio
AGENT = {"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "4m") as there:
        yield there


def fill(disk: Disk, percent: int) -> None:
    """Take so much of a disk."""
    (disk.folder / "ballast").write_bytes(bytes((4 << 20) * percent // 100))


def empty(disk: Disk) -> None:
    (disk.folder / "ballast").unlink()


def test_a_disk_is_as_full_as_bytes_or_files_make_it(disk: Disk, tmp_path: Path) -> None:
    limit = DiskLimit([disk.folder, tmp_path / "nowhere"], 95)
    fill(disk, 90)
    assert round(used_percent(disk.folder)) == 90
    limit.refuse_where_full("anything")
    fill(disk, 97)
    with pytest.raises(UnavailableError, match=r"the disk of \S+ is 97 % full, and an import can wait"):
        limit.refuse_where_full("an import")


@pytest.fixture
async def cluster(database_url: str, disk: Disk) -> AsyncIterator[Cluster]:
    """A control API whose audit log is on a disk that may be full."""
    (disk.folder / "audit").mkdir()
    key = disk.folder.parent / "audit.key"
    key.write_text("0" * 64)
    async with running_cluster(database_url, audit_folder=disk.folder / "audit", audit_key=key) as running:
        await running.add_node()
        await running.add_image()
        await running.add_project("team-a", 4000)
        yield running


async def test_where_the_master_is_full_new_sessions_wait_and_the_site_answers(cluster: Cluster, disk: Disk) -> None:
    running = await ok(cluster.admin.post(f"{V1}/sessions", json=body("first")))
    await cluster.settle()
    fill(disk, 97)
    for path, wanted in (("sessions", body("second")), ("sessions/batch", body("second") | {"count": 2})):
        refused = await cluster.admin.post(f"{V1}/{path}", json=wanted)
        assert refused.status_code == 503
        assert "97 % full, and a new session can wait" in refused.text
        assert "disk.stop_percent" in refused.text
    sample = GpuMetrics(
        container_id=f"session-{running['id']}-0-0",
        session_id=running["id"],
        uuid="GPU-worker1-0",
        at=now(),
        memory_mib=1,
        processes=1,
    )
    report = MetricsReport(name="worker1", samples=[sample]).model_dump(mode="json")
    async with cluster.client(**AGENT) as agent:
        assert (await agent.post(METRICS_PATH, json=report)).status_code == 503, "it keeps them and comes again"
        assert (await cluster.admin.get(f"{V1}/health")).status_code == 200
        await ok(cluster.admin.get(f"{V1}/sessions"))
        gone = await cluster.admin.delete(f"{V1}/sessions/first", params={"project": "team-a"})
        assert gone.is_success
        await cluster.settle()
        lines = await ok(cluster.admin.get(f"{V1}/audit"))
        assert lines, "what people do is written down all the same"
        empty(disk)
        assert (await agent.post(METRICS_PATH, json=report)).status_code == 204
    await ok(cluster.admin.post(f"{V1}/sessions", json=body("second")))


async def test_where_a_worker_is_full_no_image_is_pulled_and_those_that_are_there_stay(disk: Disk) -> None:
    engine, reference = FakeEngine(), "reservoir:5000/a"
    images = Images(engine, ["reservoir:5000"], DiskLimit([disk.folder], 95))
    fill(disk, 97)
    with pytest.raises(UnavailableError, match="pulling reservoir:5000/a can wait"):
        await images.ask(reference)
    assert engine.pulled == []
    engine.here["reservoir:5000/b"] = Image("sha256:1", 10)
    assert (await images.ask("reservoir:5000/b")).status is ImageStatus.READY
    empty(disk)
    engine.go.set()
    assert (await images.ask(reference)).status is ImageStatus.PULLING
    await until(lambda: reference in engine.here)


def test_where_the_reservoir_is_full_no_bundle_is_imported(disk: Disk, tmp_path: Path) -> None:
    parts, root = tmp_path / "parts", disk.folder / "site"
    parts.mkdir()
    root.mkdir()
    path = wheel(parts, "demo", "1.0", "")
    made = [(artifact(path, PythonArtifact, "demo", "1.0"), path)]
    bundle = make_bundle(parts, Ed25519PrivateKey.generate(), name="demo", made=made)
    fill(disk, 97)
    with pytest.raises(UnavailableError, match="97 % full, and an import can wait"):
        take(bundle, root, trust_first=True)
    empty(disk)
    assert take(bundle, root, trust_first=True).complete
