"""Whether a cluster can have an image."""

from __future__ import annotations

import dataclasses

import pytest

from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.images import Images
from common.protocol import ImageStatus
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import POD_SETTINGS

pytestmark = pytest.mark.anyio


async def test_an_image_that_comes_is_ready_with_its_digest(client: Client, fake: FakeKubernetes) -> None:
    images = Images(client, POD_SETTINGS)
    fake.pulling.add("python")
    assert (await images.ask("python")).status is ImageStatus.PULLING
    assert (await images.ask("python")).status is ImageStatus.PULLING
    assert len(fake.pods()) == 1
    fake.pulled("python")
    state = await images.ask("python")
    assert (state.status, state.digest) == (ImageStatus.READY, "sha256:python")
    assert fake.pods() == {}, "nothing is left behind"


async def test_an_image_that_cannot_be_pulled_is_told_once(client: Client, fake: FakeKubernetes) -> None:
    images = Images(client, POD_SETTINGS)
    fake.missing.add("nothing")
    await images.ask("nothing")
    state = await images.ask("nothing")
    assert (state.status, state.error) == (
        ImageStatus.FAILED,
        'the cluster cannot pull it: Back-off pulling image "nothing"',
    )
    fake.missing.clear()
    await images.ask("nothing")
    assert (await images.ask("nothing")).status is ImageStatus.READY


async def test_an_image_is_pulled_by_a_machine_that_may_be_used(client: Client, fake: FakeKubernetes) -> None:
    await Images(client, dataclasses.replace(POD_SETTINGS, machines={"pool": "a"})).ask("python")
    [pod] = fake.pods().values()
    assert pod["spec"]["nodeSelector"] == {"pool": "a"}
