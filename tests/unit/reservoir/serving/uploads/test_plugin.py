"""What the server of uploads lets through, request by request."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyramid.registry import Registry
from pyramid.request import Request
from pyramid.response import Response

from reservoir.serving.uploads import plugin
from reservoir.serving.uploads.names import Names

PUSH = {"name": "demo", "version": "1.0", "targetindex": "site/dev"}


@pytest.fixture
def site(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that publishes `demo`."""
    monkeypatch.setenv("PENSTOCK_RESERVOIR", str(root))


def answer(request: Request) -> int:
    """Return the status of an answer to somebody unknown; the server behind the check takes everything."""
    request.registry = Registry()
    return int(plugin.check(lambda _: Response("taken"), None)(request).status_code)


def pushed(method: str, content_type: str, **changes: str) -> Request:
    body = json.dumps(PUSH | changes).encode()
    return Request.blank("/site/frozen", method=method, content_type=content_type, body=body)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("method", ["POST", "PUSH"])
@pytest.mark.parametrize(
    "content_type",
    ["application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
def test_no_push_leads_past_the_check(method: str, content_type: str) -> None:
    assert answer(pushed(method, content_type)) == 403
    assert answer(pushed(method, content_type, name="mine")) == 200


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("action", sorted(plugin.UPLOADS))
@pytest.mark.parametrize("spelling", ["demo", "DEMO"])
def test_no_form_leads_past_the_check(action: str, spelling: str) -> None:
    assert answer(Request.blank("/site/dev/", POST={":action": action, "name": spelling})) == 403
    assert answer(Request.blank("/site/dev/", POST={":action": action, "name": "mine"})) == 200


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", ["demo", "mine"])
def test_no_name_is_registered_without_a_file(name: str) -> None:
    assert answer(Request.blank("/site/dev/", POST={":action": "submit", "name": name, "version": "1.0"})) == 410


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("came", "status"), [(b"all of it", 200), (b"all", 400)])
def test_a_file_that_lacks_its_end_is_refused(came: bytes, status: int) -> None:
    form = {":action": "file_upload", "name": "mine", "version": "1.0"}
    form["sha256_digest"] = hashlib.sha256(b"all of it").hexdigest()
    assert answer(Request.blank("/site/dev/", POST=form | {"content": ("mine-1.0.tar.gz", came)})) == status


@pytest.mark.parametrize("permission", ["del_entry", "del_project", "del_verdata"])
def test_only_the_administrator_takes_an_upload_back(permission: str) -> None:
    customizer = plugin.SiteIndex.__new__(plugin.SiteIndex)
    asked = getattr(customizer, f"get_principals_for_{permission}")
    assert set(asked(restrict_modify={"root"})) == {"root"}


@pytest.mark.usefixtures("site")
def test_of_an_allowed_name_the_uploads_of_its_owners_are_shown(root: Path) -> None:
    """Who squats on a name that is likely to be published gains nothing by what somebody else is allowed."""
    links = [
        SimpleNamespace(
            relpath=f"site/dev/+f/{number}/demo-{number}.0.tar.gz",
            get_logs=lambda who=who: [{"what": "upload", "who": who, "when": [2026]}],
        )
        for number, who in enumerate(("alice", "mallory", "root"))
    ]
    index = plugin.SiteIndex.__new__(plugin.SiteIndex)
    store = SimpleNamespace(get_links=lambda: links)
    index.stage = Mock(list_versions_perstage=Mock(return_value=["1"]), get_linkstore_perstage=Mock(return_value=store))
    index.stage.name = "site/dev"
    hrefs = [f"{link.relpath}#sha256=0" for link in links] + ["site/frozen/+e/demo-1.0.tar.gz"]
    offered = [SimpleNamespace(href=href) for href in hrefs]

    def shown() -> list[bool] | None:
        found = index.get_simple_links_filter_iter("Demo", offered)
        return None if found is None else list(found)

    assert shown() == [False, False, False, True]
    Names(root).allow("demo", ["alice"])
    assert shown() == [True, False, True, True], "what the administrator brought is shown as well"
    Names(root).allow("demo", [])
    assert shown() is None, "nobody is named: whoever was first with it"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("version", "filename", "status"),
    [
        ("1.0", "mine-1.0.tar.gz", 200),
        ("1.0+local.1", "mine-1.0+local.1-py3-none-any.whl", 200),
        ("1!2.0rc1", "mine-1!2.0rc1.tar.gz", 200),
        ("not a version", "mine-not a version.tar.gz", 400),
        ("", "mine-1.0.tar.gz", 400),
        ("1.0", "mine-1.0\x1b]0;gone\x07.tar.gz", 400),
        ("1.0", "../mine-1.0.tar.gz", 400),
    ],
)
def test_versions_and_file_names_are_plain(version: str, filename: str, status: int) -> None:
    form = {":action": "file_upload", "name": "mine", "version": version}
    assert answer(Request.blank("/site/dev/", POST=form | {"content": (filename, b"all of it")})) == status
