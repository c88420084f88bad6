"""Whether a cluster can have an image."""

from __future__ import annotations

import dataclasses

import pytest

from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.images import Images
from common.errors import ConflictError
from common.protocol import ImageStatus
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import IMAGE, POD_SETTINGS

pytestmark = pytest.mark.anyio


async def test_an_image_that_comes_is_ready_with_its_digest(client: Client, fake: FakeKubernetes) -> None:
    images = Images(client, POD_SETTINGS)
    fake.pulling.add(IMAGE)
    assert (await images.ask(IMAGE)).status is ImageStatus.PULLING
    assert (await images.ask(IMAGE)).status is ImageStatus.PULLING
    assert len(fake.pods()) == 1
    fake.pulled(IMAGE)
    state = await images.ask(IMAGE)
    assert (state.status, state.digest) == (ImageStatus.READY, f"sha256:{IMAGE}")
    assert fake.pods() == {}, "nothing is left behind"


async def test_an_image_that_cannot_be_pulled_is_told_once(client: Client, fake: FakeKubernetes) -> None:
    images = Images(client, POD_SETTINGS)
    fake.missing.add(IMAGE)
    await images.ask(IMAGE)
    state = await images.ask(IMAGE)
    assert (state.status, state.error) == (
        ImageStatus.FAILED,
        "the cluster says that its image cannot be pulled",
    )
    fake.missing.clear()
    await images.ask(IMAGE)
    assert (await images.ask(IMAGE)).status is ImageStatus.READY


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (
            "10.0.0.1:22/a/b:1",
            "this site pulls no images from 10.0.0.1:22. Hint: name one of its registries: registry.site",
        ),
        ("python", "this site knows no registry for python"),
        ("5f", "5f could be the id of an image"),
    ],
)
async def test_nothing_is_asked_of_a_registry_that_is_not_the_sites(
    client: Client, fake: FakeKubernetes, reference: str, reason: str
) -> None:
    state = await Images(client, POD_SETTINGS).ask(reference)
    assert state.status is ImageStatus.FAILED
    assert reason in state.error
    assert fake.pods() == {}


async def test_a_quota_that_somebody_changes_just_then_is_no_pod_that_is_there(
    client: Client, fake: FakeKubernetes
) -> None:
    """Both are refused by 409."""
    fake.conflicts = 1
    with pytest.raises(ConflictError, match="resourcequotas"):
        await Images(client, POD_SETTINGS).ask(IMAGE)
    assert (await Images(client, POD_SETTINGS).ask(IMAGE)).status is ImageStatus.PULLING


async def test_an_image_is_pulled_by_a_machine_that_may_be_used(client: Client, fake: FakeKubernetes) -> None:
    await Images(client, dataclasses.replace(POD_SETTINGS, machines={"pool": "a"})).ask(IMAGE)
    [pod] = fake.pods().values()
    assert pod["spec"]["nodeSelector"] == {"pool": "a"}
