"""Deploys that are of certificates alone."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from appliance.site import deployment, pki
from appliance.site.model import Site
from common.errors import ConflictError, InputError, ProcessError
from tests.unit.appliance.site.deployment.world import World, records, run


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
