"""Every route, called by each kind of person for things of each kind of owner: `rights.py` says how far they reach."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from api.endpoints.access import check_routes
from api.endpoints.app import create_app
from common.errors import PenstockError
from common.protocol import HEARTBEAT_PATH
from tests.api.cluster import V1, Cluster
from tests.api.endpoints import scene
from tests.api.endpoints.rights import (
    LET_IN,
    OF_AGENTS,
    OF_THE_CONTROLLER,
    OWNERS,
    PEOPLE,
    REACH,
    REFUSED,
    RIGHTS,
    letter_of,
)
from tests.api.endpoints.routes import Route, open_websocket, routes_of, status_of
from tests.api.endpoints.scene import ASKED, NAMES, Scene, Thing
from tests.api.endpoints.told import watch

pytestmark = pytest.mark.anyio

NOBODY = ("agent", "anonymous")
"""To whom no account of the site belongs."""
NAMELESS = "00000000-0000-4000-8000-000000000000"
NOTHING: Thing = dict.fromkeys(
    ("user", "domain", "project", "group", "node", "image", "session", "volume", "heir"), "nothing-here"
)
NOTHING |= {"key_id": NAMELESS, "login_id": NAMELESS, "app": f"8888-{'0' * 32}"}
REASONS = {"there is no": 404, "has no session": 404, "belongs to": 403}
"""What a terminal is told that is let in and then refused."""


def path_of(route: Route) -> str:
    """Return the path of a route, with what its name is the name of."""
    first = route.path.removeprefix("/api/v1").removeprefix("/").partition("/")[0]
    return route.path.replace("{name}", f"{{{NAMES.get(first)}}}").replace("{tag}", "1")


def filled(value: Any, thing: Thing) -> Any:
    """Return what is sent, with a thing's names in place of what stands in braces."""
    if isinstance(value, str):
        return re.sub(r"{(\w+)}", lambda found: str(thing[found[1]]), value)
    if isinstance(value, Mapping):
        return {key: filled(inner, thing) for key, inner in value.items()}
    return [filled(inner, thing) for inner in value] if isinstance(value, list) else value


async def answer(cluster: Cluster, client: httpx.AsyncClient, route: Route, thing: Thing) -> tuple[int, str]:
    """Ask a route for a thing; return the status that is meant, and the text with none of the thing's names."""
    asked, path = ASKED[str(route)], filled(path_of(route), thing)
    query, headers = filled(asked.query, thing), filled(asked.headers, thing)
    if route.method == "WEBSOCKET":
        sent = await open_websocket(cluster.app, path, dict(client.headers), query)
        if sent[0]["type"] != "websocket.accept":
            return int(sent[0]["status"]), ""
        text = str(json.loads(sent[1]["text"])["reason"])
        return next((status for reason, status in REASONS.items() if reason in text), 101), text
    body, form = filled(asked.body, thing), filled(asked.form, thing)
    got = await client.request(route.method, path, params=query, json=body, data=form, headers=headers)
    assert got.status_code < 500
    assert got.status_code != 422, got.text
    return int(got.headers.get("X-Status", got.status_code)), re.sub(r'"request_id":"\w+"', "", got.text)


async def is_reached(cluster: Cluster, client: httpx.AsyncClient, route: Route, thing: Thing) -> bool:
    """Return whether a route does for a thing what it is for; one that lists things has to show it."""
    status, text = await answer(cluster, client, route, thing)
    if shown := ASKED[str(route)].show:
        return f'"{filled(shown, thing)}"' in text
    return status not in (401, 403, 404)


async def tells_apart(
    cluster: Cluster, client: httpx.AsyncClient, route: Route, thing: Thing, nothing: Thing = NOTHING
) -> bool:
    """Return whether a refusal says anything that one for what is not there at all would not."""
    answers = []
    for one in (thing, nothing):
        status, text = await answer(cluster, client, route, one)
        # the longest first: some names are parts of others
        for name in sorted(map(str, one.values()), key=len, reverse=True):
            text = text.replace(name, "…")
        answers.append((status, text))
    return answers[0] != answers[1]


