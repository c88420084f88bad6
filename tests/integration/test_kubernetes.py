"""A Kubernetes cluster as one node: the real control API and a real agent before a cluster's interface."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from appliance.agent.storages import MARKER
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_server import PLAIN, Server, running_kubernetes
from tests.integration.agent.conftest import PACKAGE_INDEX, Agent, Authority, authority, make_agent  # noqa: F401
from tests.integration.test_api_agent import PASSWORD, Site
from tests.kubernetes_site import MANIFESTS
from tests.postgresql import new_database
from tests.websocket import connect

POD = "penstock-session-{}-0-0"


class ClusterSite(Site):
    """A site whose only node is a cluster."""

    cluster: Server
    storage: Path

    def session(self, name: str) -> dict[str, Any]:
        return dict(self.get(f"/sessions/{name}", project="team-a"))

    def pod(self, name: str) -> str:
        return POD.format(self.session(name)["id"])

    def pods(self) -> set[str]:
        return self.cluster.do(lambda cluster: set(cluster.pods()))

    def waits(self, name: str, *words: str) -> str:
        """Wait until a session is pending and says why."""
        session = self.until(
            lambda: (
                found
                if (found := self.session(name))["state"] == "PENDING" and all(w in found["reason"] for w in words)
                else None
            )
        )
        return str(session["reason"])


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterSite]:
    """A cluster of two machines with a GPU each, and a project that may use both."""
    folder = tmp_path_factory.mktemp("site")
    fake = FakeKubernetes()
    fake.grant(MANIFESTS)
    for name in ("left", "right"):
        fake.add_node(name, cpu="4", memory="16Gi", gpus=1, labels={"nvidia.com/gpu.product": "NVIDIA-A100"})
    with running_kubernetes(fake, *authority.issue("kubernetes")) as cluster:
        # last: the ports that it found free are taken by nobody else
        running = ClusterSite(authority, new_database(postgresql_server), folder)
        running.cluster, running.storage = cluster, folder / "storage"
        running.storage.mkdir()
        # a restart of the agent is no loss of the node, however busy this machine is
        running.environment["PENSTOCK_API_NODE_LOST_S"] = "60"
        running.environment["PENSTOCK_API_REGISTRIES"] = "registry.site"
        running.environment["PENSTOCK_API_PVC_ROOT"] = str(running.storage)
        (running.storage / MARKER).write_text("one\n")
        running.agent = cluster_agent(running.agent, cluster, folder)
        running.run("migrate")
        running.run("create-admin", "--name", "admin", stdin=PASSWORD)
        try:
            running.start()
            running.agent.start()
            login = running.call("POST", "/auth/login", {"name": "admin", "password": PASSWORD})
            running.client.headers["X-CSRF-Token"] = login["csrf_token"]
            running.call("POST", "/images", {"name": "busybox", "tag": "1", "reference": "registry.site/busybox:1"})
            running.call("POST", "/projects", {"name": "team-a", "quota_milli": 8000, "period": {"ends_at": None}})
            running.until(lambda: running.get("/nodes"))
            yield running
        finally:
            running.agent.stop()
            running.stop()
            running.client.close()


def cluster_agent(agent: Agent, cluster: Server, folder: Path) -> Agent:
    """Return the agent that stands for the cluster instead of its machine."""
    token = folder / "token"
    token.write_text("secret\n")
    nodes = folder / "nodes"
    nodes.write_text("192.0.2.7 master1 reservoir\n")
    agent.environment = {name: value for name, value in agent.environment.items() if "SIMULATED" not in name} | {
        "PENSTOCK_AGENT_KUBERNETES_API": cluster.url,
        "PENSTOCK_AGENT_KUBERNETES_CA": agent.environment["PENSTOCK_AGENT_CA"],
        "PENSTOCK_AGENT_KUBERNETES_TOKEN": str(token),
        "PENSTOCK_AGENT_KUBERNETES_SCHEDULE_S": "1",
        "PENSTOCK_AGENT_REGISTRIES": "registry.site",
        "PENSTOCK_AGENT_NODES_FILE": str(nodes),
        "PENSTOCK_AGENT_MOUNT_ROOTS": str(folder / "storage"),
        "PENSTOCK_AGENT_STORAGES": json.dumps({"shared": str(folder / "storage")}),
        "PENSTOCK_AGENT_STORAGE_IDS": json.dumps({"shared": "one"}),
    }
    return agent


@pytest.fixture(autouse=True)
def _tidy(site: ClusterSite) -> Iterator[None]:
    """Leave no session and no pod to the next test."""
    yield
    for session in site.get("/sessions"):
        site.delete(session["name"])
    site.until(lambda: not site.get("/sessions"))
    assert not [name for name in site.pods() if name.startswith("penstock-session")]


def test_a_cluster_is_one_node(site: ClusterSite) -> None:
    """What its machines have together, without shares of GPUs."""
    [node] = site.get("/nodes")
    assert (node["name"], node["state"]) == ("worker1", "ready")
    node = site.get("/nodes/worker1")
    assert (node["cpu_milli"], node["memory_mib"], node["fractions"]) == (8000, 32768, False)
    assert [(gpu["uuid"], gpu["model"]) for gpu in node["gpus"]] == [
        ("left/0", "NVIDIA-A100"),
        ("right/0", "NVIDIA-A100"),
    ]
    assert node["engine_version"] == "Kubernetes v1.20.2"


def test_the_third_session_waits_in_our_own_queue(site: ClusterSite) -> None:
    for name in ("first", "second", "third"):
        site.submit(name, "sleep", "600", gpu_milli=1000)
    for name in ("first", "second"):
        assert site.until_state(name, "RUNNING")["node"] == "worker1"
    assert "no node has 1 GPU free" in site.waits("third", "GPU")
    assert site.pods() >= {site.pod("first"), site.pod("second")}
    assert site.pod("third") not in site.pods()
    site.delete("first")
    site.until_state("third", "RUNNING")
    assert site.pod("third") in site.pods()


def test_a_share_of_a_gpu_is_refused_with_the_reason(site: ClusterSite) -> None:
    body = {"name": "half", "project": "team-a", "image": "busybox", "gpu_milli": 500}
    refused = site.client.post("/api/v1/sessions", json=body)
    reason = {"detail": "no GPU that it may use can be shared", "hint": "ask for whole GPUs"}
    assert (refused.status_code, refused.json()["errors"]) == (422, [{"pointer": "/gpu_milli", **reason}])
    with site.agent.client() as client:
        spec = {
            "id": "half",
            "session_id": "s",
            "session_name": "half",
            "project": "team-a",
            "user": "kim",
            "image": "i",
        }
        gpus = [{"uuid": "left/0", "index": 0, "milli": 500}]
        answer = client.put("/v1/containers/half", json=spec | {"gpus": gpus})
    assert answer.status_code == 422
    assert "Kubernetes gives whole GPUs only" in answer.json()["errors"][0]["detail"]


def test_a_container_for_which_no_machine_is_large_enough_is_refused_with_the_reason(site: ClusterSite) -> None:
    """The cluster has two GPUs, one on each machine."""
    body = {"name": "large", "project": "team-a", "image": "busybox", "gpu_milli": 2000}
    refused = site.client.post("/api/v1/sessions", json=body)
    reason = "one container asks for 2 GPUs and the largest machine that it may use has 1 GPU"
    assert (refused.status_code, refused.json()["errors"][0]["detail"]) == (422, reason)
    refused = site.client.post("/api/v1/sessions", json=body | {"gpu_milli": 1000, "replicas": 2})
    assert "cannot meet on the nodes that it may use" in refused.json()["errors"][0]["detail"]


def test_pods_run_on_while_the_agent_is_away(site: ClusterSite) -> None:
    """Its own memory is the cluster; what ended meanwhile is told afterwards."""
    site.submit("stays", "sleep", "600", gpu_milli=1000)
    site.submit("ends", "true", gpu_milli=1000)
    before = site.until_state("stays", "RUNNING")
    site.until_state("ends", "RUNNING")
    ends = site.pod("ends")
    site.agent.stop()
    site.cluster.do(lambda cluster: cluster.finish(ends))
    site.agent.start()
    assert site.until_state("ends", "TERMINATED")["exit_code"] == 0
    after = site.session("stays")
    assert (after["state"], after["started_at"]) == ("RUNNING", before["started_at"])


def test_a_pod_finds_the_sites_packages_by_name_and_authority(site: ClusterSite) -> None:
    """Its files come from its annotations, as a machine writes them."""
    site.submit("finds", "sleep", "600", gpu_milli=1000)
    site.until_state("finds", "RUNNING")
    pod = site.cluster.do(lambda cluster: cluster.pods())[site.pod("finds")]
    shown = files_of(pod)
    assert f"index-url = {PACKAGE_INDEX}\n" in shown["/etc/xdg/pip/pip.conf"]
    place = shown["/etc/xdg/pip/pip.conf"].partition("cert = ")[2].splitlines()[0]
    assert shown[place] == Path(site.agent.environment["PENSTOCK_AGENT_CA"]).read_text()
    assert pod["spec"]["hostAliases"] == [
        {"ip": "192.0.2.7", "hostnames": ["master1"]},
        {"ip": "192.0.2.7", "hostnames": ["reservoir"]},
    ]


def files_of(pod: dict[str, Any]) -> dict[str, str]:
    """Return the files that a pod sees in the place of its image's, and may not change."""
    annotations = pod["metadata"]["annotations"]
    written = {
        (volume["name"], item["path"]): annotations[item["fieldRef"]["fieldPath"].split("'")[1]]
        for volume in pod["spec"]["volumes"]
        for item in volume.get("downwardAPI", {}).get("items", [])
    }
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    return {
        mount["mountPath"]: written[mount["name"], mount["subPath"]]
        for mount in mounts
        if mount.get("readOnly") and (mount["name"], mount.get("subPath")) in written
    }


