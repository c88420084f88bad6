"""From a spec to a pod, and from a pod to a state."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any

import pytest

from appliance.agent.kubernetes import pods
from appliance.agent.kubernetes.pod_settings import FolderClaim
from common.errors import InputError
from common.gpu.kinds import Enforcement
from common.protocol import ContainerStatus, Pull
from common.settings.pod_template import PodTemplate
from tests.unit.appliance.agent.kubernetes.conftest import POD_SETTINGS, make

STARTED = "2026-01-02T03:04:05Z"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def pod(state: dict[str, Any] | None = None, *places: str, machine: str = "left", **status: Any) -> dict[str, Any]:
    """Return the pod of a spec as a cluster tells it; `state` is that of its container."""
    found = pods.manifest(make(*places, memory_mib=64), POD_SETTINGS, machine)
    found["spec"]["nodeName"] = machine
    told = [{"name": "session", "state": state}] if state is not None else []
    found["status"] = {"phase": "Pending", "containerStatuses": told} | status
    return found


def container(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = pods.manifest(make(**changes), POD_SETTINGS, "")["spec"]["containers"][0]
    return found


def test_limits_are_what_kubernetes_counts() -> None:
    spec = make("left/0", "left/1", cpu_milli=1500, memory_mib=256, shm_mib=128)
    made = pods.manifest(spec, POD_SETTINGS, "left")["spec"]
    limits = {"cpu": "1500m", "memory": "256Mi", "nvidia.com/gpu": "2"}
    assert made["containers"][0]["resources"] == {"limits": limits, "requests": limits}
    assert made["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "128Mi"}
    assert container()["resources"] == {"limits": {}, "requests": {}}
    disk = {"limits": {"ephemeral-storage": "2048Mi"}, "requests": {"ephemeral-storage": "0Mi"}}
    assert container(disk_mib=2048)["resources"] == disk


def test_a_pod_with_gpus_is_held_to_the_machine_that_has_them() -> None:
    made = pods.manifest(make("left/0"), POD_SETTINGS, "left")["spec"]
    [term] = made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["left"]}]
    assert "affinity" not in pods.manifest(make(), POD_SETTINGS, "")["spec"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"command": None, "args": []}, (None, None)),
        ({"command": ["sleep"], "args": ["5"]}, (["sleep"], ["5"])),
        ({"command": None, "args": ["5"]}, (None, ["5"])),
    ],
)
def test_a_command_replaces_that_of_the_image(changes: dict[str, Any], expected: tuple[Any, Any]) -> None:
    made = container(**changes)
    assert (made.get("command"), made.get("args")) == expected


def test_words_reach_the_container_as_they_were_written() -> None:
    """Of `$$` a cluster leaves one, and in the place of `$(NAME)` it puts a variable; a shell means something else."""
    made = container(command=["sh", "-c", "echo $$ $(HOME)"], args=["$1"], environment={"PROMPT": "$(USER)$ "})
    assert made["command"] == ["sh", "-c", "echo $$$$ $$(HOME)"]
    assert made["args"] == ["$$1"]
    assert {"name": "PROMPT", "value": "$$(USER)$$ "} in made["env"]


def test_names_of_the_site_stand_behind_those_of_the_template() -> None:
    said = PodTemplate.model_validate({"spec": {"hostAliases": [{"ip": "10.0.0.9", "hostnames": ["licences"]}]}})
    settings = dataclasses.replace(POD_SETTINGS, template=said)
    made = pods.manifest(make(), settings, "", {"reservoir": IPv4Address("10.0.0.2")})["spec"]
    assert made["hostAliases"] == [
        {"ip": "10.0.0.9", "hostnames": ["licences"]},
        {"ip": "10.0.0.2", "hostnames": ["reservoir"]},
    ]
    assert "hostAliases" not in pods.manifest(make(), POD_SETTINGS, "")["spec"]


@pytest.mark.parametrize(("pull", "policy"), [(Pull.MISSING, "IfNotPresent"), (Pull.NEVER, "Never")])
def test_images_are_pulled_where_they_are_missing_or_never(pull: Pull, policy: str) -> None:
    assert container(pull=pull)["imagePullPolicy"] == policy


def test_a_session_without_gpus_sees_none_and_one_with_them_what_the_cluster_gives() -> None:
    def seen(*places: str) -> str | None:
        spec = make(*places, environment={"NVIDIA_VISIBLE_DEVICES": "all", "EPOCHS": "3"})
        made = pods.manifest(spec, POD_SETTINGS, "left")["spec"]["containers"][0]["env"]
        environment = {item["name"]: item["value"] for item in made}
        assert environment["EPOCHS"] == "3"
        return environment.get("NVIDIA_VISIBLE_DEVICES")

    assert seen() == "void"
    assert seen("left/0") is None


def test_a_share_of_a_gpu_is_refused() -> None:
    spec = make(gpus=[{"uuid": "left/0", "index": 0, "milli": 500}])
    with pytest.raises(InputError, match="Kubernetes gives whole GPUs only"):
        pods.check(spec, POD_SETTINGS)


VOLUMES = dataclasses.replace(
    POD_SETTINGS,
    claims=[
        FolderClaim(PurePosixPath("/mnt/penstock"), "volumes"),
        FolderClaim(PurePosixPath("/mnt/penstock/fast"), "fast"),
    ],
)


@pytest.mark.parametrize(
    ("source", "volume", "inside"),
    [
        ("/mnt/penstock/team-a/data", {"persistentVolumeClaim": {"claimName": "volumes"}}, "team-a/data"),
        ("/mnt/penstock", {"persistentVolumeClaim": {"claimName": "volumes"}}, None),
        ("/mnt/penstock/fast/x", {"persistentVolumeClaim": {"claimName": "fast"}}, "x"),
    ],
)
def test_a_folder_of_the_workers_is_a_claim_of_the_cluster(source: str, volume: Any, inside: str | None) -> None:
    spec = make(mounts=[{"source": source, "target": "/data", "read_only": True}])
    pods.check(spec, VOLUMES)
    made = pods.manifest(spec, VOLUMES, "")["spec"]
    assert made["volumes"][1] == {"name": "mount-0", **volume}
    mounted = {"name": "mount-0", "mountPath": "/data", "readOnly": True} | ({"subPath": inside} if inside else {})
    assert made["containers"][0]["volumeMounts"][1] == mounted


def test_files_of_the_site_come_by_annotations_of_the_pod() -> None:
    made = pods.manifest(make(), dataclasses.replace(POD_SETTINGS, site_files={"/etc/pip.conf": "[global]\n"}), "")
    assert made["metadata"]["annotations"]["io.penstock.pip.conf"] == "[global]\n"
    item = {"path": "pip.conf", "fieldRef": {"fieldPath": "metadata.annotations['io.penstock.pip.conf']"}}
    assert made["spec"]["volumes"][1:] == [{"name": "site", "downwardAPI": {"items": [item]}}]
    mounted = {"name": "site", "mountPath": "/etc/pip.conf", "subPath": "pip.conf", "readOnly": True}
    assert made["spec"]["containers"][0]["volumeMounts"][1:] == [mounted]
    without = pods.manifest(make(), POD_SETTINGS, "")["spec"]
    assert [volume["name"] for volume in without["volumes"]] == ["shm"]


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ({"source": "/home/kim", "target": "/data"}, "/home/kim is a folder of the workers that the cluster does not"),
        ({"source": "/mnt/penstock/../x", "target": "/data"}, "the cluster does not have"),
        ({"source": "/mnt/penstockx", "target": "/data"}, "the cluster does not have"),
        ({"source": "/mnt/penstock/x", "target": "/proc/x"}, "/proc/x belongs to the system"),
    ],
)
def test_other_folders_are_refused_by_name(mount: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        pods.check(make(mounts=[mount]), VOLUMES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sandbox": {"name": "strict"}}, "sandboxes"),
        (
            {
                "network": {
                    "number": 7,
                    "subnet": "10.0.0.0/24",
                    "address": "10.0.0.2",
                    "name": "a",
                    "hosts": {"a": "10.0.0.2"},
                }
            },
            "networks between the containers",
        ),
    ],
)
def test_what_a_cluster_cannot_hold_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        pods.check(make(**changes), POD_SETTINGS)


@pytest.mark.parametrize(
    ("state", "status", "error"),
    [
        (None, ContainerStatus.PULLING, ""),
        ({"waiting": {"reason": "ContainerCreating"}}, ContainerStatus.PULLING, ""),
        ({"waiting": {"reason": "ErrImagePull", "message": "not found"}}, ContainerStatus.PULLING, ""),
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}},
            ContainerStatus.FAILED,
            "its image cannot be pulled",
        ),
        ({"waiting": {"reason": "InvalidImageName"}}, ContainerStatus.FAILED, "the name of its image is not valid"),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": "no claim volumes"}},
            ContainerStatus.FAILED,
            "no claim volumes",
        ),
        ({"running": {"startedAt": STARTED}}, ContainerStatus.RUNNING, ""),
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, ContainerStatus.EXITED, ""),
        ({"terminated": {"exitCode": 7, "reason": "Error"}}, ContainerStatus.EXITED, ""),
        (
            {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            ContainerStatus.EXITED,
            "out of memory: the limit is 64Mi",
        ),
        (
            {"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: no such file"}},
            ContainerStatus.FAILED,
            "exec: no such file",
        ),
    ],
)
def test_what_a_machine_tells_becomes_a_state(state: Any, status: ContainerStatus, error: str) -> None:
    found = pods.state_of(pod(state))
    assert found.status is status
    assert error in found.error
    assert bool(found.error) == bool(error)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable"])
def test_what_a_machine_says_of_a_registry_stays_in_the_cluster(reason: str) -> None:
    inner = 'failed to do request: Head "https://10.0.0.1:22/v2/": dial tcp 10.0.0.1:22: connect: connection refused'
    found = pods.state_of(pod({"waiting": {"reason": reason, "message": inner}}))
    assert "10.0.0.1" not in found.model_dump_json()


def test_an_image_comes_from_a_registry_of_the_site_or_is_there_already() -> None:
    for image in ("10.0.0.1:22/a/b:1", "python:3.11"):
        with pytest.raises(InputError, match=r"name one of its registries: registry\.site"):
            pods.check(make(image=image), POD_SETTINGS)
        pods.check(make(image=image, pull=Pull.NEVER), POD_SETTINGS)


def test_times_and_exit_code_are_told() -> None:
    ended = {"exitCode": 3, "reason": "Error", "startedAt": STARTED, "finishedAt": STARTED}
    found = pods.state_of(pod({"terminated": ended}, "left/0"))
    assert (found.exit_code, found.started_at, found.finished_at) == (3, AT, AT)
    assert ([share.uuid for share in found.gpus], found.enforcement) == (["left/0"], Enforcement.NONE)


def test_what_stands_beside_a_session_is_not_taken_for_it() -> None:
    """A webhook of the cluster may put a container before it."""
    found = pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    found["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy", "imagePullPolicy": "Never"})
    found["status"]["containerStatuses"].insert(0, {"name": "proxy", "state": {"running": {"startedAt": STARTED}}})
    assert "the limit is 64Mi" in pods.state_of(found).error
    found["status"]["containerStatuses"] = []
    assert pods.state_of(found).status is ContainerStatus.PULLING


def test_a_pod_that_its_machine_threw_out_has_failed_with_the_reason() -> None:
    found = pods.state_of(pod(None, phase="Failed", reason="Evicted", message="low on memory"))
    assert (found.status, found.error) == (ContainerStatus.FAILED, "Evicted: low on memory")


def test_a_pod_that_somebody_deletes_says_so_while_it_runs() -> None:
    leaving = pod({"running": {"startedAt": STARTED}})
    leaving["metadata"]["deletionTimestamp"] = STARTED
    assert "told the cluster to delete it" in pods.state_of(leaving).warning


def test_a_pod_without_a_machine_says_why() -> None:
    waiting = pod(None)
    del waiting["spec"]["nodeName"]
    assert (pods.is_placed(waiting), pods.why_unplaced(waiting)) == (False, "")
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    waiting["status"]["conditions"] = [told]
    assert pods.why_unplaced(waiting) == "0/2 nodes"


def test_what_must_be_known_after_a_restart_stands_in_the_pod() -> None:
    made = pods.manifest(make("left/0", ports=[8888]), POD_SETTINGS, "left")
    assert pods.id_of(made) == "c1"
    assert [share.uuid for share in pods.shares_of(made)] == ["left/0"]
    assert pods.ports_of(made) == [8888]
    assert len(pods.digest_label(made)) == 64
    assert made["metadata"]["labels"]["io.penstock.node"] == "k8s1"
