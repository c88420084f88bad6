"""Certificates that end soon, and those that do not count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from appliance.site.model import Site
from appliance.site.verification import judge
from tests.unit.appliance.site.verification.evidence import NOW, answer, of, verdict


@pytest.mark.parametrize(
    ("days", "state", "said"),
    [
        (31, "ok", "until 2026-02-01"),
        (30, "warn", "ends in 30 days, on 2026-01-31"),
        (8, "warn", "ends in 8 days, on 2026-01-09"),
        (7, "fail", "ends in 7 days, on 2026-01-08"),
        (1, "fail", "ends in 1 day, on 2026-01-02"),
        (0.3, "fail", "ends within a day, on 2026-01-01"),
        (-2, "fail", "ended on 2025-12-30"),
        (None, "fail", "there is none"),
    ],
)
@pytest.mark.parametrize("which", ["certificate.end", "authority.end", "call"])
def test_a_certificate_that_ends_soon(
    site: Site, evidence: dict[str, Any], which: str, days: float | None, state: str, said: str
) -> None:
    """That on the node's disk, that of the site, and that which a service really shows."""
    until = None if days is None else int((NOW + timedelta(days=days)).timestamp())
    seen = evidence["worker1"]
    if which == "certificate.end":
        seen["certificate"]["until"] = until
    elif which == "authority.end":
        seen["authority"] = until
    else:
        seen["calls"] = {"console": answer("console") | {"until": until}}
    found = of(verdict(site, evidence), "worker1", which)
    assert (found.state, said in found.evidence) == (state, True), found
    assert ("site deploy" in found.hint) is (state != "ok")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ok": False, "detail": "error 23 at 0 depth lookup: certificate revoked"}, "certificate revoked"),
        ({"name": "worker2"}, "it is that of worker2"),
        ({"name": ""}, "it is that of nobody"),
        ({"crl": "0ld"}, "the node has not the site's list of revoked certificates"),
    ],
)
def test_a_certificate_that_does_not_count_is_found(
    site: Site, evidence: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    assert judge(site, evidence, {}, "2026-01-01T00:00:00Z", revoked="c0de").ok
    evidence["worker1"]["certificate"] |= changes
    found = judge(site, evidence, {}, "2026-01-01T00:00:00Z", revoked="c0de")
    [check] = [check for check in found.nodes["worker1"].checks if not check.ok]
    assert check.name == "certificate is the node's and counts"
    assert said in check.evidence
