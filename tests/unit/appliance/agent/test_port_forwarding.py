"""Ports of containers; what needs sockets is in the integration tests."""

from __future__ import annotations

import ssl

import pytest

from appliance.agent.port_forwarding import PortForwarder
from common.errors import UnavailableError


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_container_without_an_address_is_not_taken_for_this_machine() -> None:
    forwarder = PortForwarder(ssl.create_default_context(), ("master",), bind="127.0.0.1", port_range=(57000, 57999))
    with pytest.raises(UnavailableError, match="no address"):
        await forwarder.open("c1", "", [8888])
    await forwarder.close("c1")
