"""The flow of a deploy: in which order, and what stops it. Bundle, playbooks and nodes are played here."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import (
    departure,
    deploy_records,
    deployment,
    driver_bundles,
    expected_gpus,
    pki,
    playbook,
    preflight,
    product,
    served,
)
from appliance.site.backup.make import Backups
from appliance.site.model import Site
from appliance.site.site_file import load
from appliance.site.slurm import Engine, SlurmNode
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError, PenstockError, Problem, ProcessError
from common.progress import silent
from common.yaml_document import parse
from reservoir.bundle import bundles
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.bundle import Bundle

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
        self.identity = "penstock-1.2.3-44136fa355b3"
        self.missing: list[int] = []
        self.left_out: list[Problem] = []
        self.artifacts = [SimpleNamespace(name="penstock", version="1.2.3", sha256="0")]
        self.schema = "0024"
        self.no_backup: PenstockError | None = None
        self.releases = ["bookworm", "trixie"]
        self.site_changes = 5
        self.down: list[str] = []
        self.broken: list[str] = []
        self.hosts: dict[str, Any] = {}
        self.unattended = False
        self.mended = False
        self.rolled_back = False
        self.without_lock: list[str] = []
        self.sessions: list[dict[str, str]] = []

    def bundle(self) -> Any:
        targets = [SimpleNamespace(os="debian", name=release, release=release) for release in self.releases]
        return SimpleNamespace(version="1.2.3", name="penstock", of_kind=self.of_kind, targets=targets)

    @staticmethod
    def another() -> Any:
        return SimpleNamespace(of_kind=lambda _: [])

    def of_kind(self, kind: type) -> list[Any]:
        return self.artifacts if kind is PythonArtifact else []

    def take(self, *_: Any, **__: Any) -> Any:
        self.did.append("import")
        if self.failure:
            raise self.failure
        lacking = {"complete": not self.missing, "media": 3, "missing": self.missing, "damaged": []}
        return SimpleNamespace(
            changed=self.changed,
            new=self.changed and not self.mended,
            identity=self.identity,
            trust=None,
            warning="",
            **lacking,
        )

    def publish(self, *_: Any, unattended: bool, **__: Any) -> Any:
        self.did.append("publish")
        self.unattended = unattended
        served = [self.identity, "penstock-1.2.3-abc"]
        return SimpleNamespace(
            changed=self.changed, left_out=self.left_out, bundles=served, number=3, rolled_back=self.rolled_back
        )

    def issue(self, *_: Any) -> bool:
        self.did.append("issue")
        return self.changed

    def back_up(self, *_: Any) -> Any:
        self.did.append("backup")
        if self.no_backup:
            raise self.no_backup
        return SimpleNamespace(name="penstock-20261123-073000")

    def run(
        self, name: str, hosts: dict[str, Any], *, limit: Sequence[str] = (), together: bool = True, **options: Any
    ) -> playbook.Result:
        self.did.append(f"{name} {' '.join(limit)}".strip())
        if not options.get("held"):
            self.without_lock.append(name)
        assert together == ("worker1" not in limit and "worker2" not in limit) or name == "preflight"
        self.hosts = hosts
        result = playbook.Result(name, log=Path("log"))
        if name == "departure":
            nodes = [{"name": "worker1", "closed": False, "sessions": self.sessions}]
            result.published = {"master1": {departure.NODES: nodes if self.sessions else []}}
            return result
        if name == "preflight":
            result.published = {node: {preflight.FINDINGS: []} for node in limit if node not in self.down}
            result.published["worker1"] = {preflight.FINDINGS: self.findings}
            self.fail(result, [node for node in limit if node in self.down], playbook.Outcome.UNREACHABLE)
            return result
        result.phases = {"Time": 1.5}
        result.nodes = {node: playbook.Counts(ok=9, changed=self.site_changes) for node in limit}
        result.changes = {node: [f"Task of {name}"] for node in limit if self.site_changes}
        self.fail(result, [node for node in limit if node in self.broken], playbook.Outcome.FAILED)
        return result

    @staticmethod
    def fail(result: playbook.Result, nodes: list[str], outcome: playbook.Outcome) -> None:
        for node in nodes:
            result.code = 2
            result.nodes[node] = playbook.Counts(ok=1, failed=1)
            result.failures.append(playbook.Event("Time", node, "Install", outcome, "no room"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    played = World(tmp_path)
    monkeypatch.setattr(deployment, "require_controller", lambda _: None)
    monkeypatch.setattr(product, "version", lambda _: "1.2.3", raising=False)
    monkeypatch.setattr(bundles, "read_signed", lambda *_: SimpleNamespace(bundle=played.bundle(), content=b"{}"))
    monkeypatch.setattr(deployment, "take", played.take)
    monkeypatch.setattr(deployment, "publish", played.publish)
    monkeypatch.setattr(pki, "issue", played.issue)
    monkeypatch.setattr(deployment, "newest_step", lambda _: played.schema)
    monkeypatch.setattr(Backups, "take", played.back_up)
    monkeypatch.setattr(playbook, "run", played.run)
    return played


def run(
    site: Site,
    world: World,
    limit: list[str] | None = None,
    bundle: Path | None = Path("bundle"),
    renewal: Callable[[], None] | None = None,
    file: str = "name: lab\n",
) -> deployment.Deployment:
    return deployment.deploy(
        site,
        bundle,
        deployment.DeployListener(),
        file=file,
        limit=limit,
        renewal=renewal,
        state=world.state,
        root=Path("/reservoir"),
    )


def records(world: World) -> list[dict[str, Any]]:
    return deploy_records.read(world.state)


def test_the_first_deploy_does_all_steps_in_order(site: Site, world: World) -> None:
    done = run(site, world)
    nodes = ["nodes master1 storage1", "nodes worker1 worker2", "edge master1 storage1"]
    assert world.did == ["import", "publish", "issue", "preflight master1 storage1 worker1 worker2", *nodes]
    assert world.hosts["all"]["vars"]["site_version"] == "1.2.3"
    # the edge is installed beside what its node has already
    assert (done.ok, done.changes) == (True, 6 + 6 * 5)
    assert list(done.phases) == ["bundle", "identity", "preflight", "Time"]
    assert done.phases["Time"] == 4.5
    assert done.nodes["master1"] == playbook.Counts(ok=18, changed=10)
    assert done.tasks["master1"] == ["Task of nodes", "Task of edge"]
    assert done.tasks["worker1"] == ["Task of nodes"]
    assert done.reached == ["master1", "storage1", "worker1", "worker2"]
    assert done.admin_password == (world.state / "admin-password").read_text().strip()
    for secret in ("admin-password", "index-password", "audit-key"):
        assert (world.state / secret).stat().st_mode & 0o777 == 0o600
    assert world.state.stat().st_mode & 0o777 == 0o700


def test_the_archive_of_the_log_has_a_key_that_stays_where_the_site_wants_one(site: Site, world: World) -> None:
    key = world.state / "wal-key"
    run(site, world)
    assert not key.exists()
    assert world.hosts["all"]["children"]["wal_archive"]["hosts"] == {}
    archived = site.model_copy(update={"backup": site.backup.model_copy(update={"wal_to": "/mnt/wal"})})
    run(archived, world)
    made = key.read_text()
    assert (len(made.strip()), key.stat().st_mode & 0o777) == (64, 0o600)
    run(archived, world)
    assert key.read_text() == made
    assert list(world.hosts["all"]["children"]["wal_archive"]["hosts"]) == ["master1"]


def test_a_deploy_that_migrates_the_database_takes_a_backup_before_and_names_it(site: Site, world: World) -> None:
    assert run(site, world).backup == ""
    assert run(site, world).backup == ""
    world.schema = "0025"
    world.did.clear()
    assert run(site, world).backup == records(world)[0]["backup"] == "penstock-20261123-073000"
    assert world.did.index("backup") < world.did.index("nodes master1 storage1")


def test_nothing_is_migrated_without_a_backup_unless_there_is_no_database(site: Site, world: World) -> None:
    run(site, world)
    world.schema, world.no_backup = "0025", ProcessError("the disk is full")
    world.did.clear()
    with pytest.raises(ProcessError, match="the disk is full"):
        run(site, world)
    assert not [each for each in world.did if each.startswith("nodes")]
    world.no_backup = NotFoundError("the master has no database")
    assert run(site, world).ok


def test_a_deploy_keeps_its_site_file_for_backups(site: Site, world: World) -> None:
    run(site, world)
    assert (world.state / "site.yml").read_text() == "name: lab\n"
    assert (world.state / "site.yml").stat().st_mode & 0o777 == 0o600


def test_gpus_that_a_deploy_finds_are_part_of_what_it_deployed(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(_site: Site, reached: list[str], *_: Any) -> expected_gpus.Expected:
        return {"worker1": {"count": 8}} if "worker1" in reached else {}

    monkeypatch.setattr(expected_gpus, "found", found)
    before = "name: lab\nnodes:\n- {name: worker1}\n"
    done = run(site, world, file=before)
    assert done.file == "name: lab\nnodes:\n- {name: worker1, gpus: {count: 8}}\n"
    assert (world.state / "site.yml").read_text() == done.file
    (record,) = records(world)
    assert record["expected"] == {"worker1": {"count": 8}}
    assert record["installs"] == deploy_records.installs(
        done.file, ["penstock-1.2.3-44136fa355b3", "penstock-1.2.3-abc"], world.state / "pki" / "ca.crt"
    )
    odd = "name: lab\nnodes:\n- &a\n  name: worker1\n- {<<: *a, name: worker2}\n"
    done = run(site, world, file=odd)
    assert (done.file, done.expected) == (odd, {}), "people have to write it there"


def test_a_second_deploy_changes_nothing_and_keeps_the_password(site: Site, world: World) -> None:
    first = run(site, world)
    world.changed, world.site_changes = False, 0
    second = run(site, world)
    assert second.changes == 0
    assert second.admin_password is None
    assert (world.state / "admin-password").read_text().strip() == first.admin_password
    assert [record["changes"] for record in records(world)] == [0, 36]


def test_only_a_bundle_that_is_new_ends_a_rollback(site: Site, world: World) -> None:
    run(site, world)
    assert not world.unattended
    world.changed, world.rolled_back = False, True
    assert run(site, world).rolled_back == 3
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


def test_a_bundle_that_is_only_mended_ends_no_rollback(site: Site, world: World) -> None:
    world.mended = True
    assert "bundle imported" in run(site, world).changed
    assert world.unattended


def test_another_bundle_that_cannot_be_published_stops_no_deploy(site: Site, world: World) -> None:
    world.left_out = [Problem("team-1-def: notes.txt", "two different files have one name", "rename one in its bundle")]
    run(site, world)
    world.left_out = [Problem("penstock-1.2.3-44136fa355b3: notes.txt", "is missing", "carry its bundle here again")]
    with pytest.raises(ConflictError, match=r"penstock-1.2.3-44136fa355b3: notes.txt: is missing"):
        run(site, world)


def test_without_a_bundle_it_is_the_one_that_the_reservoir_holds(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is imported, and what an administrator went back to stays."""
    monkeypatch.setattr(product, "due", lambda _: {"other-1": world.another(), "penstock-1.2.3-abc": world.bundle()})
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(product, "require_sound", lambda _, name, *, read, **__: asked.append((name, read)))
    done = run(site, world, bundle=None)
    assert (done.ok, done.bundle, done.version) == (True, "penstock-1.2.3-abc", "1.2.3")
    assert world.did[0] == "publish"
    assert world.unattended
    assert "bundle imported" not in done.changed
    assert product.verified(None, world.state / "reservoir", silent).identity == "penstock-1.2.3-abc"
    assert asked == [("penstock-1.2.3-abc", False), ("penstock-1.2.3-abc", True)]
    world.left_out = [Problem("penstock-1.2.3-abc: notes.txt", "is missing", "carry its bundle here again")]
    with pytest.raises(ConflictError, match=r"notes\.txt"):
        run(site, world, bundle=None)
    monkeypatch.setattr(product, "due", lambda _: {"other-1": world.another()})
    with pytest.raises(NotFoundError, match=r"no bundle of the reservoir holds penstock.*--bundle"):
        run(site, world, bundle=None)


