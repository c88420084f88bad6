"""The flow of a deploy: in which order, and what it leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import deploy_records, deployment, expected_gpus, playbook
from appliance.site.model import Site
from appliance.site.slurm import Engine, SlurmNode
from common.errors import ConflictError, NotFoundError, ProcessError
from tests.unit.appliance.site.deployment.world import World, records, run


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


def test_a_record_says_what_was_installed(site: Site, world: World) -> None:
    run(site, world)
    (record,) = records(world)
    served = [world.identity, "penstock-1.2.3-abc"]
    assert record["installs"] == deploy_records.installs("name: lab\n", served, world.state / "pki/ca.crt")
    assert record["renewal"] is False


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
