"""Every page, followed by each kind of person: what it offers is what the table of rights grants, and all of that."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from html import unescape

import httpx
import pytest
from sqlalchemy import select, update

from api.clock import now
from api.tables.sessions import Kind, Session, State
from api.tables.volumes import Volume
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.endpoints import scene
from tests.api.endpoints.rights import LET_IN, OWNERS, PEOPLE, REACH, REFUSED, RIGHTS, letter_of
from tests.api.endpoints.routes import Route
from tests.api.endpoints.scene import Scene
from tests.api.endpoints.test_routes import NOBODY, filled, path_of

pytestmark = pytest.mark.anyio

LINK, FORM = re.compile(r'\b(?:href|hx-get)="(/[^"#]*)"'), re.compile(r'\bhx-post="(/[^"]*)"')
REFUSALS = (401, 403, 404)
OTHERWISE = {"GET /login", "GET /apps/open", "GET /docs", "GET /health", "GET /password", "GET /openapi.json"}
"""What no page of the console has to lead to."""
NOT_TAKEN = {"POST /backups", "POST /repairs"}
"""What is offered where a controller takes orders."""


async def offered(client: httpx.AsyncClient) -> tuple[dict[str, int], set[str]]:
    """Follow all links of the pages from the first one on; return what each answers, and what forms and buttons ask."""
    seen: dict[str, int] = {}
    forms: set[str] = set()
    to_see = ["/"]
    while to_see:
        address = to_see.pop()
        if address not in seen and not address.startswith(("/docs", "/static/", "/accounting?")):
            answer = await client.get(address)
            seen[address] = answer.status_code
            if answer.headers["content-type"].startswith("text/html"):
                to_see += map(unescape, LINK.findall(answer.text))
                forms |= set(map(unescape, FORM.findall(answer.text)))
    return seen, forms


def granted(person: str, there: Scene, method: str) -> set[str]:
    """Return the paths at which the table lets a person ask by a page for what is in the scene."""
    found = set()
    for row in RIGHTS.keys() - OTHERWISE - NOT_TAKEN:
        path, letter = row.removeprefix(f"{method} "), letter_of(person, row)
        if path == row or path.startswith((V1, "/agent")) or letter in (LET_IN, REFUSED) or "_id}" in path:
            continue
        wanted = path_of(Route(method, path))
        for owner in OWNERS[: REACH[letter]] if "{" in path else ("own",):
            thing = there.thing(person, owner)
            if thing["domain"] is not None or "{domain}" not in wanted:
                found.add(filled(wanted, {**thing, "None": "mine"}))
    # nobody ends the own account by a button
    return found - {f"/users/{person}", f"/users/{person}/delete"}


async def prepared(cluster: Cluster) -> Scene:
    """Make a scene where sessions run, and something is on every page."""
    there = await scene.prepare(cluster)
    await ok(cluster.admin.post(f"{V1}/user-policies", json={"name": "mine"}))
    await ok(cluster.admin.post(f"{V1}/presets", json={"name": "mine", "gpu_milli": 500}))
    await ok(cluster.admin.post(f"{V1}/sandboxes", json={"name": "mine", "rules": [{"calls": ["ptrace"]}]}))
    moment = now()
    async with cluster.database.transaction() as db:
        runs = {"state": State.RUNNING, "started_at": moment, "expires_at": moment + timedelta(hours=1)}
        await db.execute(update(Session).values(**runs, kind=Kind.INTERACTIVE, gpu_milli=500))
    return there


@pytest.mark.parametrize("person", [person for person in PEOPLE if person not in NOBODY])
async def test_a_page_offers_what_its_reader_may_do_and_nothing_else(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, person: str
) -> None:
    there = await prepared(cluster)
    async with cluster.database.reading() as db:
        rows = [row for kind in (Session, Volume) for row in await db.execute(select(kind.id, kind.name))]
        names = {str(id_): name for id_, name in rows}
    monkeypatch.setattr(cluster.database, "transaction", partial(scene.undone, cluster.database))
    async with cluster.client(scene.key_of(person), **PAGE) as client:
        seen, forms = await offered(client)
        assert {address: status for address, status in seen.items() if status in REFUSALS or status >= 500} == {}
        asked = {address: await client.post(address, data={}, headers={"HX-Request": "true"}) for address in forms}
    refused = {address: answer.text for address, answer in asked.items() if answer.status_code in REFUSALS}
    assert refused == {}
    for method, addresses in (("GET", [*seen, *forms]), ("POST", forms)):
        paths = {address.partition("?")[0] for address in addresses}
        paths = {re.sub(r"[0-9a-f-]{36}", lambda found: names.get(found[0], found[0]), path) for path in paths}
        assert sorted(granted(person, there, method) - paths) == [], method
    in_vain = {row.removeprefix("POST ") for row in RIGHTS if "{" not in row and letter_of(person, row) == LET_IN}
    assert in_vain & forms == set(), "who is in no project has nothing to launch or to register for"
