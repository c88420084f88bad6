"""The flow of a deploy: in which order, and what stops it. Bundle, playbooks and nodes are played here."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import deployment, pki, playbook, preflight
from appliance.site.model import Site, load
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError, PenstockError, ProcessError
from common.yaml_document import parse
from reservoir.bundle import bundles
from reservoir.contents.artifact import PythonArtifact

EXAMPLE = Path(__file__).parents[4] / "inventory/example/site.yml"


@pytest.fixture
def site() -> Site:
    return load(parse(EXAMPLE.read_text(), "site.yml"))


class World:
    """What a deploy meets, and what it did in order."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.did: list[str] = []
        self.changed = True
        self.findings: list[dict[str, Any]] = []
        self.failure: PenstockError | None = None
        self.missing: list[int] = []
        self.artifacts = [SimpleNamespace(name="penstock", version="1.2.3")]
        self.releases = ["bookworm", "trixie"]
        self.site_changes = 5
        self.hosts: dict[str, Any] = {}
        self.unattended = False

    def bundle(self) -> Any:
        targets = [SimpleNamespace(os="debian", name=release, release=release) for release in self.releases]
        return SimpleNamespace(version="1.2.3", name="penstock", of_kind=self.of_kind, targets=targets)

    def of_kind(self, kind: type) -> list[Any]:
        return self.artifacts if kind is PythonArtifact else []

    def take(self, *_: Any, **__: Any) -> Any:
        self.did.append("import")
        if self.failure:
            raise self.failure
        lacking = {"complete": not self.missing, "media": 3, "missing": self.missing, "damaged": []}
        return SimpleNamespace(changed=self.changed, identity="penstock-1.2.3-abc", **lacking)

    def publish(self, *_: Any, unattended: bool, **__: Any) -> Any:
        self.did.append("publish")
        self.unattended = unattended
        return SimpleNamespace(changed=self.changed)

    def issue(self, *_: Any) -> bool:
        self.did.append("issue")
        return self.changed

    def run(self, name: str, hosts: dict[str, Any], **_: Any) -> playbook.Result:
        self.did.append(name)
        self.hosts = hosts
        result = playbook.Result(name, log=Path("log"))
        if name == "preflight":
            result.published = {"worker1": {preflight.FINDINGS: self.findings}}
            return result
        result.phases = {"Time": 1.5}
        result.nodes = {"worker1": playbook.Counts(ok=9, changed=self.site_changes)}
        if self.site_changes < 0:
            result.code = 2
            result.failures = [playbook.Event("Time", "worker1", "Install", playbook.Outcome.FAILED, "no room")]
        return result


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    played = World(tmp_path)
    monkeypatch.setattr(deployment, "require_controller", lambda _: None)
    monkeypatch.setattr(bundles, "read_signed", lambda *_: SimpleNamespace(bundle=played.bundle(), content=b"{}"))
    monkeypatch.setattr(deployment, "take", played.take)
    monkeypatch.setattr(deployment, "publish", played.publish)
    monkeypatch.setattr(pki, "issue", played.issue)
    monkeypatch.setattr(playbook, "run", played.run)
    return played


def run(site: Site, world: World) -> deployment.Deployment:
    return deployment.deploy(
        site, Path("bundle"), deployment.DeployListener(), state=world.state, root=Path("/reservoir")
    )


def records(world: World) -> list[dict[str, Any]]:
    return deployment.records(world.state)


def test_the_first_deploy_does_all_steps_in_order(site: Site, world: World) -> None:
    done = run(site, world)
    assert world.did == ["import", "publish", "issue", "preflight", "site"]
    assert world.hosts["all"]["vars"]["site_version"] == "1.2.3"
    assert (done.ok, done.changes) == (True, 5 + 5)
    assert list(done.phases) == ["bundle", "identity", "preflight", "Time"]
    assert done.admin_password == (world.state / "admin-password").read_text().strip()
    for secret in ("admin-password", "index-password"):
        assert (world.state / secret).stat().st_mode & 0o777 == 0o600
    assert world.state.stat().st_mode & 0o777 == 0o700


def test_a_second_deploy_changes_nothing_and_keeps_the_password(site: Site, world: World) -> None:
    first = run(site, world)
    world.changed, world.site_changes = False, 0
    second = run(site, world)
    assert second.changes == 0
    assert second.admin_password is None
    assert (world.state / "admin-password").read_text().strip() == first.admin_password
    assert [record["changes"] for record in records(world)] == [0, 10]


def test_only_a_bundle_that_is_new_ends_a_rollback(site: Site, world: World) -> None:
    run(site, world)
    assert not world.unattended
    world.changed = False
    run(site, world)
    assert world.unattended


