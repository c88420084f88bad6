"""Storage that is not mounted: nothing is written in its place, and it is told; mounted again, it is as it was."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.agent.storages import MARKER
from common.protocol import ContainerSpec, ContainerStatus
from tests.integration.agent.calls import launch, log_of, wait_for
from tests.integration.agent.conftest import Agent, FakeApi

Make = Callable[..., ContainerSpec]
ID = "3f2b8a52-6b0c-4f8e-9a51-6f0b5e1d2c3a"
GONE = "the storage shared is not mounted on this node"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file with a file system in it, on which a volume has something."""
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", tmp_path / "volumes"], check=False, capture_output=True)


@pytest.fixture
def root(node: Agent, disk: Path, tmp_path: Path) -> Path:
    """Where the node has its storage, which is mounted."""
    root = tmp_path / "volumes"
    node.environment["PENSTOCK_AGENT_STORAGES"] = json.dumps({"shared": str(root)})
    node.environment["PENSTOCK_AGENT_STORAGE_IDS"] = json.dumps({"shared": ID})
    mount(disk, root)
    (root / MARKER).write_text(f"{ID}\n")
    return root


def mount(disk: Path, root: Path) -> None:
    subprocess.run(["mount", "-o", "loop", disk, root], check=True)


def unmount(root: Path) -> None:
    # the agent may look at it in this moment
    subprocess.run(["umount", "--lazy", root], check=True)


def writing(spec: Make, root: Path, **changes: Any) -> ContainerSpec:
    script = "echo written > /data/file; cat /data/file"
    mounts = [{"source": str(root / ID), "target": "/data"}]
    return spec(**{"command": ["sh", "-c"], "args": [script], "mounts": mounts, **changes})


def test_nothing_is_written_where_the_storage_is_not_mounted(
    node: Agent, root: Path, disk: Path, spec: Make, fake_api: FakeApi
) -> None:
    node.start()
    with node.client() as client:
        assert log_of(client, launch(client, writing(spec, root)).id) == "written\n"
        unmount(root)
        refused = launch(client, writing(spec, root))
        assert (refused.status, refused.lost) == (ContainerStatus.FAILED, True)
        assert GONE in refused.error
        assert str(root) not in refused.error
        assert [*root.iterdir()] == [], "the place of the mount is the node's own disk"
        fake_api.wait(lambda heartbeat: heartbeat.node_info.missing_storages == {"shared": GONE})
        assert launch(client, spec(args=["600"])).status is ContainerStatus.RUNNING, "which mounts nothing"
        for call, name in (("GET", "root"), ("DELETE", "folder")):
            asked = str(root if name == "root" else root / ID)
            answer = client.request(call, "/v1/storage", params={name: asked})
            assert (answer.status_code, GONE in answer.text) == (503, True), "it is not empty"
        fake_api.heartbeats.clear()
        mount(disk, root)
        fake_api.wait(lambda heartbeat: not heartbeat.node_info.missing_storages)
        assert log_of(client, launch(client, writing(spec, root, args=["cat /data/file"])).id) == "written\n"
        answer = client.delete("/v1/storage", params={"folder": str(root / ID)}).raise_for_status()
        assert answer.json()["there"]


def test_another_storage_in_its_place_is_told_without_a_launch(
    node: Agent, root: Path, fake_api: FakeApi, spec: Make, tmp_path: Path
) -> None:
    node.start()
    fake_api.wait(lambda heartbeat: not heartbeat.node_info.missing_storages)
    subprocess.run(["mount", "-t", "tmpfs", "none", root], check=True)
    try:
        (root / MARKER).write_text("somebody else's")
        wrong = "the storage shared is another one than the site's on this node"
        fake_api.wait(lambda heartbeat: heartbeat.node_info.missing_storages == {"shared": wrong})
        with node.client() as client:
            assert wrong in wait_for(client, launch(client, writing(spec, root)).id, ContainerStatus.FAILED).error
        assert [path.name for path in root.iterdir()] == [MARKER]
    finally:
        unmount(root)


def test_a_session_may_not_have_the_storage_itself(node: Agent, root: Path, spec: Make) -> None:
    node.start()
    with node.client() as client:
        wanted = spec(mounts=[{"source": str(root), "target": "/data"}])
        answer = client.put(f"/v1/containers/{wanted.id}", json=wanted.model_dump(mode="json"))
        assert answer.status_code in (400, 422)
        assert "is a storage as a whole" in answer.text