def test_a_lost_pod_is_reported(site: ClusterSite) -> None:
    site.submit("victim", "sleep", "600", gpu_milli=1000)
    site.until_state("victim", "RUNNING")
    pod = site.pod("victim")
    site.cluster.do(lambda cluster: cluster.delete(pod))
    assert site.until_state("victim", "FAILED")["reason"] == "its container is gone from worker1"
    site.submit("greedy", "sleep", "600", gpu_milli=1000)
    site.until_state("greedy", "RUNNING")
    other = site.pod("greedy")
    site.cluster.do(lambda cluster: cluster.evict(other, own_fault='Usage of EmptyDir volume "shm" exceeds the limit'))
    assert "exceeds the limit" in site.until_state("greedy", "FAILED")["reason"]


def test_a_training_that_the_cluster_takes_away_starts_again(site: ClusterSite) -> None:
    """Whether its machine needs the memory, is drained, or is not heard of any more."""
    site.submit("moves", "sleep", "600", gpu_milli=1000)
    site.until_state("moves", "RUNNING")
    pod, container = site.pod("moves"), "penstock-session-{}-{}-0"
    session = site.session("moves")["id"]

    def runs_again(attempt: int) -> str:
        """Return the machine on which an attempt runs."""
        name = container.format(session, attempt)
        found = site.until(lambda: site.cluster.do(lambda cluster: cluster.pods().get(name)))
        site.until(lambda: (site.session("moves")["attempt"], site.session("moves")["state"]) == (attempt, "RUNNING"))
        return str(found["spec"]["nodeName"])

    site.cluster.do(lambda cluster: cluster.evict(pod))
    machine = runs_again(1)
    site.cluster.do(lambda cluster: cluster.drain(machine))
    other = runs_again(2)
    assert other != machine

    def silence(cluster: FakeKubernetes) -> None:
        cluster.change_node(machine, lambda node: node["spec"].update(unschedulable=False))
        cluster.silence(other)
        cluster.after_silence(other, 60)

    site.cluster.do(silence)
    assert runs_again(3) == machine
    site.cluster.do(lambda cluster: cluster.hear(other))
    assert site.session("moves")["attempt"] == 3


