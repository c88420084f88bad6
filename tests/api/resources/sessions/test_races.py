"""Submissions against what happens to their user at the same moment, and batches that are more than their sum."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import delete, event

from api.resources.sessions import submission
from api.tables.users import User
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.steps import body

pytestmark = pytest.mark.anyio


async def test_who_is_deleted_while_submitting_gets_no_session(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without its user would be nobody's to end."""
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        check_fits = submission._check_fits

        async def overtaken(db: Any, *args: Any) -> None:
            await check_fits(db, *args)
            await db.execute(delete(User).where(User.name == "alice"))

        monkeypatch.setattr(submission, "_check_fits", overtaken)
        error = await refused(alice.post(f"{V1}/sessions", json=body()), 401)
        assert error["reason"] == "the user has been deleted"
    assert await ready.states() == {}


async def test_a_batch_reads_the_taken_addresses_once(ready: Cluster) -> None:
    async def statements(count: int) -> int:
        seen: list[str] = []
        engine = ready.database.engine.sync_engine

        def note(*args: Any) -> None:
            seen.append(args[2])

        event.listen(engine, "before_cursor_execute", note)
        request = body(f"job{count}", count=count, gpu_milli=1000, ports=[8080])
        made = await ok(ready.admin.post(f"{V1}/sessions/batch", json=request))
        event.remove(engine, "before_cursor_execute", note)
        assert len({session["name"] for session in made}) == count
        return len([text for text in seen if text.startswith("SELECT")])

    await statements(1)  # reads the nodes, which is done once
    assert await statements(2) == await statements(20)


async def test_the_sessions_of_a_batch_share_no_base_path(ready: Cluster) -> None:
    request = body("lab", count=2, gpu_milli=1000, ports=[8888], args=["--NotebookApp.base_url=/lab"])
    error = await refused(ready.admin.post(f"{V1}/sessions/batch", json=request), 409)
    assert error["reason"] == "another session has the base_url lab already"
    assert await ready.states() == {}
