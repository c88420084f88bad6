"""`penstock notices`: what everybody is told."""

from __future__ import annotations

import locale

import pytest

from appliance.client.views import Notice
from tests.unit.appliance.cli.conftest import FakeApi, Run

NOTICE: Notice = {
    "id": "5c7b",
    "level": "warning",
    "text": "work tomorrow",
    "texts": {"ko": "내일 점검"},
    "starts_at": "2026-11-27T10:00:00+00:00",
    "ends_at": None,
}


def test_notices_are_told_in_the_language_of_the_terminal(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.on("GET", "/notices", [NOTICE])
    for spoken, text in (("ko_KR", "내일 점검"), ("de_DE", "work tomorrow"), (None, "work tomorrow")):
        monkeypatch.setattr(locale, "getlocale", lambda spoken=spoken: (spoken, "UTF-8"))
        code, out, _ = run("notices", "list")
        assert (code, text in out, "warning" in out) == (0, True, True)
    logged_in.on("GET", "/notices", [])
    assert run("notices", "list")[1] == "There is no notice.\n"


def test_a_notice_is_written_and_ended(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/notices", NOTICE, status=201)
    words = ("--level", "warning", "--text", "ko=내일 점검", "--until", "2026-12-01T10:00:00+00:00")
    assert run("notices", "create", "work tomorrow", *words)[0] == 0
    body = logged_in.last.body
    assert body == {
        "text": "work tomorrow",
        "level": "warning",
        "texts": {"ko": "내일 점검"},
        "ends_at": body["ends_at"],
    }
    assert body["ends_at"].startswith("2026-12-01T10:00:00")
    code, _, err = run("notices", "create", "x", "--text", "demain")
    assert (code, "write it as ko=TEXT" in err) == (2, True)
    logged_in.on("DELETE", "/notices/5c7b", {"done": True})
    assert run("notices", "end", "5c7b") == (0, "Ended notice 5c7b.\n", "")