def test_what_a_person_uses_ends_with_its_machine_and_says_so(site: ClusterSite) -> None:
    site.submit("notebook", "sleep", "600", gpu_milli=1000, interactive=True)
    site.until_state("notebook", "RUNNING")
    pod = site.pod("notebook")
    site.cluster.do(lambda cluster: cluster.evict(pod))
    assert "low on resource: memory" in site.until_state("notebook", "FAILED")["reason"]


def test_what_vanishes_while_the_agent_is_away_was_taken_away_too(site: ClusterSite) -> None:
    site.submit("moves", "sleep", "600", gpu_milli=1000)
    site.submit("notebook", "sleep", "600", gpu_milli=1000, interactive=True)
    pods = []
    for name in ("moves", "notebook"):
        site.until_state(name, "RUNNING")
        pods.append(site.pod(name))
    site.agent.stop()
    for pod in pods:
        site.cluster.do(partial(FakeKubernetes.delete, name=pod))
    site.agent.start()
    reason = "its container went from worker1 while the agent was away"
    assert site.until_state("notebook", "FAILED")["reason"] == reason
    site.until(lambda: (site.session("moves")["attempt"], site.session("moves")["state"]) == (1, "RUNNING"))


def test_a_site_of_clusters_alone_deletes_volumes_where_the_agent_has_the_storage(site: ClusterSite) -> None:
    volume = site.call("POST", "/volumes", {"name": "data", "project": "team-a"})
    folder = site.storage / volume["id"]
    folder.mkdir()
    (folder / "model").write_text("weights")
    site.client.delete("/api/v1/volumes/data", params={"project": "team-a"}).raise_for_status()
    site.until(lambda: not site.get("/volumes"))
    assert not folder.exists()


