"""What a page refuses: as a browser that goes there sees it, and as the database and the audit log have it."""

from __future__ import annotations

from typing import Any

import httpx
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


@pytest.mark.parametrize(
    ("path", "form", "said", "advised"),
    [
        ("/resource-groups", {"name": "night", "gpu_model": "!!"}, "글자도 숫자도 없습니다", "v100처럼"),
        ("/sandboxes", {"name": "strict", "rules": "1st"}, "시스템 호출이 아닙니다", "ptrace"),
        ("/sandboxes", {"name": "strict", "rules": "read"}, "read 없이는 컨테이너가 시작되지 않습니다", ""),
        ("/presets", {"name": "small", "description": "a\0b"}, "NUL 문자는 텍스트가 아닙니다", ""),
        ("/projects", {"name": "late", "ends_at": "9999-01-01T00:00"}, "연도는 1970년부터 9000년까지", ""),
        ("/projects/team-a", {"add_members": "nobody"}, "사용자 nobody이(가) 없습니다", "사용자를 만드세요"),
        ("/nodes/worker1/interface", {"interface": "eth9"}, "이 노드의 네트워크 인터페이스가 아닙니다", "에이전트가"),
        ("/nodes/No_Node/mode", {"mode": "active"}, "정해진 형식이 아닙니다", "소문자, 숫자"),
        ("/repairs", {"repair": "what?"}, "복구가 아닙니다", "복구 목록"),
        ("/backups", {"action": "now"}, "이 사이트의 컨트롤러는 지시를 받지 않습니다", "penstock backup now"),
    ],
)
async def test_what_is_refused_is_said_in_words_and_in_the_readers_language(
    browser: httpx.AsyncClient, path: str, form: dict[str, str], said: str, advised: str
) -> None:
    answer = await browser.post(path, data=form, headers={"Accept-Language": "ko", **SCRIPT})
    (told,) = answer.json()["errors"]
    assert (said in told["detail"], advised in told["hint"]) == (True, True), told
    assert "^" not in told["detail"] + told["hint"]
