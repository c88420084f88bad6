"""The page of a project: who holds what of it, and which volumes, images and people it has."""

from __future__ import annotations

import re
from collections import Counter

import httpx
import pytest

from api.console import project
from api.endpoints.access import SEEN_HEADER
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked
from tests.api.console.test_pages import version_of
from tests.api.steps import body

PART = {"HX-Request": "true"}
HOME = "/projects/team-a"
pytestmark = pytest.mark.anyio


def rows(page: str, prefix: str) -> list[str]:
    """Return what rows of a table say whose ids begin with a prefix, without their markup."""
    found = re.findall(rf'<tr id="{prefix}-.*?</tr>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in found]


async def test_it_says_who_holds_what_and_how_many_are_in_each_state(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ready.add_project("team-b", 1000)
    await ready.submit("first", 1500)
    await ready.settle()
    await ready.submit("large", 4000)
    await ready.settle()
    await ready.submit("other", 500, project="team-b")
    page = (await browser.get(HOME)).text
    large, first = rows(page, "s")
    assert re.match(r"large .* waiting admin python:3.11 4 GPU 0 min", large)
    assert re.match(r"first \w+ admin python:3.11 1.5 GPU 0 min", first)
    sessions = await ok(ready.admin.get(f"{V1}/sessions", params={"project": "team-a"}))
    counts = Counter(session["state"] for session in sessions)
    for state, count in counts.items():
        assert re.search(rf'/sessions\?q=team-a&amp;state={state}">\w+ {count}</a>', page)
    assert (len(counts), counts["PENDING"]) == (2, 1)


async def test_it_shows_the_volumes_images_and_people_of_the_project_alone(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ready.add_project("team-b", 1000)
    for owner in ("team-a", "team-b"):
        await ok(ready.admin.post(f"{V1}/volumes", json={"name": f"data-{owner}", "project": owner}))
        image = {"name": f"of-{owner}", "tag": "1", "reference": f"reservoir:5000/{owner}:1", "projects": [owner]}
        await ok(ready.admin.post(f"{V1}/images", json=image))
    page = (await browser.get(HOME)).text
    (volume,) = rows(page, "v")
    assert volume.startswith("data-team-a team-a ready")
    assert [row.split()[0] for row in rows(page, "i")] == ["of-team-a:1", "python:3.11"]


async def test_it_is_bounded_and_leads_to_all(
    ready: Cluster, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "SHOWN", 1)
    await ok(ready.admin.post(f"{V1}/images", json={"name": "a", "tag": "1", "reference": "reservoir:5000/a:1"}))
    for name in ("one", "two"):
        await ready.submit(name, 1000)
        await ok(ready.admin.post(f"{V1}/volumes", json={"name": name, "project": "team-a"}))
    async with await ready.user("alice"), await ready.user("bob"):
        await ok(ready.admin.patch(f"{V1}{HOME}", json={"members": ["alice", "bob"]}))
    page = (await browser.get(HOME)).text
    for kind, all_ in (("s", "/sessions?q=team-a"), ("v", "/volumes?q=team-a"), ("i", "/images")):
        assert len(rows(page, kind)) == 1
        assert f'<p><a href="{all_}">' in page
    assert "<dt>Members (2)</dt><dd>alice<details><summary>and 1 more</summary>bob</details></dd>" in page


async def test_a_private_session_of_another_is_not_told_of(ready: Cluster) -> None:
    async with await ready.user("alice") as alice, await ready.user("bob") as bob:
        await ok(ready.admin.patch(f"{V1}{HOME}", json={"members": ["alice", "bob"]}))
        await ok(alice.post(f"{V1}/sessions", json=body("secret", access="private")))
        assert "secret" in (await alice.get(HOME, headers=PAGE)).text
        assert "secret" not in (await bob.get(HOME, headers=PAGE)).text


async def test_it_is_read_again_when_something_of_it_has_changed_and_no_sooner(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str]
) -> None:
    version = version_of((await browser.get(HOME)).text)
    statements.clear()
    assert (await browser.get(HOME, headers={**PART, SEEN_HEADER: version})).status_code == 204
    assert [each for each in statements if "FROM volumes" in each and "xmin" not in each] == []
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    assert (await browser.get(HOME, headers={**PART, SEEN_HEADER: version})).status_code == 200


@pytest.mark.usefixtures("marked")
async def test_no_text_of_it_goes_past_translation(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", 1000)
    await ok(ready.admin.post(f"{V1}/volumes", json={"name": "data", "project": "team-a"}))
    assert unmarked((await browser.get(HOME)).text) <= {"data", "shared", "stop", "finish"}
