"""What every pod has by the site's settings: a cluster that enforces the profile takes it, and nothing changes it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.images import Images
from appliance.agent.kubernetes.pod_supervisor import PodSupervisor
from common.errors import InputError
from common.protocol import ContainerStatus, ImageStatus
from common.settings.kubernetes import PodSecurity
from common.settings.pod_template import PodTemplate, Toleration
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.kubernetes_store import RefusedError
from tests.unit.appliance.agent.kubernetes.conftest import IMAGE, POD_SETTINGS, make, make_cluster, until

pytestmark = pytest.mark.anyio
POD = "penstock-c1"
BASELINE = dataclasses.replace(POD_SETTINGS, pod_security=PodSecurity.BASELINE)


async def launched(client: Client, fake: FakeKubernetes, **settings: Any) -> dict[str, Any]:
    """Return the spec of a pod of a cluster with these settings."""
    cluster = make_cluster(client, pod_settings=dataclasses.replace(POD_SETTINGS, **settings))
    await cluster.rebuild()
    await cluster.launch(make("left/0"))
    return dict(fake.pods()[POD]["spec"])


async def test_the_fake_cluster_admits_no_other_pod_by_its_profile(fake: FakeKubernetes) -> None:
    """Otherwise nothing here would show anything."""
    container = {"name": "a", "image": "b"}
    with pytest.raises(RefusedError) as refused:
        fake.put_pod("penstock", {"metadata": {"name": "bare"}, "spec": {"containers": [container]}})
    for words in ("allowPrivilegeEscalation != false", "unrestricted capabilities", "runAsNonRoot", "seccompProfile"):
        assert words in str(refused.value)
    fake.put_pod("other", {"metadata": {"name": "bare"}, "spec": {"containers": [container]}})


async def test_a_restricted_namespace_admits_a_session_and_the_question_for_an_image(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    await cluster.launch(make("left/0"))
    assert (await Images(client, POD_SETTINGS).ask(IMAGE)).status is ImageStatus.PULLING
    assert len(fake.pods()) == 2


async def test_a_session_gains_no_rights_by_its_pod(client: Client, fake: FakeKubernetes) -> None:
    made = await launched(client, fake)
    assert made["automountServiceAccountToken"] is False
    assert made["restartPolicy"] == "Never"
    assert made["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True}
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert made["containers"][0]["securityContext"] == rights


async def test_an_image_that_runs_as_root_fails_with_the_reason(
    client: Client, cluster: PodSupervisor, fake: FakeKubernetes
) -> None:
    fake.root.add(IMAGE)
    await cluster.launch(make("left/0"))
    await until(lambda: [state.status for state in cluster.states()] == [ContainerStatus.FAILED])
    assert "image will run as root" in cluster.states()[0].error
    images = Images(client, POD_SETTINGS)
    await images.ask(IMAGE)
    state = await images.ask(IMAGE)
    assert (state.status, "runs as root" in state.error) == (ImageStatus.FAILED, True)
    assert "run_as" in state.error, "what the site may do about it"


async def test_another_user_may_take_the_place_of_root(client: Client, fake: FakeKubernetes) -> None:
    fake.root.add(IMAGE)
    made = await launched(client, fake, run_as=1000)
    assert made["securityContext"]["runAsUser"] == made["securityContext"]["runAsGroup"] == 1000
    assert fake.pods()[POD]["status"]["phase"] == "Running"


async def test_a_site_may_let_images_run_as_root(client: Client, fake: FakeKubernetes) -> None:
    """Then the namespace enforces the other profile, which still lets nobody out of the container."""
    fake.root.add(IMAGE)
    fake.namespaces["penstock"]["pod-security.kubernetes.io/enforce"] = "baseline"
    made = await launched(client, fake, pod_security=PodSecurity.BASELINE)
    assert fake.pods()[POD]["status"]["phase"] == "Running"
    assert "runAsNonRoot" not in made["securityContext"]
    assert made["containers"][0]["securityContext"]["capabilities"] == {"drop": ["NET_RAW"]}


async def test_a_pod_that_the_profile_of_the_namespace_does_not_admit_fails_its_session(
    client: Client, fake: FakeKubernetes
) -> None:
    """To try again would change nothing; the site's setting and the namespace's label do not agree."""
    cluster = make_cluster(client, pod_settings=BASELINE)
    await cluster.rebuild()
    with pytest.raises(InputError, match="violates PodSecurity") as caught:
        await cluster.launch(make("left/0"))
    assert "pod_security" in caught.value.problems[0].hint


async def test_a_runtime_class_is_asked_for(client: Client, fake: FakeKubernetes) -> None:
    with pytest.raises(InputError, match='RuntimeClass "gvisor" not found'):
        await launched(client, fake, runtime_class="gvisor")
    fake.runtime_classes.add("gvisor")
    assert (await launched(client, fake, runtime_class="gvisor"))["runtimeClassName"] == "gvisor"


async def test_tolerations_open_machines_that_others_keep_away_from(client: Client, fake: FakeKubernetes) -> None:
    taint = {"key": "team", "value": "research", "effect": "NoSchedule"}
    for name in ("left", "right"):
        fake.change_node(name, lambda node: node["spec"].update(taints=[taint]))
    closed = make_cluster(client)
    await closed.rebuild()
    assert closed.node_info().cpu_milli == 0
    await launched(client, fake, tolerations=[Toleration(key="team", value="research", effect="NoSchedule")])
    assert fake.pods()[POD]["spec"]["nodeName"] == "left"


async def test_a_cluster_gives_pods_of_a_silent_machine_up_after_the_sites_time(
    client: Client, fake: FakeKubernetes
) -> None:
    made = await launched(client, fake, lost_s=45)
    silent = {
        item["key"]: item.get("tolerationSeconds") for item in made["tolerations"] if item.get("effect") == "NoExecute"
    }
    assert silent == {"node.kubernetes.io/not-ready": 45, "node.kubernetes.io/unreachable": 45}


async def test_the_sites_own_word_on_silent_machines_counts(client: Client, fake: FakeKubernetes) -> None:
    own = Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=5)
    made = await launched(client, fake, tolerations=[own])
    found = [item["tolerationSeconds"] for item in made["tolerations"] if item["key"] == own.key]
    assert found == [5]


async def test_the_sites_template_is_part_of_every_pod_and_changes_nothing_of_ours(
    client: Client, fake: FakeKubernetes
) -> None:
    profile = {"type": "Localhost", "localhostProfile": "a.json"}
    template = PodTemplate.model_validate(
        {
            "metadata": {"labels": {"cost-centre": "42"}, "annotations": {"sidecar.istio.io/inject": "false"}},
            "spec": {
                "priorityClassName": "batch",
                "imagePullSecrets": [{"name": "registry"}],
                "securityContext": {
                    "fsGroup": 100,
                    "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"},
                },
            },
        }
    )
    made = await launched(client, fake, template=template)
    assert (made["priorityClassName"], made["imagePullSecrets"]) == ("batch", [{"name": "registry"}])
    assert made["securityContext"] == {"fsGroup": 100, "seccompProfile": profile, "runAsNonRoot": True}
    metadata = fake.pods()[POD]["metadata"]
    assert metadata["labels"]["cost-centre"] == "42"
    assert metadata["labels"]["io.penstock.id"] == "c1"
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["io.penstock.spec"]
    await Images(client, dataclasses.replace(POD_SETTINGS, template=template)).ask(IMAGE)
    assert {pod["spec"]["priorityClassName"] for pod in fake.pods().values()} == {"batch"}
