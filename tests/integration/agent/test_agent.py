"""A real agent on the machine's Docker Engine: launch, idempotence, logs, restart, removal, and who may call."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest
from websockets.exceptions import InvalidStatus

from appliance.agent.reports.audit_heads import FILE
from common.audit_protocol import AUDIT_HEADS_PATH
from common.protocol import ContainerSpec, ContainerStatus, NodeInfo
from tests.integration.agent.calls import launch, put, states, wait_for
from tests.integration.agent.conftest import Agent, Authority, FakeApi, make_authority
from tests.integration.agent.talking import until
from tests.websocket import connect

Make = Callable[..., ContainerSpec]


def test_the_agent_starts_as_systemd_starts_it_and_node_info_marks_simulated_gpus(node: Agent) -> None:
    node.start(subprocess.Popen)
    with node.client() as client:
        node_info = NodeInfo.model_validate_json(client.get("/v1/node-info").content)
    assert node_info.name == "worker1"
    assert node_info.enforcement == "none"
    assert node_info.cpu_milli >= 1000
    assert [(gpu.index, gpu.uuid, gpu.simulated) for gpu in node_info.gpus] == [
        (0, "SIM-worker1-0", True),
        (1, "SIM-worker1-1", True),
    ]


def test_what_was_seen_of_the_audit_log_is_told_by_the_next_agent_too(
    node: Agent, fake_api: FakeApi, tmp_path: Path
) -> None:
    def heads() -> list[dict[str, Any]]:
        with node.client() as client:
            return list(client.get(AUDIT_HEADS_PATH).json().get("heads", []))

    node.environment["PENSTOCK_AGENT_STATE_FOLDER"] = str(tmp_path)
    fake_api.audit_head = f"7:{'a' * 64}"
    node.start()
    until((tmp_path / FILE).exists)
    node.stop()
    fake_api.audit_head = ""
    node.start()
    assert heads() == [{"seq": 7, "mac": "a" * 64}]


def test_launch_is_idempotent_and_a_second_spec_conflicts(
    agent: Agent, spec: Make, engine: docker.DockerClient, run_id: str
) -> None:
    wanted = spec(gpus=[{"uuid": "SIM-worker1-0", "index": 0, "milli": 500}], memory_mib=64, cpu_milli=500, shm_mib=32)
    with agent.client() as client:
        first, second = launch(client, wanted), launch(client, wanted)
        assert first.status is second.status is ContainerStatus.RUNNING
        assert put(client, wanted.model_copy(update={"args": ["601"]})).status_code == 409
    told = [line for line in agent.log.read_text().splitlines() if "container is launched" in line]
    assert len([line for line in told if wanted.id in line]) == 1
    [container] = engine.containers.list(filters={"label": f"io.penstock.user={run_id}"})
    host, config = container.attrs["HostConfig"], container.attrs["Config"]
    assert host["Memory"] == host["MemorySwap"] == 64 << 20
    assert host["NanoCpus"] == 500_000_000
    assert host["ShmSize"] == 32 << 20
    assert host["Init"] is True
    assert host["Privileged"] is False
    assert host["PidsLimit"] == 4096
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "3", "max-size": "10m"}}
    assert {"PENSTOCK_GPUS=SIM-worker1-0", "PENSTOCK_GPU_SHARE=500", "NVIDIA_VISIBLE_DEVICES=void"} <= set(
        config["Env"]
    )


def test_a_gpu_is_never_given_above_one(agent: Agent, spec: Make) -> None:
    gpu_share = {"uuid": "SIM-worker1-0", "index": 0, "milli": 600}
    with agent.client() as client:
        launch(client, spec(gpus=[gpu_share]))
        refused = put(client, spec(gpus=[gpu_share]))
        assert refused.status_code == 409
        assert "0.6 of GPU SIM-worker1-0 is in use" in refused.json()["errors"][0]["detail"]
        launch(client, spec(gpus=[{**gpu_share, "milli": 400}]))


def test_exit_code_log_and_heartbeat_of_a_container_that_ends(
    agent: Agent, spec: Make, fake_api: FakeApi, engine: docker.DockerClient
) -> None:
    script = "seq 1 5; until [ -e /tmp/go ]; do sleep 0.1; done; echo oops >&2; exit 7"
    wanted = spec(command=["sh", "-c"], args=[script])
    with agent.client() as client:
        launch(client, wanted)
        # the engine keeps the order within each of the two streams alone
        until(lambda: client.get(f"/v1/containers/{wanted.id}/logs").text == "1\n2\n3\n4\n5\n")
        engine.containers.get(f"penstock-{wanted.id}").exec_run(["touch", "/tmp/go"])
        state = wait_for(client, wanted.id, ContainerStatus.EXITED)
        assert state.exit_code == 7
        assert state.started_at is not None
        assert state.finished_at is not None
        assert state.finished_at >= state.started_at
        assert client.get(f"/v1/containers/{wanted.id}/logs").text == "1\n2\n3\n4\n5\noops\n"
        assert client.get(f"/v1/containers/{wanted.id}/logs?tail=2").text == "5\noops\n"
    seen = fake_api.wait(lambda beat: any(c.id == wanted.id and c.exit_code == 7 for c in beat.containers))
    assert seen.name == "worker1"
    assert seen.port == agent.port
    assert fake_api.peers == {"worker1"}


def test_log_can_be_followed_until_the_container_ends(agent: Agent, spec: Make) -> None:
    wanted = spec(command=["sh", "-c"], args=["echo first; sleep 1; echo last"])
    with agent.client() as client:
        launch(client, wanted)
        with client.stream("GET", f"/v1/containers/{wanted.id}/logs?follow=1") as answer:
            assert answer.headers["content-type"].startswith("text/plain")
            assert list(answer.iter_lines()) == ["first", "last"]


def test_followers_that_go_away_leave_no_threads_behind(agent: Agent, spec: Make) -> None:
    wanted = spec(command=["sh", "-c"], args=["echo begun; sleep 600"])
    with agent.client() as client:
        launch(client, wanted)
        for _ in range(60):
            with (
                agent.client() as follower,
                follower.stream("GET", f"/v1/containers/{wanted.id}/logs?follow=1") as answer,
            ):
                assert next(answer.iter_lines()) == "begun"
        wait_for(client, wanted.id, ContainerStatus.RUNNING)
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status")
    # one thread reads each log that is followed, so those of followers that are gone come to their end
    until(lambda: int(status.read_text().split("Threads:")[1].split()[0]) < 30)


def test_command_that_is_not_in_the_image_says_so(agent: Agent, spec: Make) -> None:
    wanted = spec(command=["/no/such/program"], args=[])
    with agent.client() as client:
        launch(client, wanted)
        state = wait_for(client, wanted.id, ContainerStatus.EXITED)
        assert (state.exit_code, state.error) == (127, "exit code 127: the command is not in the image; see the log")
        assert "/no/such/program" in client.get(f"/v1/containers/{wanted.id}/logs").text


def test_container_that_docker_cannot_start_fails_with_the_reason_even_after_a_restart(
    agent: Agent, spec: Make, tmp_path: Path
) -> None:
    wanted = spec(mounts=[{"source": str(tmp_path / "volumes"), "target": "/bin/busybox"}])
    with agent.client() as client:
        state = launch(client, wanted)
        assert state.status is ContainerStatus.FAILED
        assert "/bin/busybox" in state.error
    agent.stop()
    agent.start()
    with agent.client() as client:
        again = states(client)[wanted.id]
        assert again.status is ContainerStatus.FAILED
        assert "/bin/busybox" in again.error


def test_image_that_cannot_be_pulled_fails_with_the_reason(agent: Agent, spec: Make) -> None:
    wanted = spec(image="127.0.0.1:1/no/such:image")
    with agent.client() as client:
        assert launch(client, wanted).status in (ContainerStatus.PULLING, ContainerStatus.FAILED)
        state = wait_for(client, wanted.id, ContainerStatus.FAILED)
        assert "127.0.0.1:1/no/such:image cannot be pulled" in state.error
        client.delete(f"/v1/containers/{wanted.id}").raise_for_status()
        assert wanted.id not in states(client)


def test_restarted_agent_finds_its_containers(agent: Agent, spec: Make, fake_api: FakeApi) -> None:
    wanted = spec(gpus=[{"uuid": "SIM-worker1-1", "index": 1, "milli": 1000}])
    with agent.client() as client:
        before = launch(client, wanted)
    boots = {fake_api.wait(lambda beat: True).boot}
    agent.stop()
    agent.start()
    with agent.client() as client:
        assert states(client)[wanted.id] == before
        assert launch(client, wanted) == before
        assert put(client, spec(gpus=wanted.gpus)).status_code == 409
    fake_api.wait(lambda beat: beat.boot not in boots and [c.id for c in beat.containers] == [wanted.id])


def test_container_that_was_created_but_not_started_is_started_by_the_next_agent(
    agent: Agent, spec: Make, engine: docker.DockerClient
) -> None:
    from appliance.agent.docker.containers import ContainerLimits, creation

    agent.stop()
    wanted = spec()
    engine.api.create_container(**creation(wanted, limits=ContainerLimits(memlock=8 << 20)))
    agent.start()
    with agent.client() as client:
        wait_for(client, wanted.id, ContainerStatus.RUNNING)


def test_heartbeat_follows_a_change_at_once_and_survives_an_absent_api(
    agent: Agent, spec: Make, fake_api: FakeApi
) -> None:
    fake_api.wait(lambda beat: True)
    fake_api.interval_s = 600
    told = len(fake_api.heartbeats)
    # the answer to this one says how long the agent may be silent
    until(lambda: len(fake_api.heartbeats) > told)
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
        fake_api.wait(lambda beat: [c.status for c in beat.containers] == [ContainerStatus.RUNNING])
        fake_api.status = 503
        client.delete(f"/v1/containers/{wanted.id}?grace_s=1").raise_for_status()
        until(lambda: fake_api.refused > 0)
        count = len(fake_api.heartbeats)
        fake_api.status = 200
        fake_api.wait(lambda beat: beat.sequence > count and not beat.containers)


def test_delete_stops_removes_and_is_idempotent(
    agent: Agent, spec: Make, engine: docker.DockerClient, run_id: str
) -> None:
    wanted = spec(command=["sh", "-c"], args=["trap '' TERM; while true; do sleep 0.1; done"])
    with agent.client() as client:
        launch(client, wanted)
        assert client.delete(f"/v1/containers/{wanted.id}?grace_s=1").status_code == 204
        assert client.delete(f"/v1/containers/{wanted.id}").status_code == 204
        assert states(client) == {}
    assert engine.containers.list(all=True, filters={"label": f"io.penstock.user={run_id}"}) == []


def test_container_that_somebody_else_removed_is_forgotten(
    agent: Agent, spec: Make, engine: docker.DockerClient
) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
        engine.containers.get(f"penstock-{wanted.id}").remove(force=True)
        until(lambda: not states(client))


def test_mounts_only_below_the_allowed_folders(agent: Agent, spec: Make, tmp_path: Path) -> None:
    volume = tmp_path / "volumes" / "team-a" / "data"
    (tmp_path / "volumes" / "escape").symlink_to("/etc")
    wanted = spec(
        command=["sh", "-c"], args=["echo written > /data/file"], mounts=[{"source": str(volume), "target": "/data"}]
    )
    with agent.client() as client:
        launch(client, wanted)
        assert wait_for(client, wanted.id, ContainerStatus.EXITED).exit_code == 0
        assert (volume / "file").read_text() == "written\n"
        for source in ("/etc", str(tmp_path / "volumes" / "escape"), f"{volume}/../../../.."):
            refused = put(client, spec(mounts=[{"source": source, "target": "/data"}]))
            assert refused.status_code == 422, source
            assert refused.json()["errors"][0]["pointer"] == "/mounts/0/source"


def test_agent_stops_soon_while_somebody_follows_a_log(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        launch(client, wanted)
        with agent.client() as follower, follower.stream("GET", f"/v1/containers/{wanted.id}/logs?follow=1"):
            begun = time.monotonic()
            agent.stop()
            assert time.monotonic() - begun < 30
    agent.start()
    with agent.client() as client:
        assert states(client)[wanted.id].status is ContainerStatus.RUNNING


def test_another_node_s_certificate_is_refused(agent: Agent, spec: Make) -> None:
    with agent.client("worker2") as client:
        refused = client.get("/v1/health")
    assert refused.status_code == 403
    assert "the certificate of worker2 may not call" in refused.json()["errors"][0]["detail"]
    url = f"wss://127.0.0.1:{agent.port}/v1/containers/x/exec?command=[]"
    with pytest.raises(InvalidStatus) as rejected, connect(url, ssl=agent.context("worker2")):
        pass
    assert rejected.value.response.status_code == 403


def test_no_certificate_and_a_foreign_one_are_refused(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    bare = ssl.create_default_context(cafile=authority.ca)
    foreign = ssl.create_default_context(cafile=authority.ca)
    foreign.load_cert_chain(*make_authority(tmp_path / "foreign").issue("master"))
    for context in (bare, foreign):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{agent.url}/v1/health", verify=context)


def test_bad_bodies_name_their_field(agent: Agent, spec: Make) -> None:
    wanted = spec()
    with agent.client() as client:
        wrong = client.put(f"/v1/containers/{wanted.id}", json={**wanted.model_dump(), "colour": "red"})
        assert wrong.status_code == 422
        assert wrong.json()["errors"][0]["pointer"] == "/colour"
        assert client.put("/v1/containers/other", json=wanted.model_dump()).status_code == 422
        unknown = put(client, spec(gpus=[{"uuid": "GPU-of-another-node", "index": 0, "milli": 500}]))
        assert unknown.json()["errors"][0]["pointer"] == "/gpus/0/uuid"


def test_many_launches_at_once_make_one_container_each(agent: Agent, spec: Make) -> None:
    wanted = [spec() for _ in range(3)]

    async def burst() -> list[int]:
        async with httpx.AsyncClient(base_url=agent.url, verify=agent.context(), timeout=60) as client:
            puts = [client.put(f"/v1/containers/{s.id}", json=s.model_dump()) for s in wanted for _ in range(3)]
            return [answer.status_code for answer in await asyncio.gather(*puts)]

    assert asyncio.run(burst()) == [200] * 9
    with agent.client() as client:
        for one in wanted:
            wait_for(client, one.id, ContainerStatus.RUNNING)
        assert len(states(client)) == 3


def test_a_damaged_certificate_is_named_with_a_hint(node: Agent) -> None:
    certificate = Path(node.environment["PENSTOCK_AGENT_CERT"])
    whole = certificate.read_bytes()
    certificate.write_bytes(b"")
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "appliance.agent"], env=node.environment, check=False, capture_output=True, text=True
        )
    finally:
        certificate.write_bytes(whole)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert f"error: {certificate}: the certificate cannot be read" in ended.stderr
    assert "`penstock site deploy` brings it back" in ended.stderr
