"""What a session mounts is what was checked, whatever becomes of its path until Docker mounts it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from appliance.agent.docker.containers import ContainerLimits
from appliance.agent.docker.cores import NO_CORES
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.shares.share_manager import PreparedShares
from common import process
from common.errors import PenstockError, UnavailableError
from common.protocol import ContainerSpec, ContainerState, ContainerStatus
from tests.integration.agent.calls import launch, log_of
from tests.integration.agent.conftest import Agent
from tests.integration.own_engine import remove_containers

Make = Callable[..., ContainerSpec]
NO_SHARES = PreparedShares()
LIMITS = ContainerLimits(memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[1])
RACES = 30


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder with `volumes`, below which sessions mount, and with `host`, which is no session's."""
    for name, text in (("volumes/team-a/data", "ours"), ("host", "the host's")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text(text)
    return tmp_path


@pytest.fixture
def mount_points(places: Path) -> Iterator[MountPoints]:
    points = MountPoints(places / "mounts", [places / "volumes"])
    points.begin()
    yield points
    points.sweep(lambda _: False)
    points.close()


@pytest.fixture
def direct(mount_points: MountPoints, places: Path, engine: docker.DockerClient, run_id: str) -> Iterator[DockerEngine]:
    """The agent's way to Docker, in this process."""
    socket = Path(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    direct = DockerEngine(
        socket, mount_points, LIMITS, places / "listener", places / "cores", hosts=dict, site_files=dict
    )
    yield direct
    direct.close()
    remove_containers(engine, label=f"io.penstock.user={run_id}")


def swap(places: Path) -> None:
    """Put a link to the host's folder into the place of the session's, as one of its programs may."""
    data = places / "volumes/team-a/data"
    data.rename(places / "volumes/team-a/before")
    data.symlink_to(places / "host")


def reading(spec: Make, places: Path, path: str = "volumes/team-a/data", **changes: Any) -> ContainerSpec:
    """Return what writes into its folder, and says what stands in it."""
    mounts = [{"source": str(places / path), "target": "/data"}]
    script = "echo written > /data/note; cat /data/file; sleep 1"
    return spec(**{"command": ["sh", "-c"], "args": [script], "mounts": mounts, **changes})


def mounted(folder: Path) -> list[str]:
    """Return what is mounted below a folder of this machine."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if line.split()[4].startswith(f"{folder}/")]


def test_a_folder_that_becomes_a_link_before_docker_is_asked_is_not_followed(
    direct: DockerEngine, places: Path, spec: Make, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo written > /data/note; cat /data/file; until [ -e /tmp/go ]; do sleep 0.1; done"
    wanted, create = reading(spec, places, args=[script]), direct._api.create_container

    def late(**arguments: Any) -> Any:
        swap(places)
        return create(**arguments)

    monkeypatch.setattr(direct._api, "create_container", late)
    assert started(direct, wanted).status is ContainerStatus.RUNNING
    container = engine.containers.get(f"penstock-{wanted.id}")
    container.exec_run(["touch", "/tmp/go"])
    container.wait()
    assert container.logs() == b"ours"
    assert not (places / "host/note").exists()
    assert (places / "volumes/team-a/before/note").exists()


def test_a_folder_that_becomes_a_link_before_docker_starts_is_not_followed(
    direct: DockerEngine, places: Path, spec: Make, engine: docker.DockerClient
) -> None:
    wanted = reading(spec, places)
    direct.create(wanted, NO_CORES, NO_SHARES)
    swap(places)
    direct.start(wanted.id)
    container = engine.containers.get(f"penstock-{wanted.id}")
    container.wait()
    assert container.logs() == b"ours"
    assert not (places / "host/note").exists()


def test_a_file_is_mounted_as_it_was_checked(
    direct: DockerEngine, places: Path, spec: Make, engine: docker.DockerClient
) -> None:
    wanted = reading(spec, places, "volumes/team-a/data/file", args=["cat /data"])
    direct.create(wanted, NO_CORES, NO_SHARES)
    (places / "volumes/team-a/data/file").rename(places / "volumes/team-a/data/before")
    (places / "volumes/team-a/data/file").symlink_to(places / "host/file")
    direct.start(wanted.id)
    container = engine.containers.get(f"penstock-{wanted.id}")
    container.wait()
    assert container.logs() == b"ours"


@pytest.mark.parametrize("target", ["/bin/sh", "/bin/busybox"])
def test_a_target_that_is_a_file_of_the_image_is_told_without_a_path_of_the_node(
    direct: DockerEngine, places: Path, spec: Make, target: str
) -> None:
    mounts = [{"source": str(places / "volumes/team-a/data"), "target": target}]
    wanted = spec(mounts=mounts)
    direct.create(wanted, NO_CORES, NO_SHARES)
    state = direct.start(wanted.id)
    assert state.status is ContainerStatus.FAILED
    assert state.error.startswith("nothing can be mounted at /bin/"), state.error
    assert state.error.endswith("choose another target")
    assert not [part for part in (str(places), "/var/lib", "/run/", "overlay2") if part in state.error], state.error


def test_a_program_that_swaps_all_the_time_never_wins(
    direct: DockerEngine, places: Path, spec: Make, engine: docker.DockerClient
) -> None:
    """The two names change places by one call of the kernel, as often as this machine can."""
    (places / "volumes/team-a/link").symlink_to(places / "host")
    racer = subprocess.Popen([sys.executable, "-c", RACER, places / "volumes/team-a"])
    refused = 0
    try:
        for _ in range(RACES):
            wanted = reading(spec, places, args=["cat /data/file"])
            try:
                started(direct, wanted)
            except PenstockError:
                refused += 1
                continue
            container = engine.containers.get(f"penstock-{wanted.id}")
            container.wait()
            assert container.logs() == b"ours"
            direct.remove(wanted.id, 0)
    finally:
        racer.kill()
        racer.wait()
    assert refused < RACES
    assert not mounted(places / "mounts")


RACER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
while True:
    ctypes.CDLL(None).renameat2(-100, b"data", -100, b"link", 2)
"""


def started(direct: DockerEngine, wanted: ContainerSpec) -> ContainerState:
    direct.create(wanted, NO_CORES, NO_SHARES)
    return direct.start(wanted.id)


def test_nothing_stays_mounted_when_the_container_runs(
    direct: DockerEngine, mount_points: MountPoints, places: Path, spec: Make, engine: docker.DockerClient
) -> None:
    wanted = reading(spec, places, args=["sleep 600"])
    direct.create(wanted, NO_CORES, NO_SHARES)
    assert mounted(places / "mounts") == [str(places / f"mounts/{wanted.id}/0")]
    direct.start(wanted.id)
    assert not mounted(places / "mounts")
    container = engine.containers.get(f"penstock-{wanted.id}")
    assert container.exec_run(["cat", "/data/file"]).output == b"ours", "the container has a mount of its own"
    other = reading(spec, places)
    direct.create(other, NO_CORES, NO_SHARES)
    direct.remove(other.id, 0)
    assert not mounted(places / "mounts")


@pytest.mark.parametrize("options", [[], ["noexec", "noatime"]])
def test_programs_of_a_folder_get_no_rights_and_no_devices_and_what_its_mount_says_stays(
    direct: DockerEngine, places: Path, spec: Make, engine: docker.DockerClient, options: list[str]
) -> None:
    data = places / "volumes/team-a/data"
    with contextlib.ExitStack() as stack:
        if options:
            process.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", data])
            stack.callback(process.run, ["umount", data])
        wanted = reading(spec, places, args=["sleep 600"])
        direct.create(wanted, NO_CORES, NO_SHARES)
        direct.start(wanted.id)
        seen = engine.containers.get(f"penstock-{wanted.id}").exec_run(["cat", "/proc/mounts"]).output
        assert isinstance(seen, bytes)
        (found,) = [line.split()[3] for line in seen.splitlines() if line.split()[1] == b"/data"]
        assert {"nosuid", "nodev", *options} <= set(found.decode().split(","))
        direct.remove(wanted.id, 0)


def test_what_an_agent_left_that_was_killed_is_collected_and_what_waits_for_its_start_stays(
    direct: DockerEngine, mount_points: MountPoints, places: Path, spec: Make, engine: docker.DockerClient
) -> None:
    wanted, gone = reading(spec, places), reading(spec, places)
    for each in (wanted, gone):
        direct.create(each, NO_CORES, NO_SHARES)
    later = MountPoints(places / "mounts", [places / "volumes"])
    later.begin()
    later.sweep(lambda identity: identity == wanted.id)
    assert mounted(places / "mounts") == [str(places / f"mounts/{wanted.id}/0")]
    direct.start(wanted.id)
    container = engine.containers.get(f"penstock-{wanted.id}")
    container.wait()
    assert container.logs() == b"ours"


def test_a_container_that_was_made_before_a_reboot_does_not_run_without_its_folder(
    direct: DockerEngine, mount_points: MountPoints, places: Path, spec: Make
) -> None:
    wanted = reading(spec, places)
    direct.create(wanted, NO_CORES, NO_SHARES)
    mount_points.sweep(lambda _: False)
    state = direct.start(wanted.id)
    assert state.status is ContainerStatus.FAILED
    assert f"mounts/{wanted.id}/0" in state.error


def test_a_file_system_within_the_folder_is_mounted_too_and_stays_where_it_was(
    direct: DockerEngine, places: Path, spec: Make, engine: docker.DockerClient
) -> None:
    """Though mounts are shared on this machine: what is taken off here must not go elsewhere."""
    inner = places / "volumes/team-a/data/inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "test", inner], check=True)
    try:
        (inner / "file").write_text("inner")
        wanted = reading(spec, places, args=["cat /data/inner/file"])
        started(direct, wanted)
        container = engine.containers.get(f"penstock-{wanted.id}")
        container.wait()
        assert container.logs() == b"inner"
        assert (inner / "file").exists()
    finally:
        subprocess.run(["umount", inner], check=True)


def test_an_agent_that_mounts_where_docker_does_not_see_it_is_told(
    direct: DockerEngine, mount_points: MountPoints, places: Path, spec: Make
) -> None:
    """As one whose unit has `PrivateMounts=yes`: the session does not run with an empty folder."""
    wanted = reading(spec, places)
    held = mount_points.hold

    def unseen(identity: str, sources: Any) -> list[Path]:
        found = held(identity, sources)
        mount_points.sweep(lambda _: False)
        mount_points.close()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mount_points, "hold", unseen)
        with pytest.raises(UnavailableError, match="bind source path does not exist"):
            direct.create(wanted, NO_CORES, NO_SHARES)


def test_a_session_of_an_agent_has_what_it_mounts(agent: Agent, spec: Make, places: Path) -> None:
    wanted = reading(spec, places)
    with agent.client() as client:
        launch(client, wanted)
        assert log_of(client, wanted.id) == "ours"
    assert not mounted(Path(agent.environment["PENSTOCK_AGENT_MOUNTS_FOLDER"]))
