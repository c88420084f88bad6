"""Renewal of certificates: real ones, at moments before and after they are due."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import deployment, pki, product, renewal
from appliance.site.deployment import DeployListener, Deployment
from appliance.site.site_file import load
from common.errors import ConflictError, UnavailableError
from common.repair_protocol import CONTROLLER
from common.yaml_document import parse

MADE = datetime(2026, 3, 1, tzinfo=UTC)
DUE = MADE + timedelta(days=pki.NODE_DAYS - pki.RENEW_DAYS)
BUNDLE = "penstock-1.2.3-abc"
SITE = """\
name: north
nodes:
  - {name: first, address: 10.0.0.1, roles: [reservoir, master]}
  - {name: one, address: 10.0.0.2, roles: [worker], agent_port: 6001}
  - {name: two, address: 10.0.0.3, roles: [worker], agent_port: 6001}
"""


@dataclass
class World:
    """A controller that has deployed a site at MADE, and whose deploys issue certificates and are noted."""

    state: Path
    held: str = BUNDLE
    to_publish: list[str] = field(default_factory=lambda: [BUNDLE])
    limits: list[list[str] | None] = field(default_factory=list)
    down: list[str] = field(default_factory=list)
    now: datetime = MADE

    def deploy(self, *_: Any, limit: list[str] | None, **__: Any) -> Deployment:
        self.limits.append(limit)
        before = {path: path.read_bytes() for path in (self.state / "pki").rglob("*.crt")}
        pki.issue(load(parse(SITE, "site.yml")), self.state / "pki", now=self.now)
        for path in (self.state / "pki").rglob("*.crt"):
            if path.read_bytes() != before.get(path):
                os.utime(path, (self.now.timestamp(),) * 2)
        names = [name for name in ("first", *(limit or ())) if name not in self.down]
        return self.note(names)

    def note(self, reached: list[str], bundle: str = BUNDLE) -> Deployment:
        done = Deployment("north", "1.2.3", bundle, f"{self.now:%FT%TZ}", phases={"nodes": 60.0}, reached=reached)
        done.ok = True
        folder = self.state / "deploys"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.now:%Y%m%d-%H%M%S}.json").write_text(json.dumps(done.json()))
        return done

    def renew(self, now: datetime) -> renewal.Renewal:
        self.now = now
        return renewal.renew(DeployListener(), state=self.state, root=Path("/reservoir"), now=now)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    (tmp_path / "site.yml").write_text(SITE)
    made.deploy(limit=["one", "two"])
    made.limits.clear()
    monkeypatch.setattr(deployment, "deploy", made.deploy)
    monkeypatch.setattr(product, "listed", lambda *_: (made.held, None))
    monkeypatch.setattr(renewal, "Store", lambda _: SimpleNamespace(current=None))
    monkeypatch.setattr(renewal, "due", lambda _: dict.fromkeys(made.to_publish))
    monkeypatch.setattr(renewal, "record_of", lambda _: {"bundles": [BUNDLE]})
    return made


def test_nothing_is_deployed_until_60_days_before_the_end(world: World) -> None:
    done = world.renew(DUE - timedelta(hours=1))
    assert (done.due, done.waiting, done.deploy) == ([], [], None)
    assert world.limits == []
    assert set(done.ends) == {pki.AUTHORITY, CONTROLLER, "first", "one", "two"}
    assert done.ends["one"] == MADE + timedelta(days=825)


def test_what_ends_within_60_days_is_renewed_once(world: World) -> None:
    done = world.renew(DUE + timedelta(hours=1))
    assert done.due == [CONTROLLER, "first", "one", "two"]
    assert done.deploy is not None
    assert world.limits == [["one", "two"]]
    assert pki.ends(world.state / "pki")["one"] == world.now + timedelta(days=825)
    assert world.renew(DUE + timedelta(days=1)).deploy is None
    assert len(world.limits) == 1


def test_only_workers_that_need_it_are_touched(world: World) -> None:
    pki.revoke(world.state / "pki", "two", now=MADE)
    world.now = MADE + timedelta(days=400)
    world.deploy(limit=["one", "two"])
    assert world.renew(DUE + timedelta(hours=1)).due == [CONTROLLER, "first", "one"]
    assert world.limits[-1] == ["one"]


def test_a_worker_that_was_down_is_tried_again_each_day_alone(world: World) -> None:
    world.down = ["two"]
    world.renew(DUE + timedelta(hours=1))
    assert world.renew(DUE + timedelta(days=1)).waiting == ["two"]
    assert world.limits[-1] == ["two"]
    world.down = []
    assert world.renew(DUE + timedelta(days=2)).waiting == ["two"]
    assert world.renew(DUE + timedelta(days=3)).waiting == []
    assert len(world.limits) == 3


def test_a_worker_that_no_deploy_has_reached_yet_is_none_of_its_business(world: World) -> None:
    for record in (world.state / "deploys").iterdir():
        record.unlink()
    world.note(["first", "one"])
    pki.revoke(world.state / "pki", "two", now=MADE)
    world.now = MADE + timedelta(days=400)
    pki.issue(load(parse(SITE, "site.yml")), world.state / "pki", now=world.now)
    assert world.renew(MADE + timedelta(days=401)).waiting == []
    assert world.limits == []


@pytest.mark.parametrize(
    ("held", "to_publish", "reason"),
    [
        ("penstock-1.3.0-def", [BUNDLE], f"holds penstock-1.3.0-def, and {BUNDLE} is what was deployed last"),
        (BUNDLE, [BUNDLE, "drivers-2-abc"], "has drivers-2-abc to publish"),
    ],
)
def test_nothing_but_certificates_is_brought_to_nodes(
    world: World, held: str, to_publish: list[str], reason: str
) -> None:
    world.held, world.to_publish = held, to_publish
    with pytest.raises(ConflictError, match=reason) as refused:
        world.renew(DUE + timedelta(hours=1))
    assert "run `penstock site deploy`" in str(refused.value)
    assert world.limits == []
    assert world.renew(DUE - timedelta(hours=1)).deploy is None, "nobody is bothered as long as nothing is due"


def test_the_authority_is_never_replaced_by_a_timer(world: World) -> None:
    with pytest.raises(ConflictError, match="the site's authority ends on 2036-02-27"):
        world.renew(MADE + timedelta(days=pki.CA_DAYS - pki.RENEW_DAYS, hours=1))
    assert world.limits == []


def test_a_machine_that_has_deployed_nothing_has_nothing_to_renew(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no site was deployed from this machine"):
        renewal.renew(DeployListener(), state=tmp_path, root=tmp_path)
