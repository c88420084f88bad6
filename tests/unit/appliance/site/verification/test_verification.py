"""The verdict, from what nodes say about themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.site.model import Site
from appliance.site.verification import judge
from common.checks import Check, CheckState
from tests.unit.appliance.site.verification.evidence import bad, of, verdict


def test_a_site_where_all_is_well(site: Site, evidence: dict[str, Any]) -> None:
    assert bad(site, evidence) == []
    found = verdict(site, evidence)
    assert found.ok
    plain = found.json()
    assert (plain["ok"], plain["site"], plain["time"]) == (True, "lab", "2026-01-01T00:00:00Z")
    assert {name: node["ok"] for name, node in plain["nodes"].items()} == dict.fromkeys(evidence, True)
    assert plain["nodes"]["worker1"]["checks"][0]["name"] == "answers"
    assert plain["nodes"]["master1"]["facts"]["versions"]["penstock (api)"] == "0.1.0"


def test_a_part_that_could_not_be_looked_at_is_unknown_and_takes_nothing_else_away(
    site: Site, evidence: dict[str, Any]
) -> None:
    seen = evidence["worker1"]
    del seen["time"], seen["calls"], seen["ways"]
    seen["lost"] = {"time": "chronyc did not answer within 30 s"}
    found = judge(site, evidence, {"worker1": "the module failed"}, "2026-01-01T00:00:00Z")
    unknown = {check.id: check.evidence for check in found.checks if check.state == "unknown"}
    reason = "the module failed"
    assert unknown == {"time": "chronyc did not answer within 30 s", "call": reason, "session.ways": reason}
    assert (found.ok, found.state) == (False, "unknown")
    assert of(found, "worker1", "docker").state == "ok"


def test_what_was_not_told_in_time_has_a_hint(site: Site, evidence: dict[str, Any]) -> None:
    late = {"ok": False, "detail": "runuser did not answer within 30 s", "nodes": []}
    evidence["master1"]["nodes"] = late
    check = of(verdict(site, evidence), "worker1", "agent")
    assert (check.state, "overloaded or hangs" in check.hint) == ("unknown", True)


def test_a_node_whose_look_failed_keeps_what_it_got_from_calls(site: Site, evidence: dict[str, Any]) -> None:
    evidence["worker1"] = {"calls": evidence["worker1"]["calls"]}
    found = judge(site, evidence, {"worker1": "no space left"}, "2026-01-01T00:00:00Z")
    states = {check.id: check.state for check in found.nodes["worker1"].checks}
    assert (states["answers"], states["time"], states["call"], states["fetch"]) == ("unknown", "unknown", "ok", "ok")
    assert found.nodes["worker1"].facts["os"] == "unknown"


def test_since_when_a_check_is_as_it_is(site: Site, evidence: dict[str, Any]) -> None:
    first = verdict(site, evidence)
    first.date({})
    evidence["worker1"]["docker"] = None
    later = judge(site, evidence, {}, "2026-01-02T00:00:00Z")
    later.date(json.loads(json.dumps(first.json())))
    assert of(later, "worker1", "docker").since == "2026-01-02T00:00:00Z"
    assert of(later, "worker2", "docker").since == "2026-01-01T00:00:00Z"


def test_a_site_is_as_its_worst_check(site: Site, evidence: dict[str, Any]) -> None:
    found = verdict(site, evidence)
    for worst in (CheckState.WARN, CheckState.UNKNOWN, CheckState.FAIL):
        found.nodes["worker1"].checks.insert(0, Check("x", "x", worst, ""))
        assert found.state is worst


def test_a_node_that_says_nothing_fails_with_the_reason(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["storage1"]
    found = verdict(site, evidence, {"storage1": "Connection timed out"})
    assert not found.ok
    assert [(c.ok, c.evidence) for c in found.nodes["storage1"].checks] == [(False, "Connection timed out")]


def test_a_node_that_was_left_out_of_the_last_deploy_is_named(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["worker1"]
    missed = {"worker1": "left out", "worker2": "left out"}
    found = judge(site, evidence, {}, "2026-01-01T00:00:00Z", missed=missed)
    named = [(check.subject, check.ok, check.evidence) for check in found.checks if check.id == "deployed"]
    assert named == [("worker1", False, "left out"), ("worker2", False, "left out")]
    assert all("run `penstock site deploy`" in check.hint for check in found.checks if check.id == "deployed")


def test_without_the_master_every_worker_is_in_doubt(site: Site, evidence: dict[str, Any]) -> None:
    del evidence["master1"]
    found = judge(site, evidence, {"master1": "no route to host"}, "2026-01-01T00:00:00Z")
    assert [(check.id, check.subject, check.state, check.evidence) for check in found.checks if not check.ok] == [
        ("answers", "master1", "fail", "no route to host"),
        *(
            (identity, worker, "unknown", "no route to host")
            for worker in ("worker1", "worker2")
            for identity in ("agent", "gpus")
        ),
    ]


@pytest.mark.parametrize("before", [[], {"nodes": []}, {"nodes": {"master1": {"checks": [{"id": "time"}]}}}])
def test_a_verdict_before_of_another_form_is_passed_over(site: Site, evidence: dict[str, Any], before: Any) -> None:
    found = verdict(site, evidence)
    found.date(before)
    assert {check.since for check in found.checks} == {found.time}
