"""A namespace that lets the agent's token make privileged pods is named."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from appliance.agent.kubernetes import namespace_check
from appliance.agent.kubernetes.client import Client
from tests.fakes.kubernetes import FakeKubernetes
from tests.unit.appliance.agent.kubernetes.conftest import POD_SETTINGS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("profile", "warned"), [("restricted", False), ("baseline", False), (None, True)])
async def test_a_namespace_without_a_profile_is_open(
    client: Client, fake: FakeKubernetes, profile: str | None, warned: bool
) -> None:
    fake.namespaces["penstock"] = {"pod-security.kubernetes.io/enforce": profile} if profile else {}
    with capture_logs() as logs:
        await namespace_check.warn_of_open(client, POD_SETTINGS)
    assert [line["log_level"] for line in logs] == ["warning"] * warned
    assert fake.pods() == {}, "nothing was made"
    assert all("penstock site kubernetes k8s1" in line["hint"] for line in logs)