def test_a_bundle_of_something_else_is_refused(site: Site, world: World) -> None:
    world.artifacts = []
    with pytest.raises(NotFoundError, match="the bundle holds no penstock"):
        run(site, world)
    assert world.did == ["import", "publish", "issue"]


def test_a_bundle_of_a_newer_version_than_the_controller_is_installed_here_first(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "version", lambda _: "1.2.2")
    with pytest.raises(ConflictError, match=r"brings Penstock 1.2.3, .* has 1.2.2.*`penstock site upgrade bundle`"):
        run(site, world)
    assert world.did == []
    # what a site went back to is older
    monkeypatch.setattr(product, "version", lambda _: "1.3")
    assert run(site, world).ok


def test_every_deploy_warns_of_what_is_served_beyond_its_time(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Bundle(
        name="old",
        version="1",
        created="2026-01-01T00:00:00Z",
        expires="2026-01-02T00:00:00Z",
        targets=[],
        artifacts=[],
    )
    monkeypatch.setattr(served, "bundles", lambda _: {"old-1": old})
    monkeypatch.setattr(driver_bundles, "require", lambda *_: None)
    said: list[str] = []
    monkeypatch.setattr(deployment.DeployListener, "progress", lambda _, step, *__: said.append(step))
    run(site, world)
    assert "warning: the time of old 1 is over since 2026-01-02; ask its maker for a newer one" in said


def test_nodes_whose_release_the_bundle_does_not_serve_are_named_before_anything_else(site: Site, world: World) -> None:
    world.releases = ["bookworm"]
    with pytest.raises(InputError) as caught:
        run(site, world)
    assert [problem.where for problem in caught.value.problems] == ["nodes[2].release", "nodes[3].release"]
    assert "worker2 runs trixie, and the bundle is for bookworm. Hint: correct the release" in str(caught.value)
    assert world.did == []


def test_a_node_that_all_need_stops_everything_before_any_node_is_changed(site: Site, world: World) -> None:
    world.down = ["storage1", "worker2"]
    with pytest.raises(ProcessError) as caught:
        run(site, world)
    assert [problem.where for problem in caught.value.problems] == [
        "storage1: Time: Install",
        "worker2: Time: Install",
    ]
    assert world.did[-1] == "preflight master1 storage1 worker1 worker2"


def test_a_worker_that_is_down_is_left_out_and_the_next_deploy_catches_it_up(site: Site, world: World) -> None:
    world.down = ["worker2"]
    done = run(site, world)
    assert world.did[-2:] == ["nodes worker1", "edge master1 storage1"]
    (problem,) = done.left_out["worker2"]
    assert problem.reason == "no room"
    assert (done.ok, done.reached) == (True, ["master1", "storage1", "worker1"])
    (record,) = records(world)
    assert record["left_out"]["worker2"][0]["where"] == "worker2: Time: Install"
    missed = deploy_records.behind(site, records(world))
    assert missed == {"worker2": f"left out of the deploy of {record['started']}: no room"}
    world.down = []
    assert not run(site, world).left_out
    assert world.did[-2] == "nodes worker1 worker2"
    assert deploy_records.behind(site, records(world)) == {}


def test_a_deploy_that_goes_elsewhere_catches_nobody_up(site: Site, world: World) -> None:
    world.down = ["worker2"]
    run(site, world)
    run(site, world, ["worker1"])
    assert list(deploy_records.behind(site, records(world))) == ["worker2"]


def test_an_unfit_worker_is_left_out(site: Site, world: World) -> None:
    world.findings = [
        {"name": "release", "ok": True, "seen": "bookworm", "reason": "", "hint": ""},
        {"name": "disk", "ok": False, "reason": "1 GiB is free", "hint": "make room"},
    ]
    done = run(site, world)
    assert [str(problem) for problem in done.left_out["worker1"]] == ["worker1: disk: 1 GiB is free. Hint: make room"]
    assert world.did[-2] == "nodes worker2"


def test_too_many_unfit_workers_stop_before_any_node_is_changed(site: Site, world: World) -> None:
    world.findings = [{"name": "disk", "ok": False, "reason": "1 GiB is free", "hint": "make room"}]
    world.down = ["worker2"]
    with pytest.raises(
        InputError, match=r"2 of 2 workers cannot be deployed, and 1 may be left out.*--limit"
    ) as caught:
        run(site, world)
    assert "1 GiB is free" in str(caught.value)
    assert world.did[-1].startswith("preflight")
    strict = site.model_copy(update={"deploy": site.deploy.model_copy(update={"max_fail_percentage": 0})})
    with pytest.raises(InputError, match="1 of 1"):
        run(strict, world, ["worker2"])


def test_a_worker_that_fails_is_left_out_and_the_waves_go_on(site: Site, world: World) -> None:
    site = site.model_copy(update={"deploy": site.deploy.model_copy(update={"wave": 1})})
    world.broken = ["worker1"]
    done = run(site, world)
    assert world.did[-3:] == ["nodes worker1", "nodes worker2", "edge master1 storage1"]
    assert (done.reached, list(done.left_out)) == (["master1", "storage1", "worker2"], ["worker1"])


def test_too_many_failures_end_the_waves(site: Site, world: World) -> None:
    site = site.model_copy(update={"deploy": site.deploy.model_copy(update={"wave": 1, "max_fail_percentage": 0})})
    world.broken = ["worker1"]
    with pytest.raises(ProcessError, match="1 of 2 workers cannot be deployed, and none may be left out"):
        run(site, world)
    assert world.did[-1] == "nodes worker1"
    (record,) = records(world)
    assert (record["ok"], record["reached"]) == (False, ["master1", "storage1"])
    assert record["left_out"]["worker2"][0]["reason"] == "the deploy stopped before it was done with this node"
    assert list(deploy_records.behind(site, records(world))) == ["worker1", "worker2"]


def test_a_limit_names_workers_beside_those_that_all_need(site: Site, world: World) -> None:
    done = run(site, world, ["worker2", "master1"])
    assert world.did[-3:] == ["nodes master1 storage1", "nodes worker2", "edge master1 storage1"]
    assert (done.left_out, "worker1" in done.reached) == ({}, False)


def test_a_name_in_a_limit_is_one_of_the_sites(site: Site, world: World) -> None:
    with pytest.raises(InputError) as caught:
        run(site, world, ["worker1", "wroker2", "x"])
    assert [problem.hint for problem in caught.value.problems] == [
        "did you mean worker2?",
        "name some of master1, worker1, worker2, storage1",
    ]
    assert world.did == []


def test_a_first_node_that_fails_is_told_and_recorded(site: Site, world: World) -> None:
    world.broken = ["master1"]
    with pytest.raises(ProcessError, match="master1: Time: Install: no room"):
        run(site, world)
    assert world.did[-1] == "nodes master1 storage1"
    (record,) = records(world)
    assert (record["ok"], record["reached"]) == (False, [])
    assert record["phases"]["Time"] == 1.5


def test_media_that_are_not_complete_stop_the_deploy(site: Site, world: World) -> None:
    world.missing = [2, 3]
    with pytest.raises(ConflictError, match=r"not complete: medium 2, 3 of 3 is missing.*penstock reservoir import"):
        run(site, world)
    assert world.did == ["import"]


def test_a_record_says_what_was_installed(site: Site, world: World) -> None:
    run(site, world)
    (record,) = records(world)
    served = [world.identity, "penstock-1.2.3-abc"]
    assert record["installs"] == deploy_records.installs("name: lab\n", served, world.state / "pki/ca.crt")
    assert record["renewal"] is False


def test_a_renewal_makes_certificates_alone_and_reads_none_of_the_company(site: Site, world: World) -> None:
    run(site, world)
    (world.state / "site.yml").write_text("name: kept\n")
    (world.state / "edge.crt").write_text("kept")
    gone = {"certificate_file": "/nowhere/c.pem", "key_file": "/nowhere/k.pem", "names": ["gpu.example.com"]}
    named = site.model_copy(update={"edge": site.edge.model_copy(update=gone)})
    with pytest.raises(InputError, match="cannot be read"):
        run(named, world)
    done = run(named, world, renewal=lambda: None)
    assert done.ok
    assert records(world)[0]["renewal"] is True
    assert [(world.state / name).read_text() for name in ("site.yml", "edge.crt")] == ["name: kept\n", "kept"]


def test_a_renewal_passes_over_any_number_of_workers_that_are_down_or_fail(site: Site, world: World) -> None:
    world.down, world.broken = ["worker2"], ["worker1"]
    with pytest.raises(ProcessError, match="2 of 2 workers cannot be deployed"):
        run(site, world)
    done = run(site, world, renewal=lambda: None)
    assert (done.ok, done.reached, sorted(done.left_out)) == (True, ["master1", "storage1"], ["worker1", "worker2"])
    world.down = ["worker1", "worker2"]
    assert run(site, world, renewal=lambda: None).ok


def test_a_renewal_that_may_not_be_changes_nothing(site: Site, world: World) -> None:
    def refuse() -> None:
        raise ConflictError("it would bring more")

    with pytest.raises(ConflictError, match="it would bring more"):
        run(site, world, renewal=refuse)
    assert world.did == []


def test_two_deploys_do_not_run_at_once(site: Site, world: World) -> None:
    world.state.mkdir()
    with (world.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="a deploy or a backup of this site is still running"):
            run(site, world)
    assert world.did == []


def test_the_engine_of_a_site_where_sessions_run_is_not_changed_and_nothing_is_begun(site: Site, world: World) -> None:
    run(site, world)
    kept = (world.state / "site.yml").read_text()
    world.did.clear()
    world.sessions = [{"name": "train1", "project": "team-a", "user": "ada"}]
    counted = SlurmNode(cores=4, memory_mib=8000)
    nodes = [node.model_copy(update={"slurm": counted}) for node in site.nodes]
    other = site.model_copy(update={"engine": Engine.SLURM, "nodes": nodes})
    with pytest.raises(ConflictError, match="the site has direct, and 1 sessions run: train1 of ada"):
        run(other, world)
    assert world.did == ["departure"]
    assert (world.state / "site.yml").read_text() == kept
    assert [record["engine"] for record in records(world)] == ["", "direct"]
    run(site, world)


def test_the_lock_goes_to_every_playbook_of_a_deploy(site: Site, world: World) -> None:
    (world.state / "pki/nodes/worker9").mkdir(parents=True)
    run(site, world)
    assert world.did[0] == "departure"
    assert world.without_lock == []


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
