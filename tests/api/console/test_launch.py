"""The page to launch sessions: what it offers, what it submits, and where it says what is wrong."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest
from sqlalchemy import update

from api.console import forms
from api.tables.nodes import Node
from common.errors import InputError
from tests.api.cluster import V1, Cluster, ok, sign_in
from tests.api.console.conftest import PAGE
from tests.api.resources.sessions.test_ways import HCA, report

pytestmark = pytest.mark.anyio

FORM = {
    "name": "first",
    "project": "team-a",
    "image": "python:3.11",
    "share": "5",
    "shares": ",".join(map(str, (*range(50, 1000, 50), *range(1000, 17000, 1000)))),
    "preset": "",
    "cpu": "",
    "hours": "",
}


async def launch(browser: httpx.AsyncClient, **changes: object) -> httpx.Response:
    return await browser.post("/launch", data={**FORM, **changes}, headers={"HX-Request": "true"})


async def places(browser: httpx.AsyncClient, **changes: object) -> list[str]:
    """Return what is said to be wrong: pointers into the request, or fields."""
    answer = await launch(browser, **changes)
    assert answer.is_client_error, answer.text
    return [told.get("pointer", told.get("where", "")) for told in answer.json()["errors"]]


async def test_a_text_that_would_cost_much_is_refused_unread(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert await places(browser, command="a" * (1 << 15)) == ["/command"]
    assert await places(browser, ports="8888 " * 1000) == ["/ports"]


async def test_a_share_of_the_sites_steps_is_submitted(ready: Cluster, browser: httpx.AsyncClient) -> None:
    answer = await launch(browser, command='sh -c "echo hello"', ports="8888, 6006", hours="1.5", cpu="2", replicas="2")
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/sessions/first?project=team-a")
    session = await ready.session("first")
    assert (session["gpu_milli"], session["cpu_milli"], session["limit_s"], session["replicas"]) == (250, 2000, 5400, 2)
    assert session["command"] == ["sh", "-c", "echo hello"]
    assert [service["port"] for service in session["services"]] == [6006, 8888]
    assert session["kind"] == "interactive"


async def test_ports_are_parted_by_commas_of_any_keyboard(ready: Cluster, browser: httpx.AsyncClient) -> None:
    answer = await launch(browser, ports="8888，6006、7007,5000")
    assert answer.status_code == 204, answer.text
    assert [service["port"] for service in (await ready.session("first"))["services"]] == [5000, 6006, 7007, 8888]


async def test_a_command_is_shown_as_the_form_takes_it(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await launch(browser, command='sh -c "echo hello"')
    page = (await browser.get("/sessions/first?project=team-a", headers=PAGE)).text
    (shown,) = re.findall(r"<code>(sh [^<]+)</code>", page)
    await launch(browser, name="again", command=unescape(shown))
    assert (await ready.session("again"))["command"] == ["sh", "-c", "echo hello"]


async def test_the_slider_ends_with_whole_gpus(ready: Cluster, browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/launch")).text
    assert 'max="23"' in page, "20 steps of one GPU, and as many more as the node has"
    assert '|0.95|1|2|3|4"' in page
    await launch(browser, share="21")
    assert (await ready.session("first"))["gpu_milli"] == 2000
    assert await places(browser, name="second", share="36") == ["gpu_milli"]


async def test_every_share_that_is_offered_is_accepted_and_the_next_one_is_not(ready: Cluster) -> None:
    async with await ready.user("mia"), ready.client(**PAGE) as mia:
        await sign_in(mia, "mia")
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["mia"]}))

        async def offered() -> list[int]:
            found = re.findall(r'name="shares" value="([\d,]*)"', (await mia.get("/launch")).text)
            return [int(milli) for milli in found[0].split(",") if milli]

        async def ends_with(milli: int, beyond: int) -> None:
            assert (await offered())[-1] == milli
            name = f"s-{milli}"
            assert (await launch(mia, name=name, share="1", shares=str(beyond))).is_client_error
            assert (await launch(mia, name=name, share="1", shares=str(milli))).status_code == 204
            await ok(ready.admin.delete(f"{V1}/sessions/{name}?project=team-a"))
            await ready.settle()

        await ends_with(4000, 5000)
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False, "quota_milli": 3000}))
        await ends_with(3000, 4000)
        await ok(ready.admin.post(f"{V1}/user-policies", json={"name": "few", "max_gpu_milli": 500}))
        await ok(ready.admin.patch(f"{V1}/users/mia", json={"policy": "few"}))
        await ends_with(500, 550)
        assert (await launch(mia, name="holds", share="1", shares="300")).status_code == 204
        await ends_with(200, 250)


async def test_shares_are_those_of_the_chosen_project_and_kind(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.add_project("team-b", 2000)

    async def slider(**asked: str) -> tuple[str, str, str]:
        page = (await browser.get("/launch", params=asked, headers={"HX-Request": "true"})).text
        (shares,) = re.findall(r'name="shares" value="([\d,]*)"', page)
        (most, at) = re.findall(r'max="(\d+)" value="(\d+)" data-texts=', page)[0]
        chosen = re.findall(r'<option value="(team-\w|training)" selected>', page)
        assert chosen == [asked[field] for field in ("project", "kind") if field in asked]
        return shares.split(",")[-1], most, at

    assert await slider() == ("4000", "23", "0"), "of the project that is chosen at first"
    assert await slider(project="team-b") == ("2000", "21", "0")
    assert await slider(project="team-b", kind="training") == ("4000", "23", "0"), "what can be reclaimed may be more"
    kept = {"shares": "500,1000,4000", "share": "2"}
    assert await slider(project="team-b", **kept) == ("2000", "21", "20"), "as it was"
    assert await slider(project="team-b", **kept | {"share": "3"}) == ("2000", "21", "21"), "the most that there is"
    assert (await browser.get("/launch?project=nothing")).status_code == 200


async def test_parts_are_not_offered_where_no_gpu_is_shared(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async with ready.database.transaction() as db:
        await db.execute(update(Node).values(fractions=False))
    page = (await browser.get("/launch")).text
    assert 'name="shares" value="1000,2000,3000,4000"' in page
    assert (await places(browser, share="1")) == ["gpu_milli"]
    assert (await launch(browser, share="1", shares="1000,2000,3000,4000")).status_code == 204
    assert (await ready.session("first"))["gpu_milli"] == 1000


async def test_a_preset_says_what_is_left_out(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ok(ready.admin.post(f"{V1}/presets", json={"name": "half", "gpu_milli": 500, "cpu_milli": 3000}))
    await launch(browser, share="0", preset="half")
    session = await ready.session("first")
    assert (session["gpu_milli"], session["cpu_milli"], session["preset"]) == (500, 3000, "half")


async def test_several_sessions_and_a_volume(ready: Cluster, browser: httpx.AsyncClient) -> None:
    answer = await launch(browser, count="2", share="1", volume=["data", ""], target=["/data", ""])
    assert answer.headers["hx-redirect"] == "/sessions?mine=1&q=first"
    assert set(await ready.states()) == {"first-1", "first-2"}
    (mount,) = (await ready.session("first-2"))["mounts"]
    assert (mount["volume"], mount["target"]) == ("data", "/data")
    assert '<option value="data">team-a</option>' in (await browser.get("/launch")).text


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": "Not A Name"}, "/name"),
        ({"name": ""}, "/name"),
        ({"cpu": "1.0004"}, "cpu_milli"),
        ({"project": "nothing"}, "/project"),
        ({"image": "nothing"}, "/image"),
        ({"share": "0"}, "cpu_milli"),
        ({"share": "35", "replicas": "2"}, "gpu_milli"),
        ({"replicas": "0"}, "/replicas"),
        ({"count": "many"}, "/count"),
        ({"hours": "-1"}, "/hours"),
        ({"ports": "http"}, "/ports"),
        ({"ports": "99999"}, "/ports/0"),
        ({"command": '"'}, "/command"),
        ({"volume": ["data", ""], "target": ["data", ""]}, "/pvcs/0/target"),
    ],
)
async def test_what_is_wrong_is_said_of_its_field(
    ready: Cluster, browser: httpx.AsyncClient, changes: dict[str, object], place: str
) -> None:
    assert place in await places(browser, **changes)
    assert await ready.states() == {}


@pytest.mark.parametrize(("amount", "wanted"), [(0.0004, 0.001), (0.0005, 0.001), (1.0004, 1.0)])
def test_what_is_hinted_in_place_of_little_is_not_nothing(amount: float, wanted: float) -> None:
    with pytest.raises(InputError) as caught:
        forms.whole("cpu_milli", amount, 1000)
    assert caught.value.problems[0].hint == f"write {wanted}"


async def test_only_what_the_caller_may_use_is_offered(ready: Cluster) -> None:
    await ready.add_project("team-b", 1000)
    async with await ready.user("alice") as alice:
        assert "You are in no project yet" in (await alice.get("/launch")).text
        await ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["alice"]})
        page = (await alice.get("/launch")).text
    assert 'value="team-a"' in page
    assert "team-b" not in page


async def test_the_form_says_what_would_become_of_it(ready: Cluster, browser: httpx.AsyncClient) -> None:
    async def said(**changes: object) -> str:
        answer = await browser.post("/launch/check", data={**FORM, **changes}, headers={"HX-Request": "true"})
        assert answer.status_code == 200, answer.text
        return " ".join(answer.text.split())

    assert "Fits now" in await said()
    assert "Fits now" in await said(name=""), "a name may come later"
    assert "4 would start now, 2 would wait:" in await said(share="20", count="6")
    assert "It would wait:" in await said(start="2100-01-01T08:00")
    assert "Not yet:" in await said(share="0"), "nothing says how many GPUs"
    assert await said(name="", share="0") == "", "nobody has filled anything in"
    assert await ready.states() == {}


async def test_a_start_is_utc(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await launch(browser, start="2100-01-01T08:00")
    assert (await ready.session("first"))["starts_at"].startswith("2100-01-01T08:00:00")


JUPYTER, EDITOR = ({"name": name, "tag": "4", "reference": f"r/{name}:4"} for name in ("jupyter", "code-server"))


async def test_templates_are_offered_where_there_is_an_image_for_them(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    assert "template=" not in (await browser.get("/launch")).text
    for image in (JUPYTER, EDITOR, {**EDITOR, "tag": "10"}):
        await ok(ready.admin.post(f"{V1}/images", json=image))
    page = (await browser.get("/launch")).text
    assert 'href="/launch?template=jupyter"' in page
    assert "template=tensorboard" not in page
    page = (await browser.get("/launch?template=code-server")).text
    assert "<option selected>code-server:10</option>" in page, "the newest of them"
    assert 'value="code-server --auth none --bind-addr 0.0.0.0:8080"' in page
    assert 'name="ports" value="8080"' in page
    filled = {"image": "code-server:10", "command": "code-server --auth none --bind-addr 0.0.0.0:8080", "ports": "8080"}
    assert (await launch(browser, **filled)).status_code == 204
    assert [service["port"] for service in (await ready.session("first"))["services"]] == [8080]


async def test_versions_of_an_image_stand_in_the_order_in_which_people_count(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    for tag in ("3.9", "3.10"):
        await ok(ready.admin.post(f"{V1}/images", json={"name": "python", "tag": tag, "reference": f"r/python:{tag}"}))
    offered = re.findall(r"<option>(python:[\d.]+)</option>", (await browser.get("/launch")).text)
    assert offered == ["python:3.9", "python:3.10", "python:3.11"]


async def test_what_is_no_template_fills_nothing_in(ready: Cluster, browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/launch?template=tensorboard")).text
    assert "selected" not in page.partition('id="image"')[2].partition("</select>")[0]


def shown(page: str, field: str) -> str:
    """Return what stands in a field of the form: its value, or the option that is chosen."""
    if found := re.search(rf'<input id="{field}"[^>]* value="([^"]*)"', page):
        return unescape(found[1])
    if found := re.search(rf'<textarea id="{field}"[^>]*>([^<]*)<', page):
        return unescape(found[1])
    chosen = re.search(
        r'<option(?: value="([^"]*)")? selected>([^<]*)',
        page.partition(f'<select id="{field}"')[2].partition("</select>")[0],
    )
    return unescape(chosen[1] or chosen[2]) if chosen else ""


def told(page: str) -> list[str]:
    """Return what is said beside fields."""
    return [unescape(text) for text in re.findall(r'<span class="problem">([^<]*)<', page)]


async def again(browser: httpx.AsyncClient, name: str = "first") -> str:
    """Follow the link of a session's page to the form that submits it again."""
    page = (await browser.get(f"/sessions/{name}?project=team-a")).text
    (link,) = re.findall(r'href="([^"]+)">Submit again<', page)
    return (await browser.get(unescape(link))).text


