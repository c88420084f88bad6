"""The pages of what a site offers: images, resource groups and presets, and who may change them."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest
from sqlalchemy import update

from api.endpoints.access import SEEN_HEADER
from api.tables.images import Image, Status
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked
from tests.api.console.test_pages import version_of

pytestmark = pytest.mark.anyio

PART = {"HX-Request": "true"}
LAUNCH = {"name": "short", "project": "team-a", "image": "python", "cpu": "1"}
IMAGE = {"name": "numpy", "tag": "1.26", "reference": "reservoir:5000/penstock/numpy:1.26"}
GROUP = {"name": "big", "nodes": "worker1", "gpu_model": "", "open": "false", "projects": "team-a"}
PRESET = {"name": "half", "gpus": "0.5", "cores": "2", "memory_gib": "1.5", "shm_mib": "64", "enforcement": "none"}


async def test_an_image_is_registered_tried_again_and_deleted(ready: Cluster, browser: httpx.AsyncClient) -> None:
    made = await browser.post("/images", data={**IMAGE, "projects": "team-a"}, headers=PART)
    assert (made.status_code, made.headers["hx-trigger"]) == (204, "refresh")
    page = (await browser.get("/images?q=NUMPY")).text
    assert "numpy:1.26" in page
    assert "python:3.11" not in page
    assert (await browser.post("/images/numpy:1.26/check?project=team-a", headers=PART)).status_code == 204
    assert (await browser.post("/images/numpy:1.26/delete?project=team-a", headers=PART)).status_code == 204
    assert "There is no such image." in (await browser.get("/images?q=numpy")).text
    wrong = await browser.post("/images", data={**IMAGE, "reference": "!"}, headers=PART)
    assert [told["pointer"] for told in wrong.json()["errors"]] == ["/reference"]


async def test_members_look_after_the_images_that_they_registered(ready: Cluster) -> None:
    async with await ready.user("alice") as alice:
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]}))
        own = await alice.post("/images", data={**IMAGE, "projects": "team-a"}, headers=PART)
        assert own.status_code == 204
        page = (await alice.get("/images", headers=PAGE)).text
        assert 'hx-post="/images/numpy:1.26/delete?project=team-a"' in page
        assert 'hx-post="/images/python:3.11/delete' not in page
        assert (await alice.post("/images/python:3.11/delete", headers=PART)).status_code == 403


async def test_the_error_of_an_image_names_no_node_that_the_reader_may_not_see(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    for name in ("worker1-b", "worker2"):
        await ready.add_node(name)
    for domain in ("acme", "globex"):
        await ok(ready.admin.post(f"{V1}/domains", json={"name": domain}))
    group = {"name": "ours", "domain": "acme", "nodes": ["worker2"]}
    await ok(ready.admin.post(f"{V1}/resource-groups", json=group))
    await browser.post("/images", data=IMAGE, headers=PART)
    said = "worker1-b refused it: of worker1 and worker2, not of myworker1 or worker1.example.org"
    async with ready.database.transaction() as db:
        await db.execute(update(Image).values(error=said, status=Status.FAILED))
    hidden = "a node refused it: of a node and {}, not of myworker1 or worker1.example.org"
    assert said in (await browser.get("/images")).text
    async with await ready.user("alice") as alice, await ready.user("ann") as ann:
        for name, domain in (("ann", "acme"), ("alice", "globex")):
            await ok(ready.admin.patch(f"{V1}/users/{name}", json={"domain": domain}))
        for client, second in ((alice, "a node"), (ann, "worker2")):
            assert hidden.format(second) in (await client.get("/images", headers=PAGE)).text
            for listed in await ok(client.get(f"{V1}/images")):
                assert listed["error"] == hidden.format(second)


async def test_the_question_before_an_image_is_deleted_says_whose_it_is(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ready.add_project("team-b", 0)
    await browser.post("/images", data={**IMAGE, "projects": "team-a team-b"}, headers=PART)
    page = (await browser.get("/images")).text
    assert "Delete numpy:1.26 of team-a, team-b? Sessions that use it go on." in page
    assert "Delete python:3.11, which is for all projects? Sessions that use it go on." in page


async def test_a_resource_group_is_made_changed_and_deleted(ready: Cluster, browser: httpx.AsyncClient) -> None:
    made = await browser.post("/resource-groups", data=GROUP, headers=PART)
    assert (made.status_code, made.headers["hx-redirect"]) == (204, "/resource-groups/big")
    page = (await browser.get("/resource-groups/big")).text
    assert "worker1" in page
    assert "team-a" in page
    change = {"add_users": " admin，", "remove_projects": "team-a", "add_nodes": "", "remove_nodes": "worker1"}
    assert (await browser.post("/resource-groups/big", data=change, headers=PART)).status_code == 204
    group = await ok(ready.admin.get(f"{V1}/resource-groups/big"))
    assert (group["nodes"], group["users"], group["projects"], group["open"]) == ([], ["admin"], [], False)
    assert (await browser.post("/resource-groups/big", data={"open": "true"}, headers=PART)).status_code == 204
    assert "everybody" in (await browser.get("/resource-groups")).text
    for field, name in (("users", "alise"), ("nodes", "worker9"), ("projects", "team-b")):
        wrong = await browser.post("/resource-groups/big", data={f"remove_{field}": name}, headers=PART)
        assert (wrong.status_code, f"{name} is not in it" in wrong.text) == (422, True)
        assert [told["pointer"] for told in wrong.json()["errors"]] == [f"/remove_{field}"]
    gone = await browser.post("/resource-groups/big/delete", headers=PART)
    assert (gone.status_code, gone.headers["hx-redirect"]) == (204, "/resource-groups")
    assert (await browser.get("/resource-groups/big")).status_code == 404


async def test_what_is_wrong_with_a_group_is_said_of_its_field_and_changes_nothing(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    answer = await browser.post("/resource-groups", data={**GROUP, "users": "nobody-here"}, headers=PART)
    assert answer.status_code in (404, 422)
    assert "nobody-here" in answer.text
    assert (await browser.get("/resource-groups/big")).status_code == 404


async def test_a_preset_is_made_in_gpus_cores_and_gib_and_deleted(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert (await browser.post("/presets", data=PRESET, headers=PART)).status_code == 204
    preset = await ok(ready.admin.get(f"{V1}/presets/half"))
    assert (preset["gpu_milli"], preset["cpu_milli"], preset["memory_mib"], preset["shm_mib"]) == (500, 2000, 1536, 64)
    assert '<tr id="p-half">' in (await browser.get("/presets")).text
    wrong = await browser.post("/presets", data={**PRESET, "name": "Not So"}, headers=PART)
    assert [told["pointer"] for told in wrong.json()["errors"]] == ["/name"]
    assert (await browser.post("/presets/half/delete", headers=PART)).status_code == 204
    assert '<tr id="p-half">' not in (await browser.get("/presets")).text


async def test_what_belongs_to_a_group_is_described_and_chosen_without_a_terminal(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme"}))
    made = await browser.post("/resource-groups", data={**GROUP, "projects": "", "domain": "acme"}, headers=PART)
    assert made.status_code == 204
    group = await ok(ready.admin.get(f"{V1}/resource-groups/big"))
    assert (group["domain"], group["gpu_model"]) == ("acme", "")
    described = {"described": "true"}
    change = {"description": "<b>for us</b>", "gpu_model": "v100", "switch": "s1", "region": "", "purpose": "tests"}
    assert (await browser.post("/resource-groups/big", data=described | change, headers=PART)).status_code == 204
    group = await ok(ready.admin.get(f"{V1}/resource-groups/big"))
    assert {name: group[name] for name in change} == change
    page = (await browser.get("/resource-groups/big")).text
    assert 'value="&lt;b&gt;for us&lt;/b&gt;"' in page
    assert 'value="v100"' in page
    assert (
        await browser.post("/resource-groups/big", data=described | change | {"description": ""}, headers=PART)
    ).status_code == 204
    group = await ok(ready.admin.get(f"{V1}/resource-groups/big"))
    assert (group["description"], group["gpu_model"], group["nodes"]) == ("", "v100", ["worker1"])
    wrong = await browser.post("/resource-groups/big", data=described | {"gpu_model": "!!"}, headers=PART)
    assert [told["pointer"] for told in wrong.json()["errors"]] == ["/gpu_model"]


async def test_a_group_is_moved_to_a_domain_and_back(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ok(ready.admin.post(f"{V1}/domains", json={"name": "acme"}))
    await browser.post("/resource-groups", data={**GROUP, "projects": ""}, headers=PART)
    for domain in ("acme", ""):
        moved = await browser.post("/resource-groups/big", data={"moved": "true", "domain": domain}, headers=PART)
        assert moved.status_code == 204
        assert (await ok(ready.admin.get(f"{V1}/resource-groups/big")))["domain"] == (domain or None)
        value = f' value="{domain}"' if domain else ""
        assert f'name="domain"{value}' in (await browser.get("/resource-groups/big")).text


async def test_a_preset_is_changed(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await browser.post("/presets", data=PRESET, headers=PART)
    page = (await browser.get("/presets/half")).text
    for name, value in (("gpus", "0.5"), ("cores", "2"), ("memory_gib", "1.5"), ("shm_mib", "64")):
        assert f'name="{name}"' in page
        assert f'value="{value}"' in page
    change = {**PRESET, "description": "a half", "cores": "0.25", "memory_gib": "2"}
    changed = await browser.post("/presets/half", data=change, headers=PART)
    assert (changed.status_code, changed.headers["hx-redirect"]) == (204, "/presets")
    preset = await ok(ready.admin.get(f"{V1}/presets/half"))
    assert (preset["description"], preset["gpu_milli"], preset["cpu_milli"]) == ("a half", 500, 250)
    assert (preset["memory_mib"], preset["shm_mib"]) == (2048, 64)
    assert 'href="/presets/half"' in (await browser.get("/presets")).text
    assert (await browser.post("/presets/none", data=change, headers=PART)).status_code == 404
    assert (await browser.get("/presets/none")).status_code == 404


async def test_who_changes_a_preset_leaves_what_others_have_changed_since(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await browser.post("/presets", data=PRESET, headers=PART)
    (shown,) = re.findall(r'name="shown" value="([^"]+)"', (await browser.get("/presets/half")).text)
    await ok(ready.admin.patch(f"{V1}/presets/half", json={"cpu_milli": 4000, "gpu_milli": 1000}))
    change = {**PRESET, "description": "a half", "shown": unescape(shown)}
    assert (await browser.post("/presets/half", data=change, headers=PART)).status_code == 204
    preset = await ok(ready.admin.get(f"{V1}/presets/half"))
    assert (preset["description"], preset["cpu_milli"], preset["gpu_milli"]) == ("a half", 4000, 1000)


@pytest.mark.parametrize(
    ("field", "value", "where", "hint"),
    [
        ("gpus", "0.33333", "gpu_milli", "write 0.35"),
        ("cores", "1.0004", "cpu_milli", "write 1.0"),
        ("memory_gib", "1.3", "memory_mib", "write 1.2998046875"),
    ],
)
async def test_no_amount_of_a_preset_is_kept_as_another_one(
    ready: Cluster, browser: httpx.AsyncClient, field: str, value: str, where: str, hint: str
) -> None:
    before = await ok(ready.admin.get(f"{V1}/presets"))
    refused = await browser.post("/presets", data={**PRESET, field: value}, headers=PART)
    assert refused.status_code == 422
    (told,) = refused.json()["errors"]
    assert (told["where"], value in told["detail"], told["hint"]) == (where, True, hint)
    assert await ok(ready.admin.get(f"{V1}/presets")) == before


@pytest.mark.parametrize("path", ["/images", "/resource-groups", "/resource-groups/big", "/presets"])
async def test_a_page_that_is_as_it_was_is_answered_before_anything_is_read(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str], path: str
) -> None:
    await browser.post("/resource-groups", data=GROUP, headers=PART)
    seen = {**PART, SEEN_HEADER: version_of((await browser.get(path)).text)}
    statements.clear()
    assert (await browser.get(path, headers=seen)).status_code == 204
    own = {"/images": "images", "/presets": "presets"}.get(path, "resource_groups")
    assert [each for each in statements if f"FROM {own}" in each and "xmin" not in each] == []
    await browser.post("/images", data=IMAGE, headers=PART)
    await browser.post("/presets", data=PRESET, headers=PART)
    await browser.post("/resource-groups/big", data={"add_users": "admin"}, headers=PART)
    assert (await browser.get(path, headers=seen)).status_code == 200


async def test_members_see_what_there_is_and_change_nothing(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await browser.post("/presets", data=PRESET, headers=PART)
    await browser.post("/resource-groups", data={**GROUP, "open": "true"}, headers=PART)
    async with await ready.user("alice") as alice:
        for path in ("/presets", "/resource-groups"):
            page = (await alice.get(path, headers=PAGE)).text
            assert f'hx-post="{path}' not in page
        assert "hx-post" not in (await alice.get("/resource-groups/big", headers=PAGE)).text.partition("<main")[2]
        for path in ("/presets/half/delete", "/resource-groups/big/delete"):
            assert (await alice.post(path, headers=PART)).status_code == 403
        assert (await alice.post("/resource-groups/big", data={"open": "false"}, headers=PART)).status_code == 403


@pytest.mark.usefixtures("marked")
async def test_no_text_of_a_group_goes_past_translation(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await browser.post("/resource-groups", data={**GROUP, "open": "true"}, headers=PART)
    assert unmarked((await browser.get("/resource-groups/big")).text) <= {"big"}
    await browser.post("/presets", data=PRESET, headers=PART)
    assert unmarked((await browser.get("/presets/half")).text) <= {"half"}


async def test_what_another_has_changed_of_a_group_meanwhile_stays(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "big", "nodes": ["worker1"]}))
    (shown,) = re.findall(r'name="shown" value="([^"]+)"', (await browser.get("/resource-groups/big")).text)
    await ok(ready.admin.patch(f"{V1}/resource-groups/big", json={"purpose": "training"}))
    said = {"description": "large", "purpose": "", "gpu_model": "", "switch": "", "region": ""}
    form = {"described": "true", "shown": unescape(shown), **said}
    changed = await browser.post("/resource-groups/big", data=form, headers=PART)
    assert changed.status_code == 204, changed.text
    assert changed.headers["hx-redirect"] == "/resource-groups/big"
    group = await ok(ready.admin.get(f"{V1}/resource-groups/big"))
    assert (group["description"], group["purpose"]) == ("large", "training")


@pytest.mark.parametrize(
    ("path", "form", "hint"),
    [
        ("projects", {"name": "big", "quota": "999999"}, "write 32000 or less"),
        ("user-policies", {"name": "big", "memory_gib": "-1"}, "write 0 or more"),
        ("launch", {**LAUNCH, "hours": "0.00001"}, "write 0.000278 or more"),
        ("launch", {**LAUNCH, "hours": "8784"}, ""),
    ],
)
async def test_a_limit_of_what_is_written_is_said_in_the_units_of_the_form(
    browser: httpx.AsyncClient, path: str, form: dict[str, str], hint: str
) -> None:
    answer = await browser.post(f"/{path}", data=form, headers=PART)
    hints = [error["hint"] for error in answer.json()["errors"]] if answer.content else [""]
    assert hints == [hint]


@pytest.mark.parametrize(
    ("path", "form", "field", "told"),
    [
        ("images", {"name": "My Image", "tag": "1", "reference": "reservoir:5000/a:1"}, "/name", "no name of an image"),
        ("images", {"name": "a", "tag": "a b", "reference": "reservoir:5000/a:1"}, "/tag", "no tag of an image"),
        ("resource-groups", {"name": "big", "nodes": "Worker_1"}, "/nodes/0", "no name of a node"),
        ("users", {"name": "alice", "password": "Correct1horse!", "email": "alice"}, "/email", "no e-mail address"),
    ],
)
async def test_a_name_that_is_none_is_refused_in_words(
    browser: httpx.AsyncClient, path: str, form: dict[str, str], field: str, told: str
) -> None:
    answer = await browser.post(f"/{path}", data=form, headers=PART)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["pointer"], told in error["detail"]) == (field, True), error
    assert "^" not in error["detail"] + error["hint"]
    assert error["hint"] != "correct the value"