def test_a_command_that_fails_and_its_log(site: ClusterSite) -> None:
    site.submit("broken", "sh", "-c", "exit 7", gpu_milli=1000)
    site.until_state("broken", "RUNNING")
    pod = site.pod("broken")

    def fail(cluster: FakeKubernetes) -> None:
        cluster.written[pod] = b"one\nbefore\n"
        cluster.finish(pod, 7)

    site.cluster.do(fail)
    session = site.until_state("broken", "FAILED")
    assert (session["exit_code"], session["reason"]) == (7, "its command ended with exit code 7")
    log = site.client.get("/api/v1/sessions/broken/logs", params={"project": "team-a", "tail": 1})
    assert log.text.endswith("before\n")


def test_what_others_take_is_not_ours_to_give(site: ClusterSite) -> None:
    """A pod of somebody else takes a GPU: there is one less, and it is back with the end of that pod."""
    site.cluster.do(lambda cluster: cluster.add_pod("render", gpus=1))
    site.until(lambda: len(site.get("/nodes/worker1")["gpus"]) == 1)
    site.cluster.do(lambda cluster: cluster.delete("render", namespace="other"))
    site.until(lambda: len(site.get("/nodes/worker1")["gpus"]) == 2)


def test_a_pod_without_a_machine_waits_in_our_queue_and_not_in_the_clusters(site: ClusterSite) -> None:
    """The cluster's scheduler gives it none, for a reason that the node does not tell."""
    site.cluster.do(lambda cluster: setattr(cluster, "schedules", False))
    try:
        site.submit("stuck", "sleep", "600", gpu_milli=1000)
        pod = site.until(lambda: next((name for name in site.pods() if name.startswith("penstock-session")), None))
        assert "it is tried again" in site.until(
            lambda: reason if "has no machine for it now" in (reason := site.session("stuck")["reason"]) else ""
        )
    finally:
        site.cluster.do(lambda cluster: setattr(cluster, "schedules", True))
    site.until_state("stuck", "RUNNING")
    assert pod in site.pods()


@pytest.mark.parametrize("protocols", [None, (PLAIN,)], ids=["v5", "v4"])
def test_a_terminal_in_a_pod(site: ClusterSite, protocols: tuple[str, ...] | None) -> None:
    site.submit("shell", "sleep", "600", gpu_milli=1000)
    site.until_state("shell", "RUNNING")
    container = f"session-{site.session('shell')['id']}-0-0"
    before = site.cluster.protocols
    site.cluster.protocols = protocols or before
    try:
        assert terminal(site, container, ["echo", "hello", "there"]) == (b"hello there\n", {"code": 0})
        assert terminal(site, container, ["fail", "7"]) == (b"it fails\n", {"code": 7})
        shown, _ = terminal(site, container, ["size"], tty=True)
        assert json.loads(shown) == {"Width": 120, "Height": 40}
        if not protocols:
            assert terminal(site, container, ["cat"], b"typed") == (b"typed", {"code": 0})
    finally:
        site.cluster.protocols = before


def terminal(
    site: ClusterSite, container: str, command: list[str], typed: bytes = b"", *, tty: bool = False
) -> tuple[bytes, dict[str, Any]]:
    """Run a command by the agent; return what it wrote and how it ended."""
    query = urlencode({"command": json.dumps(command), "tty": int(tty), "rows": 40, "cols": 120})
    url = f"wss://127.0.0.1:{site.agent.port}/v1/containers/{container}/exec?{query}"
    written, last = b"", {}
    with connect(url, ssl=site.agent.context()) as connection:
        if typed:
            connection.send(typed)
            connection.send('{"type": "eof"}')
        for frame in connection:
            if isinstance(frame, bytes):
                written += frame
            else:
                last = json.loads(frame)
    assert last["type"] == "exit", last
    return written, {"code": last["code"]}


def test_the_token_may_be_replaced_at_any_time(site: ClusterSite) -> None:
    """As a cluster does with those of its service accounts."""
    path = Path(site.agent.environment["PENSTOCK_AGENT_KUBERNETES_TOKEN"])
    site.cluster.do(lambda cluster: setattr(cluster, "token", "rotated"))
    path.write_text("rotated")
    site.submit("later", "sleep", "600", gpu_milli=1000)
    site.until_state("later", "RUNNING")


def test_a_cluster_that_is_away_stops_nothing(site: ClusterSite) -> None:
    site.submit("goes-on", "sleep", "600", gpu_milli=1000)
    site.until_state("goes-on", "RUNNING")
    pod = site.pod("goes-on")
    site.cluster.do(lambda cluster: setattr(cluster, "away", True))
    time.sleep(1)
    assert site.session("goes-on")["state"] == "RUNNING"
    assert site.node_state() == "ready"

    def back(cluster: FakeKubernetes) -> None:
        cluster.away = False
        cluster.finish(pod)
        cluster.compact()

    site.cluster.do(back)
    site.until_state("goes-on", "TERMINATED")
