"""`penstock site renew`: who got a certificate, and which one ends first."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from typer.testing import Result

from appliance.cli.site import app as site_app
from appliance.site import deployment, renewal
from common.errors import PartialError, Problem
from tests.unit.appliance.cli.runs import run

ENDS = {"ca": datetime(2036, 2, 27, tzinfo=UTC), "one": datetime(2028, 6, 3, tzinfo=UTC)}


def renewed(monkeypatch: pytest.MonkeyPatch, done: renewal.Renewal, *words: str) -> Result:
    monkeypatch.setattr(renewal, "renew", lambda _: done)
    return run(site_app, "renew", *words)


def test_renew_tells_which_certificate_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    result = renewed(monkeypatch, renewal.Renewal(ENDS))
    assert result.exit_code == 0
    said = "nothing to renew: the first certificate to end, that of one, counts until 2028-06-03\n"
    assert result.stdout == said


def test_renew_names_who_got_a_certificate_and_who_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = deployment.Deployment("north", "1.2.3", "penstock-1.2.3-abc", "2028-04-05T04:30:00Z")
    done = renewal.Renewal(ENDS, ["one", "two"], deploy=made)
    assert renewed(monkeypatch, done).stdout == "renewed and brought to its node: one, two\n"
    made.left_out = {"two": [Problem("two", "it does not answer", "mend it")]}
    result = renewed(monkeypatch, done)
    assert isinstance(result.exception, PartialError)
    assert result.stdout == "renewed and brought to its node: one, two, without two\n"
    plain = json.loads(renewed(monkeypatch, done, "-o", "json").stdout)
    assert (plain["ends"]["one"], plain["due"]) == ("2028-06-03T00:00:00Z", ["one", "two"])


def test_renew_names_workers_that_it_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem("two", "the last deploy to two installed something else", "deploy to it")
    result = renewed(monkeypatch, renewal.Renewal(ENDS, ["two"], left_out={"two": [problem]}))
    assert isinstance(result.exception, PartialError)
    assert "installed something else" in str(result.exception)
    assert result.stdout == ""