def sees_private(person: str) -> bool:
    """Return whether a person sees the private sessions of others in the same project."""
    return REACH.get(letter_of(person, f"GET {V1}/sessions/{{name}}"), 0) >= REACH["V"]


async def faults(cluster: Cluster, client: httpx.AsyncClient, person: str, there: Scene) -> AsyncIterator[str]:
    """Yield what a person can do, or cannot, in another way than the table says."""
    for route in routes_of(cluster.app):
        letter, asked = letter_of(person, str(route)), ASKED.get(str(route))
        if letter == REFUSED or asked is None:
            status = await status_of(cluster, client, route)
            refused = 401 if person in NOBODY or RIGHTS[str(route)] in (OF_AGENTS, OF_THE_CONTROLLER) else 403
            # Who is let in finds nothing there, or hears what the empty body lacks.
            if status >= 500 or (status != refused if letter == REFUSED else status in (401, 403)):
                yield f"{route} -> {status}"
            continue
        for number, owner in enumerate(OWNERS):
            thing = there.thing(person, owner)
            if thing["domain"] is None and "{domain}" in f"{path_of(route)} {asked}":
                continue
            if owner == "private" and "{session}" not in f"{path_of(route)} {asked}":
                continue
            reached = await is_reached(cluster, client, route, thing)
            if reached != (letter != LET_IN and number < REACH[letter]):
                yield f"{route} of {owner} is {'' if reached else 'not '}reached"
            beyond = owner in ("other", "site") and not reached and not asked.show
            if beyond and await tells_apart(cluster, client, route, thing):
                yield f"{route} of {owner} does not hide that it is there"
            unseen = owner == "private" and not sees_private(person) and not asked.show
            if unseen and await tells_apart(cluster, client, route, thing, NOTHING | {"project": thing["project"]}):
                yield f"{route} of {owner} does not hide that it is there"


async def test_every_route_has_a_row_and_every_row_a_route(cluster: Cluster) -> None:
    assert {str(route) for route in routes_of(cluster.app)} == set(RIGHTS)
    assert set(ASKED) <= set(RIGHTS)
    assert {len(row.split()) for row in RIGHTS.values()} == {len(PEOPLE)}


@pytest.mark.parametrize("person", PEOPLE)
async def test_everybody_reaches_with_every_route_as_far_as_the_table_says(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, person: str
) -> None:
    there = await scene.prepare(cluster)
    named = {"apps_url": "https://site.example:9443", "apps_name": "apps.example"}
    monkeypatch.setattr(cluster.app.state, "settings", cluster.settings.model_copy(update=named))
    told = watch(cluster, monkeypatch)
    certificate = {"X-Client-Verify": "SUCCESS", "X-Client-Name": "w-acme"} if person == "agent" else {}
    async with cluster.client(None if person in NOBODY else scene.key_of(person), **certificate) as client:
        client.event_hooks["response"].append(told.hear)
        assert [fault async for fault in faults(cluster, client, person, there)] == []
    assert len(told.answers) > 200
    missing = told.faults("" if person in NOBODY else person)
    assert not missing, missing


async def test_what_agents_ask_for_is_matched_before_all_else(cluster: Cluster) -> None:
    """Routes are tried one after the other, and nobody asks as often."""
    paths = [route.path for route in routes_of(cluster.app)]
    of_agents = [path for path in paths if path.startswith("/agent/")]
    assert (paths[: len(of_agents)], paths[0]) == (of_agents, HEARTBEAT_PATH)


async def test_the_application_does_not_start_with_a_route_that_nobody_has_decided_on(cluster: Cluster) -> None:
    # the one of the other tests keeps what it gets
    app = create_app(cluster.settings, cluster.database, cluster.engine, reconcile=False)

    @app.get("/forgotten")
    async def forgotten() -> str:
        return "secrets"

    with pytest.raises(PenstockError, match="/forgotten"):
        check_routes(app)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="https://penstock", headers=cluster.admin.headers
    ) as any_:
        assert (await any_.get("/forgotten")).status_code == 403, "and even then it is refused"