RARE = {
    "args": "train.py '--name=a b'",
    "environment": "EPOCHS=10\r\nEMPTY=\r\n",
    "memory": "6.5",
    "shm": "0.5",
    "access": "private",
}


async def test_what_few_need_is_submitted_too(ready: Cluster, browser: httpx.AsyncClient) -> None:
    answer = await launch(browser, **RARE, command="python3", volume=["data"], target=["/data:ro"])
    assert answer.status_code == 204, answer.text
    session = await ready.session("first")
    assert (session["command"], session["args"]) == (["python3"], ["train.py", "--name=a b"])
    assert session["environment"] == ["EMPTY", "EPOCHS"]
    assert (session["memory_mib"], session["shm_mib"], session["access"]) == (6656, 512, "private")
    assert session["mounts"][0]["read_only"]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"args": "'"}, "args"),
        ({"environment": "EPOCHS"}, "environment"),
        ({"environment": "A=1\nA=2"}, "environment"),
        ({"environment": "1A=1"}, "environment/1A"),
        ({"memory": "1.0001"}, "memory_mib"),
        ({"memory": "1", "shm": "2"}, "shm_mib"),
        ({"access": "everybody"}, "access"),
        ({"group": "nothing"}, "group"),
        ({"gpu_models": "NOTHING"}, "gpu_models"),
        ({"p2p": "true"}, "p2p"),
        ({"rdma": "true"}, "rdma"),
    ],
)
async def test_what_is_wrong_of_what_few_need_is_said_of_its_field(
    ready: Cluster, browser: httpx.AsyncClient, changes: dict[str, object], place: str
) -> None:
    assert [found for found in await places(browser, **changes) if found.removeprefix("/").startswith(place)]
    assert await ready.states() == {}