def test_a_full_disk_leaves_no_empty_password_behind(site: Site, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(site, world)
    assert not (world.state / "admin-password").exists()
    done = run(site, world)
    assert done.admin_password
    assert done.admin_password == (world.state / "admin-password").read_text().strip()


def test_records_hold_no_password(site: Site, world: World) -> None:
    done = run(site, world)
    assert done.admin_password
    assert done.admin_password not in json.dumps(done.json())
    assert done.admin_password not in json.dumps(records(world))


def test_a_bad_bundle_stops_before_anything_else(site: Site, world: World) -> None:
    world.failure = IntegrityError("one bit is wrong")
    with pytest.raises(IntegrityError):
        run(site, world)
    assert world.did == ["import"]
    assert not (world.state / "admin-password").exists()
    assert records(world)[0]["ok"] is False


def test_a_bundle_of_something_else_is_refused(site: Site, world: World) -> None:
    world.artifacts = []
    with pytest.raises(NotFoundError, match="the bundle holds no penstock"):
        run(site, world)
    assert "site" not in world.did


def test_nodes_whose_release_the_bundle_does_not_serve_are_named_before_anything_else(site: Site, world: World) -> None:
    world.releases = ["bookworm"]
    with pytest.raises(InputError) as caught:
        run(site, world)
    assert [problem.where for problem in caught.value.problems] == ["nodes[2].release", "nodes[3].release"]
    assert "worker2 runs trixie, and the bundle is for bookworm. Hint: correct the release" in str(caught.value)
    assert world.did == []


def test_an_unfit_node_stops_before_any_node_is_changed(site: Site, world: World) -> None:
    world.findings = [
        {"name": "release", "ok": True, "reason": "", "hint": ""},
        {"name": "disk", "ok": False, "reason": "1 GiB is free", "hint": "make room"},
    ]
    with pytest.raises(InputError) as caught:
        run(site, world)
    assert str(caught.value) == "worker1: disk: 1 GiB is free. Hint: make room"
    assert world.did[-1] == "preflight"


def test_a_failed_playbook_is_told_and_recorded(site: Site, world: World) -> None:
    world.site_changes = -1
    with pytest.raises(ProcessError, match="worker1: Time: Install: no room"):
        run(site, world)
    (record,) = records(world)
    assert record["ok"] is False
    assert record["phases"]["Time"] == 1.5


def test_media_that_are_not_complete_stop_the_deploy(site: Site, world: World) -> None:
    world.missing = [2, 3]
    with pytest.raises(ConflictError, match=r"not complete: medium 2, 3 of 3 is missing.*penstock reservoir import"):
        run(site, world)
    assert world.did == ["import"]


def test_two_deploys_do_not_run_at_once(site: Site, world: World) -> None:
    world.state.mkdir()
    with (world.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="another deploy of this site is still running"):
            run(site, world)
    assert world.did == []


def test_a_rehearsal_changes_nothing(site: Site, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "verify", lambda *_, **__: SimpleNamespace(bundle=world.bundle()))
    deployment.rehearse(site, Path("bundle"), deployment.DeployListener(), state=world.state)
    assert world.did == ["preflight"]
    assert not world.state.exists()


def test_a_rehearsal_expects_the_key_that_the_site_knows(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def verify(_: Path, key: Any = None, *__: Any, **___: Any) -> Any:
        asked.append(key)
        return SimpleNamespace(bundle=world.bundle())

    monkeypatch.setattr(deployment, "verify", verify)
    monkeypatch.setattr(deployment, "expected_key", lambda _: "the site's key")
    deployment.rehearse(site, Path("bundle"), deployment.DeployListener(), state=world.state)
    assert asked == ["the site's key"]


def test_only_the_reservoir_node_is_the_controller(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    @contextmanager
    def socket(*_: Any) -> Any:
        def bind(address: tuple[str, int]) -> None:
            asked.append(address)
            raise OSError(99, "Cannot assign requested address")

        yield SimpleNamespace(bind=bind)

    monkeypatch.setattr("socket.socket", socket)
    with pytest.raises(ConflictError, match=r"does not have the address 10\.71\.8\.10.*run the command on master1"):
        deployment.require_controller(site)
    assert asked == [("10.71.8.10", 0)]


def test_a_password_fits_the_rule_of_the_api_and_differs_each_time() -> None:
    from pydantic import TypeAdapter

    from api.resources.schemas import Password

    passwords = {deployment.new_password() for _ in range(200)}
    assert len(passwords) == 200
    for password in passwords:
        TypeAdapter(Password).validate_python(password)


def test_a_certificate_is_revoked_while_no_deploy_runs(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert world
    revoked: list[tuple[Path, str]] = []
    monkeypatch.setattr(pki, "revoke", lambda folder, node: revoked.append((folder, node)))
    deployment.revoke(site, "worker1", state=tmp_path)
    assert revoked == [(tmp_path / "pki", "worker1")]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConflictError):
            deployment.revoke(site, "worker1", state=tmp_path)
    assert len(revoked) == 1
