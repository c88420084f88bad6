"""What a page refuses: as a browser that goes there sees it, and as the database and the audit log have it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from api.control import administration
from api.tables.nodes import Node
from common.errors import InputError
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE

pytestmark = pytest.mark.anyio
SCRIPT = {"HX-Request": "true"}


async def changed_and_refused(db: AsyncSession, *_: Any) -> None:
    """Refuse what has changed something by then."""
    await db.execute(update(Node).values(interface="eth7"))
    raise InputError("it will not do", where="interface")


@pytest.mark.parametrize("headers", [PAGE, SCRIPT])
async def test_what_is_refused_is_undone_whoever_asks(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(administration, "change", changed_and_refused)
    async with ready.client(**headers) as client:
        await sign_in(client, "admin")
        answer = await client.post("/nodes/worker1/interface", data={"interface": "eth7"})
    assert (answer.status_code, "it will not do" in answer.text) == (422, True)
    assert (await ok(ready.admin.get(f"{V1}/nodes/worker1")))["interface"] == ""


@pytest.mark.parametrize("headers", [PAGE, SCRIPT])
async def test_what_is_refused_is_told_as_that_whoever_asks(audited: Cluster, headers: dict[str, str]) -> None:
    await audited.add_node()
    async with audited.client(**headers) as client:
        await sign_in(client, "admin")
        assert (await client.post("/nodes/worker1/interface", data={"interface": "eth9"})).status_code == 422
    await audited.settle()
    last = (await ok(audited.admin.get(f"{V1}/audit")))[0]
    assert (last["action"], last["result"], last["status"]) == ("node_change", "failed", 422)