async def test_what_few_need_is_folded_up_while_there_is_nothing_in_it(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    assert "<details>" in (await browser.get("/launch")).text
    await launch(browser)
    assert "<details>" in await again(browser)
    await launch(browser, name="second", memory="3")
    assert "<details open>" in await again(browser, "second")


async def test_ways_between_gpus_are_offered_where_a_node_has_them(ready: Cluster, browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/launch")).text
    assert ('id="p2p"' in page, 'id="rdma"' in page) == (False, False)
    await report(ready, "links", nvlink=True)
    page = (await browser.get("/launch")).text
    assert ('id="p2p"' in page, 'id="rdma"' in page) == (True, False)
    await report(ready, "fabric", rdma=True, hcas=[HCA])
    assert 'id="rdma"' in (await browser.get("/launch")).text
    assert (await launch(browser, share="1", shares="2000", p2p="true")).status_code == 204
    assert (await ready.session("first"))["p2p"] is True


async def test_groups_and_models_are_those_that_the_caller_may_use(ready: Cluster, browser: httpx.AsyncClient) -> None:
    assert 'id="group"' not in (await browser.get("/launch")).text, "there is none"
    await report(ready, "fast")
    page = (await browser.get("/launch")).text
    models = re.findall(r'name="gpu_models" value="([^"]+)"', page)
    assert "A100" in models
    assert len(models) == 2
    await ok(
        ready.admin.post(f"{V1}/resource-groups", json={"name": "fast", "nodes": ["fast"], "projects": ["team-a"]})
    )
    await ok(ready.admin.post(f"{V1}/resource-groups", json={"name": "others"}))
    page = (await browser.get("/launch")).text
    assert "<option>fast</option>" in page
    assert "<option>others</option>" not in page
    assert (await launch(browser, group="fast", gpu_models=["A100"])).status_code == 204
    session = await ready.session("first")
    assert (session["group"], session["gpu_models"]) == ("fast", ["A100"])
    page = await again(browser)
    assert shown(page, "group") == "fast"
    assert 'value="A100" checked' in page


async def test_an_ended_session_is_submitted_again_as_it_was(ready: Cluster, browser: httpx.AsyncClient) -> None:
    asked: dict[str, object] = {
        **RARE,
        "kind": "training",
        "command": 'sh -c "echo hello"',
        "ports": "8888, 6006",
        "hours": "1.5",
        "cpu": "2",
        "replicas": "2",
        "max_replicas": "",
        "volume": ["data", "more"],
        "target": ["/data", "/more:ro"],
    }
    await launch(browser, **{**asked, "environment": ""})
    before = await ready.session("first")
    await ok(ready.admin.delete(f"{V1}/sessions/first?project=team-a"))
    await ready.settle()
    page = await again(browser)
    fields: tuple[str, ...] = (
        "name",
        "project",
        "image",
        "kind",
        "command",
        "args",
        "ports",
        "hours",
        "cpu",
        "replicas",
        "share",
    )
    fields += ("memory", "shm", "access", "environment")
    filled = {field: shown(page, field) for field in fields}
    filled["shares"] = re.findall(r'name="shares" value="([\d,]*)"', page)[0]
    pairs = [(shown(page, f"volume-{row}"), shown(page, f"target-{row}")) for row in range(2)]
    assert pairs == [("data", "/data"), ("more", "/more:ro")]
    assert told(page) == []
    answer = await launch(browser, **filled, volume=[one for one, _ in pairs], target=[one for _, one in pairs])
    assert answer.status_code == 204, answer.text
    after = await ready.session("first")
    assert after["id"] != before["id"]
    own = {"id", "since", "created_at", "scheduled_at", "started_at", "containers", "gpus", "services", "url", "urls"}
    own |= {"state", "reason", "cause", "position", "held_milli", "node", "expires_at"}
    assert {key: value for key, value in after.items() if key not in own} == {
        key: value for key, value in before.items() if key not in own
    }


async def test_the_name_of_what_still_runs_is_not_taken_over_and_values_of_variables_are_shown_to_nobody(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await launch(browser, environment="TOKEN=tell-nobody\nEPOCHS=10")
    page = await again(browser)
    assert shown(page, "name") == ""
    assert "tell-nobody" not in page
    assert shown(page, "environment").split() == ["EPOCHS", "TOKEN"]
    assert told(page) == ["values are shown to nobody: write them again, as NAME=VALUE"]
    assert await places(browser, name="second", environment=shown(page, "environment")) == ["/environment"]


async def test_what_cannot_be_taken_over_any_more_is_said_beside_its_field(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await ok(ready.admin.post(f"{V1}/presets", json={"name": "half", "gpu_milli": 500, "memory_mib": 2048}))
    await launch(browser, share="0", preset="half", volume=["data"], target=["/data"])
    page = await again(browser)
    assert (shown(page, "preset"), shown(page, "share"), shown(page, "memory")) == ("half", "0", "")
    assert told(page) == []
    await ok(ready.admin.delete(f"{V1}/sessions/first?project=team-a"))
    await ready.settle()
    await ready.admin.delete(f"{V1}/presets/half")
    assert (await ready.admin.delete(f"{V1}/images/python:3.11")).is_success
    assert (await ready.admin.delete(f"{V1}/volumes/data?project=team-a")).is_success
    await ready.settle()
    await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"over_quota": False, "quota_milli": 300}))
    page = await again(browser)
    assert sorted(told(page)) == [
        "data is not there any more",
        "half is not offered any more",
        "it had 0.5 GPU, which is not offered",
        "python:3.11 is not offered any more",
    ]
    assert (shown(page, "volume-0"), shown(page, "memory")) == ("data", "2")


async def test_what_the_form_has_no_field_for_is_taken_over_too(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await ready.submit("first", 1000, disk_mib=2048, priority=80, preemptible=False, within="switch", replicas=2)
    page = await again(browser)
    assert "disk_mib 2048, priority 80, preemptible False, within switch" in " ".join(page.split())
    (others,) = re.findall(r'name="others" value="([^"]*)" checked', page)
    assert (await launch(browser, name="second", others=unescape(others), kind="training")).status_code == 204
    session = await ready.session("second")
    found = [session[field] for field in ("disk_mib", "priority", "preemptible", "within")]
    assert found == [2048, 80, False, "switch"]
    assert await places(browser, name="third", others='{"priority": 101, "project": "x"}') == ["/priority"]


async def test_who_does_not_see_a_session_does_not_submit_it_again(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await launch(browser, access="private")
    session = await ready.session("first")
    async with await ready.user("mia"), ready.client(**PAGE) as mia:
        await sign_in(mia, "mia")
        await ok(ready.admin.patch(f"{V1}/projects/team-a", json={"members": ["mia"]}))
        assert (await mia.get(f"/launch?like={session['id']}&project=team-a")).status_code == 404
