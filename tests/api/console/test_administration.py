"""The pages of what administrators of a site hold people to: policies, domains and sandboxes."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx
import pytest

from api.auth.policy import UserRole
from api.endpoints.access import SEEN_HEADER
from tests.api.cluster import V1, Cluster, ok
from tests.api.console.conftest import PAGE
from tests.api.console.test_languages import unmarked
from tests.api.console.test_pages import version_of

pytestmark = pytest.mark.anyio

PART = {"HX-Request": "true"}
POLICY = {"name": "students", "description": "<b>few</b>", "max_sessions": "2", "gpus": "0.5", "memory_gib": "1.5"}
DOMAIN = {"name": "acme", "quota": "2.5", "shares": "true", "over_quota_weight": "3", "limit": "4", "policy": ""}
RULES = "mkdir, mkdirat:EROFS\n\nsocket(0=16|0x11):kill\n"
SANDBOX = {"name": "strict", "rules": RULES, "projects": "team-a", "images": "python:3.11", "site_wide": "true"}
HIDDEN = re.compile(r'<input type="hidden" name="(shown)" value="([^"]*)">')
FORMS = {"user-policies": POLICY, "domains": DOMAIN, "sandboxes": SANDBOX}


async def made(browser: httpx.AsyncClient, path: str, **more: str) -> None:
    answer = await browser.post(f"/{path}", data=FORMS[path] | more, headers=PART)
    assert (answer.status_code, answer.headers.get("hx-trigger")) == (204, "refresh"), answer.text


async def kept(cluster: Cluster, path: str, name: str) -> dict[str, Any]:
    listed = await ok(cluster.admin.get(f"{V1}/{path}"))
    return dict(next(each for each in listed if each["name"] == name))


async def test_what_is_left_empty_in_a_policy_has_no_limit(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await made(browser, "user-policies")
    found = await kept(ready, "user-policies", "students")
    limits = ("max_sessions", "max_gpu_milli", "max_cpu_milli", "max_memory_mib")
    assert [found[each] for each in limits] == [2, 500, None, 1536]
    page = (await browser.get("/user-policies/students")).text
    assert 'value="&lt;b&gt;few&lt;/b&gt;"' in page
    for name, value in (("max_sessions", "2"), ("gpus", "0.5"), ("memory_gib", "1.5")):
        assert f'name="{name}"' in page
        assert f'value="{value}"' in page
    change = {"description": "", "max_sessions": "", "gpus": "0", "cores": "4", "memory_gib": ""}
    changed = await browser.post("/user-policies/students", data=change, headers=PART)
    assert (changed.status_code, changed.headers["hx-redirect"]) == (204, "/user-policies")
    found = await kept(ready, "user-policies", "students")
    assert [found[each] for each in limits] == [None, 0, 4000, None]


async def test_a_domain_is_made_changed_and_told_of_its_policy(ready: Cluster, browser: httpx.AsyncClient) -> None:
    await made(browser, "user-policies")
    await made(browser, "domains", policy="students")
    found = await kept(ready, "domains", "acme")
    told = [found[each] for each in ("quota_milli", "shares", "over_quota_weight", "limit_milli", "policy")]
    assert told == [2500, True, 3, 4000, "students"]
    page = (await browser.get("/domains/acme")).text
    assert '<option value="students" selected>' in page
    assert 'value="2.5"' in page
    for weight, shown in (("0", "0"), ("", "by its quota")):
        change = {**DOMAIN, "policy": "students", "over_quota_weight": weight}
        assert (await browser.post("/domains/acme", data=change, headers=PART)).status_code == 204
        assert f'<td class="wide">{shown}</td>' in (await browser.get("/domains")).text
        assert f'min="0" value="{weight}"' in (await browser.get("/domains/acme")).text
    change = {"shares": "false", "over_quota_weight": "", "quota": "", "limit": "", "policy": ""}
    changed = await browser.post("/domains/acme", data=change, headers=PART)
    assert (changed.status_code, changed.headers["hx-redirect"]) == (204, "/domains")
    found = await kept(ready, "domains", "acme")
    told = [found[each] for each in ("quota_milli", "shares", "over_quota_weight", "limit_milli", "policy")]
    assert told == [None, False, None, None, None]
    wrong = await browser.post("/domains/acme", data=change | {"limit": "1"}, headers=PART)
    assert [each["where"] for each in wrong.json()["errors"]] == ["limit_milli"], "not the weight beside it"


async def test_a_sandbox_is_written_a_rule_a_line_as_on_the_command_line(
    ready: Cluster, browser: httpx.AsyncClient
) -> None:
    await made(browser, "sandboxes")
    found = await kept(ready, "sandboxes", "strict")
    assert [(rule["calls"], rule["errno"], rule["ends"]) for rule in found["rules"]] == [
        (["mkdir", "mkdirat"], "EROFS", False),
        (["socket"], "EPERM", True),
    ]
    assert (found["projects"], found["images"], found["site_wide"]) == (["team-a"], ["python:3.11"], True)
    page = (await browser.get("/sandboxes/strict")).text
    assert ">mkdir,mkdirat:EROFS\nsocket(0=16|17):kill\n</textarea>" in page
    for rules, where in (("mkdir:", "/rules"), ("makedir", "/rules/0/calls")):
        wrong = await browser.post("/sandboxes/strict", data=SANDBOX | {"rules": rules}, headers=PART)
        assert [each["pointer"] for each in wrong.json()["errors"]] == [where]
    changed = await browser.post("/sandboxes/strict", data={"rules": "", "projects": ""}, headers=PART)
    assert (changed.status_code, changed.headers["hx-redirect"]) == (204, "/sandboxes")
    found = await kept(ready, "sandboxes", "strict")
    assert (found["rules"], found["projects"], found["images"], found["site_wide"]) == ([], [], [], False)


@pytest.mark.parametrize("path", FORMS)
async def test_a_list_is_read_again_when_it_has_changed_and_no_sooner(
    ready: Cluster, browser: httpx.AsyncClient, statements: list[str], path: str
) -> None:
    seen = {**PART, SEEN_HEADER: version_of((await browser.get(f"/{path}")).text)}
    statements.clear()
    assert (await browser.get(f"/{path}", headers=seen)).status_code == 204
    table = path.replace("-", "_")
    assert [each for each in statements if f"FROM {table}" in each and "xmin" not in each] == []
    await made(browser, path)
    name = FORMS[path]["name"]
    assert f">{name}</a>" in (await browser.get(f"/{path}", headers=seen)).text
    assert (await browser.post(f"/{path}/{name}/delete", headers=PART)).status_code == 204
    assert f">{name}</a>" not in (await browser.get(f"/{path}")).text
    assert (await browser.get(f"/{path}/{name}")).status_code == 404


async def test_who_may_only_read_is_offered_no_change(ready: Cluster, browser: httpx.AsyncClient) -> None:
    for path in FORMS:
        await made(browser, path)
    async with await ready.user("ann", UserRole.AUDITOR) as auditor:
        for path, form in FORMS.items():
            page = (await auditor.get(f"/{path}", headers=PAGE)).text
            assert form["name"] in page
            assert f'"/{path}' in page.partition("<main")[0], "it is in administration's row"
            assert f'hx-post="/{path}' not in page
            assert f'href="/{path}/' not in page
            assert (await auditor.get(f"/{path}/{form['name']}", headers=PAGE)).status_code == 403


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("path", FORMS)
async def test_no_text_of_such_a_page_goes_past_translation(
    ready: Cluster, browser: httpx.AsyncClient, path: str
) -> None:
    await made(browser, path)
    known = {"strict", "students", "acme", "ptrace", "process_vm_readv", "kill", "socket", "EAFNOSUPPORT"}
    name = FORMS[path]["name"]
    for address in (f"/{path}", f"/{path}/{name}"):
        assert unmarked((await browser.get(address)).text) <= known


@pytest.mark.parametrize(
    ("path", "name", "other", "own"),
    [
        ("user-policies", "students", {"max_sessions": 9}, {"gpus": "1"}),
        ("domains", "acme", {"over_quota_weight": 7, "quota_milli": 3000}, {"limit": "5"}),
        ("sandboxes", "strict", {"site_wide": False, "rules": []}, {"projects": ""}),
    ],
)
async def test_what_another_has_changed_meanwhile_stays(
    ready: Cluster, browser: httpx.AsyncClient, path: str, name: str, other: dict[str, Any], own: dict[str, str]
) -> None:
    await made(browser, path)
    page = (await browser.get(f"/{path}/{name}")).text
    hidden = {field: unescape(value) for field, value in HIDDEN.findall(page)}
    before = await ok(ready.admin.patch(f"{V1}/{path}/{name}", json=other))
    changed = await browser.post(f"/{path}/{name}", data=FORMS[path] | hidden | own, headers=PART)
    assert changed.status_code == 204, changed.text
    after = await kept(ready, path, name)
    assert {field: after[field] for field in other} == other
    assert len([field for field in after if after[field] != before[field]]) == 1, "what was filled in is changed"
