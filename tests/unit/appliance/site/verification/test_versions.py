"""Versions: what runs is what is installed, and that is what the site serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.site.model import Site
from appliance.site.verification import judge, published
from reservoir.contents.artifact import Artifact, DebianArtifact, PythonArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import publish
from tests.unit.appliance.site.verification.evidence import STARTED, bad, of, verdict
from tests.unit.reservoir.parts import STANZA, artifact, make_bundle, take, wheel


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"newer": ["/etc/penstock/agent.env"]}, "/etc/penstock/agent.env changed after it started"),
        ({"replaced": True}, "its program was replaced after it started"),
    ],
)
def test_a_service_that_an_interrupted_upgrade_did_not_restart(
    site: Site, evidence: dict[str, Any], change: dict[str, Any], told: str
) -> None:
    evidence["worker1"]["running"]["penstock-agent.service"] = STARTED | change
    assert bad(site, evidence) == [
        (
            "worker1",
            "penstock-agent.service runs what is installed",
            f"0.1.0 since 2026-01-01T00:00:00Z: {told}",
        )
    ]
    hint = of(verdict(site, evidence), "worker1", "service.current", "penstock-agent.service").hint
    assert hint == "run `systemctl daemon-reload; systemctl restart penstock-agent.service` on worker1"


def test_an_agent_and_an_api_that_say_an_older_version_than_is_installed(site: Site, evidence: dict[str, Any]) -> None:
    evidence["master1"]["running"]["penstock-api.service"] = STARTED
    evidence["master1"]["api"]["detail"] = {"status": "healthy", "version": "0.0.9"}
    evidence["worker1"]["running"]["penstock-agent.service"] = STARTED
    for listed in evidence["master1"]["nodes"]["nodes"]:
        listed["agent_version"] = "0.0.8"
    assert bad(site, evidence) == [
        (
            "master1",
            "penstock-api.service runs what is installed",
            "0.0.9 since 2026-01-01T00:00:00Z: it runs 0.0.9, and 0.1.0 is installed",
        ),
        (
            "worker1",
            "penstock-agent.service runs what is installed",
            "0.0.8 since 2026-01-01T00:00:00Z: it runs 0.0.8, and 0.1.0 is installed",
        ),
    ]


def test_packages_that_are_not_those_of_the_publication(site: Site, evidence: dict[str, Any]) -> None:
    served = {"bookworm": {"chrony": {"4.3-3"}}, "trixie": {"chrony": {"4.3-2"}}, "python": {"penstock": {"0.2.0"}}}
    del evidence["worker1"], evidence["worker2"]
    found = judge(site, evidence, {}, "2026-01-01T00:00:00Z", served)
    check = of(found, "master1", "versions")
    assert check.evidence == (
        "chrony 4.3-2, and 4.3-3 is published; penstock (api) 0.1.0, and 0.2.0 is published; "
        "penstock (site) 0.1.0, and 0.2.0 is published"
    )
    assert check.hint == (
        "run `apt-get update; apt-get install --allow-downgrades chrony=4.3-3` on master1 and `penstock site deploy`"
    )
    assert [check.ok for check in found.nodes["storage1"].checks if "versions" in check.name] == [True]


def test_the_hint_takes_the_newest_version_by_debians_rules(site: Site, evidence: dict[str, Any]) -> None:
    served = {"bookworm": {"chrony": {"4.9-1", "4.10-1", "4.10~rc1-1"}}}
    check = of(judge(site, evidence, {}, "2026-01-01T00:00:00Z", served), "master1", "versions")
    assert "chrony 4.3-2, and 4.9-1, 4.10~rc1-1, 4.10-1 is published" in check.evidence
    assert "--allow-downgrades chrony=4.10-1`" in check.hint


def test_what_a_site_serves(tmp_path: Path) -> None:
    package = wheel(tmp_path, "penstock", "0.2.0")
    deb = tmp_path / "chrony_4.3-2_amd64.deb"
    deb.write_bytes(b"deb")
    made: list[tuple[Artifact, Path]] = [
        (artifact(package, PythonArtifact, "penstock", "0.2.0"), package),
        (artifact(deb, DebianArtifact, "chrony", "4.3-2", stanza=STANZA.format(name="chrony", version="4.3-2")), deb),
    ]
    root = tmp_path / "site"
    assert published(Store(root)) == {}
    take(make_bundle(tmp_path, Ed25519PrivateKey.generate(), made=made), root)
    publish(root)
    assert published(Store(root)) == {"python": {"penstock": {"0.2.0"}}, "bookworm": {"chrony": {"4.3-2"}}}
