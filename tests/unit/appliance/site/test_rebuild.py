"""Rebuilds of a controller: its steps, and how an interrupted one goes on. Deploy and restore are played."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.site import deployment
from appliance.site.backup import restore, sealing, signature
from appliance.site.backup.catalogue import Catalogue, Record, described
from appliance.site.backup.restore import Restored
from appliance.site.backup.secrets import Places, members
from appliance.site.deployment import DeployListener, Deployment
from appliance.site.rebuild import UNDER_WAY, Rebuild
from common.errors import ConflictError, ProcessError
from reservoir.intake.trust import Spoken

SITE = """
name: s
nodes: [{name: m1, address: 10.0.0.1, roles: [reservoir, master]}]
"""
NAMES = ("penstock-20261122-020000", "penstock-20261123-020000")


@dataclass
class Machine:
    """A bare machine beside a folder with two backups, and what was done on it."""

    rebuild: Rebuild
    done: list[str] = field(default_factory=list)
    fails: str = ""

    @property
    def state(self) -> Path:
        return self.rebuild.places.state

    def do(self, step: str) -> None:
        if self.fails == step:
            raise ProcessError("the power is gone")
        self.done.append(step)


def places(folder: Path) -> Places:
    return Places(folder / "site", folder / "reservoir", folder / "index", folder / "etc")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    before, backups, key = places(tmp_path / "before"), tmp_path / "backups", tmp_path / "key.txt"
    backups.mkdir()
    (before.state / "pki").mkdir(parents=True)
    (before.state / "pki/ca.key").write_text("authority")
    (before.state / "site.yml").write_text(SITE)
    recipient = sealing.new_identity(key)
    for name in NAMES:
        record = Record(name, "2026-11-23T02:00:00Z", sealed=True, verified="2026-11-23T02:01:00Z")
        sealing.seal(members(before, tmp_path), recipient, backups / record.seal)
        record.files[record.seal] = described(backups / record.seal)
        signature.sign(record, signature.own_key(before))
        Catalogue(backups).write(record)
    by, bare = signature.signer(before), places(tmp_path / "bare")
    found = Machine(Rebuild(backups, key, tmp_path / "bundle", by, DeployListener(), bare))

    def deployed(site: Any, bundle: Path, *_: object, file: str, spoken: Spoken, **__: object) -> Deployment:
        assert (site.name, bundle.name, file) == ("s", "bundle", SITE)
        assert spoken == found.rebuild.spoken
        found.do("deploy")
        return Deployment("s", "1", "b", "now")

    def restored(_: object, name: str, source: Path, *, replace: bool, unsigned: bool, held: object) -> Restored:
        assert (source, replace, unsigned) == (backups, False, not found.rebuild.by)
        found.do(f"restore {name}")
        return Restored(Catalogue(source).choose(name), 60, 1)

    monkeypatch.setattr(deployment, "deploy", deployed)
    monkeypatch.setattr(restore, "restore", restored)
    return found


def test_a_bare_machine_is_unsealed_deployed_and_restored(machine: Machine) -> None:
    done = machine.rebuild.run(None)
    assert machine.done == ["deploy", f"restore {NAMES[1]}"]
    assert list(done.seconds) == ["unseal", "deploy", "restore"]
    assert (machine.state / "pki/ca.key").read_text() == "authority"
    assert not (machine.state / UNDER_WAY).exists()


def test_whose_bundle_to_trust_may_be_said(machine: Machine) -> None:
    machine.rebuild = replace(machine.rebuild, spoken=Spoken(first=True))
    machine.rebuild.run(None)
    assert "deploy" in machine.done


def test_a_machine_with_a_site_is_left_as_it_is(machine: Machine) -> None:
    machine.rebuild.run(None)
    machine.done.clear()
    with pytest.raises(ConflictError, match="has the authority of a site already"):
        machine.rebuild.run(None)
    assert machine.done == []
    assert not (machine.state / UNDER_WAY).exists()


@pytest.mark.parametrize("step", ["deploy", f"restore {NAMES[0]}"])
def test_one_that_was_interrupted_goes_on_with_the_same_backup(machine: Machine, step: str) -> None:
    machine.fails = step
    with pytest.raises(ProcessError):
        machine.rebuild.run(NAMES[0])
    (machine.state / "pki/new.crt").write_text("made by the deploy")
    machine.fails = ""
    with pytest.raises(ConflictError, match=f"a rebuild from {NAMES[0]} has begun"):
        machine.rebuild.run(None)
    machine.rebuild.run(NAMES[0])
    assert machine.done[-2:] == ["deploy", f"restore {NAMES[0]}"]
    assert (machine.state / "pki/new.crt").exists(), "what was unsealed is not unsealed again"


def test_one_that_ended_before_the_authority_was_there_unseals_again(machine: Machine) -> None:
    machine.state.mkdir(parents=True)
    (machine.state / UNDER_WAY).write_text(f"{NAMES[1]}\n")
    machine.rebuild.run(None)
    assert (machine.state / "pki/ca.key").read_text() == "authority"
