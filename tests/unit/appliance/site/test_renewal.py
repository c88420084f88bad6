"""Renewal of certificates: real ones, at moments before and after they are due."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import deploy_records, deployment, pki, product, renewal
from appliance.site.deployment import DeployListener, Deployment
from appliance.site.playbook import Counts
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
    published: list[str] = field(default_factory=lambda: [BUNDLE])
    to_publish: list[str] = field(default_factory=list)
    limits: list[list[str] | None] = field(default_factory=list)
    down: list[str] = field(default_factory=list)
    now: datetime = MADE
    meanwhile: Callable[[], object] = lambda: None

    def deploy(
        self, *_: Any, limit: list[str] | None, renewal: Callable[[], None] | None = None, **__: Any
    ) -> Deployment:
        self.meanwhile()
        if renewal:
            renewal()
        self.limits.append(limit)
        before = {path: path.read_bytes() for path in (self.state / "pki").rglob("*.crt")}
        pki.issue(load(parse(SITE, "site.yml")), self.state / "pki", now=self.now)
        for path in (self.state / "pki").rglob("*.crt"):
            if path.read_bytes() != before.get(path):
                os.utime(path, (self.now.timestamp(),) * 2)
        names = [name for name in ("first", *(limit or ())) if name not in self.down]
        return self.note(names)

    def installs(self, site: str = SITE) -> dict[str, Any]:
        return deploy_records.installs(site, self.published, self.state / "pki/ca.crt")

    def note(self, reached: list[str], bundle: str | None = None, **said: Any) -> Deployment:
        done = Deployment("north", "1.2.3", bundle or self.held, f"{self.now:%FT%TZ}", reached=reached)
        done.phases, done.ok, done.installs = {"nodes": 60.0}, True, self.installs()
        for name, value in said.items():
            setattr(done, name, value)
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
    monkeypatch.setattr(renewal, "due", lambda _: dict.fromkeys([*made.published, *made.to_publish]))
    monkeypatch.setattr(renewal, "record_of", lambda _: {"bundles": made.published})
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
        ("penstock-1.3.0-def", [], f"holds penstock-1.3.0-def, and {BUNDLE} is what was deployed last"),
        (BUNDLE, ["drivers-2-abc"], "has drivers-2-abc to publish"),
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


def judged(world: World, now: datetime) -> tuple[str, str]:
    check = renewal.check(world.state, Path("/reservoir"), now)
    assert (check.id, bool(check.hint)) == ("renewal", check.state != "ok")
    return str(check.state), check.evidence


def test_verify_says_beforehand_what_a_renewal_would_refuse(world: World) -> None:
    first = f"the first to end, that of {CONTROLLER}, counts until {MADE + timedelta(days=825):%F}"
    assert judged(world, DUE - timedelta(hours=1)) == ("ok", first)
    assert judged(world, DUE + timedelta(hours=1)) == ("ok", first)
    world.held = "penstock-1.3.0-def"
    reason = f"the reservoir holds penstock-1.3.0-def, and {BUNDLE} is what was deployed last"
    assert judged(world, DUE - timedelta(hours=1)) == ("ok", f"{first}; a renewal would refuse: {reason}")
    assert judged(world, DUE + timedelta(hours=1)) == ("warn", f"{first}; a renewal would refuse: {reason}")
    assert world.limits == [], "it only looks"


def test_verify_says_that_a_renewal_which_is_due_has_not_come(world: World) -> None:
    """Such as where somebody has switched the timer off."""
    assert judged(world, DUE + timedelta(days=6))[0] == "ok"
    state, said = judged(world, DUE + timedelta(days=8))
    assert (state, f"is due since {DUE:%F}, and has not come" in said) == ("warn", True)


def test_verify_names_workers_that_a_renewal_would_leave_out(world: World) -> None:
    world.now = MADE + timedelta(days=1)
    world.note(["first", "two"], bundle="penstock-1.3.0-def", ok=False)
    state, said = judged(world, DUE + timedelta(hours=1))
    assert state == "warn"
    assert "installed something else" in said


def test_verify_says_why_it_cannot_say(tmp_path: Path) -> None:
    found = renewal.check(tmp_path, tmp_path)
    assert found.state == "warn"
    assert "no site was deployed from this machine" in found.evidence


def refused(world: World, now: datetime = DUE + timedelta(hours=1)) -> str:
    before = len(world.limits)
    with pytest.raises(ConflictError) as caught:
        world.renew(now)
    assert len(world.limits) == before
    (problem,) = caught.value.problems
    assert problem.hint
    return problem.reason


CHANGED = f"since {MADE:%FT%TZ}, the last deploy that came to its end, changed: "


def test_the_site_file_of_a_deploy_that_did_not_come_to_its_end_is_no_reason_and_is_not_deployed(world: World) -> None:
    other = SITE.replace("10.0.0.3", "10.0.0.33")
    (world.state / "site.yml").write_text(other)
    world.now = MADE + timedelta(days=30)
    pki.issue(load(parse(other, "site.yml")), world.state / "pki", now=world.now)
    world.note([], ok=False, installs=world.installs(other))
    assert refused(world, MADE + timedelta(days=31)) == f"{CHANGED}site file"
    assert refused(world) == f"{CHANGED}site file"


def test_a_bundle_that_was_published_and_not_deployed_stays_where_it_is(world: World) -> None:
    world.published.append("drivers-2-abc")
    assert refused(world) == f"{CHANGED}bundles"


def test_a_newer_program_of_the_controller_deploys_nothing_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_records, "version", lambda _: "9.9")
    assert refused(world) == f"{CHANGED}program"


def test_an_authority_that_no_node_knows_yet_is_not_brought(world: World) -> None:
    (world.state / "pki/ca.key").unlink()
    assert refused(world) == "the site's authority is damaged, and a deploy would make another one"
    pki.issue(load(parse(SITE, "site.yml")), world.state / "pki", now=MADE)
    assert refused(world) == f"{CHANGED}authority"


def test_a_record_that_does_not_say_what_was_installed_is_not_trusted(world: World) -> None:
    world.note(["first", "one", "two"], installs={})
    assert refused(world) == f"{CHANGED}site file, bundles, program, authority"
    for record in (world.state / "deploys").iterdir():
        record.unlink()
    assert refused(world) == "no deploy has come to its end yet"


def test_a_deploy_that_failed_at_a_node_that_all_need_has_to_be_mended_first(world: World) -> None:
    world.now = MADE + timedelta(days=30)
    world.note([], "penstock-2.0.0-def", ok=False, nodes={"first": Counts()})
    reason = f"the deploy of {world.now:%FT%TZ}, the last one to first, installed something else"
    assert refused(world) == reason


def test_a_worker_that_the_last_deploys_did_not_go_to_is_named_and_left_out(world: World) -> None:
    world.now = MADE + timedelta(days=30)
    world.held, world.published = "penstock-2.0.0-def", ["penstock-2.0.0-def"]
    world.note(["first", "one"])
    done = world.renew(DUE + timedelta(hours=1))
    assert world.limits == [["one"]]
    (problem,) = done.left_out["two"]
    assert problem.reason == f"the deploy of {MADE:%FT%TZ}, the last one to two, installed something else"
    assert "`penstock site deploy --limit two`" in problem.hint
    assert list(done.without) == list(done.json()["left_out"]) == ["two"]
    again = world.renew(DUE + timedelta(days=1))
    assert (again.waiting, list(again.left_out), again.deploy) == (["two"], ["two"], None)
    assert len(world.limits) == 1


def test_a_worker_that_a_later_deploy_left_half_done_is_left_out(world: World) -> None:
    world.now = MADE + timedelta(days=30)
    world.note(["one"], "penstock-2.0.0-def", ok=False, nodes={"one": Counts(), "two": Counts()})
    world.now += timedelta(hours=1)
    world.note(["first", "one"])
    assert list(world.renew(DUE + timedelta(hours=1)).left_out) == ["two"]
    assert world.limits == [["one"]]


def test_it_gives_way_to_a_deploy_that_came_between(world: World) -> None:
    world.meanwhile = lambda: world.note(["first", "one", "two"])
    assert refused(world) == "another deploy ran meanwhile"
