"""Nodes that are down, unfit or fail: whom a deploy leaves out, and when it stops."""

from __future__ import annotations

import pytest

from appliance.site import deploy_records
from appliance.site.model import Site
from common.errors import InputError, ProcessError
from tests.unit.appliance.site.deployment.world import World, records, run


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
