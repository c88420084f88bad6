"""The policy of what sessions may reach."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from appliance.agent.docker import egress_policy
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.site_nodes import SiteNodes
from common.errors import ConflictError, ProcessError, UnavailableError
from tests.fakes.packet_rules import PacketRules, bridges


@pytest.fixture
def rules() -> PacketRules:
    return PacketRules()


@pytest.fixture
def policy(rules: PacketRules, tmp_path: Path) -> EgressPolicy:
    return EgressPolicy(lambda: "docker0", [], list, run=rules.run, bridges=bridges(tmp_path))


def test_nothing_starts_before_the_rules_are_in_place(policy: EgressPolicy, rules: PacketRules) -> None:
    with pytest.raises(ConflictError, match="not in place yet"):
        policy.check()
    policy.keep()
    policy.check()
    assert 'iifname "docker0"' in rules.table


def test_what_is_in_place_stays_as_it_is(policy: EgressPolicy, rules: PacketRules) -> None:
    for _ in range(3):
        policy.keep()
    assert rules.installs == 1


def test_a_node_that_joins_is_closed_without_a_restart(rules: PacketRules, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("10.0.0.2 master1 penstock\n")
    nodes = SiteNodes(file).addresses
    policy = EgressPolicy(lambda: "docker0", [], nodes, run=rules.run, bridges=bridges(tmp_path))
    policy.keep()
    assert "10.0.0.3" not in rules.table
    file.write_text("10.0.0.2 master1 penstock\n10.0.0.3 worker3\n")
    for _ in range(2):
        policy.keep()
    assert "10.0.0.3" in rules.table
    assert rules.installs == 2


def test_a_node_that_does_not_know_the_others_starts_nothing(rules: PacketRules, tmp_path: Path) -> None:
    nodes = SiteNodes(tmp_path / "nodes").addresses
    policy = EgressPolicy(lambda: "docker0", [], nodes, run=rules.run, bridges=bridges(tmp_path))
    policy.keep()
    with pytest.raises(ConflictError, match="the list of the site's nodes cannot be read"):
        policy.check()


@pytest.mark.parametrize("left", ["", "table inet penstock {}"])
def test_what_somebody_took_away_or_changed_is_put_back(policy: EgressPolicy, rules: PacketRules, left: str) -> None:
    policy.keep()
    before, rules.table = rules.table, left
    policy.keep()
    assert rules.table == before
    assert not policy.reason


def test_a_node_whose_kernel_refuses_says_so_until_it_does_not(policy: EgressPolicy, rules: PacketRules) -> None:
    policy.keep()
    rules.table, rules.refuses = "", ProcessError("nft ended with code 1:\n  Operation not supported")
    policy.keep()
    assert policy.reason == "sessions cannot be kept apart: nft ended with code 1: Operation not supported"
    with pytest.raises(ConflictError, match="Operation not supported"):
        policy.check()
    rules.refuses = None
    policy.keep()
    policy.check()


def test_docker_being_away_at_the_start_is_waited_out(rules: PacketRules, tmp_path: Path) -> None:
    away = [UnavailableError("the Docker Engine does not answer")]

    def bridge() -> str:
        if away:
            raise away.pop()
        return "docker0"

    policy = EgressPolicy(bridge, [], list, run=rules.run, bridges=bridges(tmp_path))
    policy.keep()
    assert "does not answer" in policy.reason
    policy.keep()
    assert not policy.reason


def test_frames_between_containers_of_a_bridge_come_before_the_rules(rules: PacketRules, tmp_path: Path) -> None:
    folder = bridges(tmp_path, "0")
    EgressPolicy(lambda: "docker0", [], list, run=rules.run, bridges=folder).keep()
    assert {path.read_text() for path in folder.iterdir()} == {"1"}


def test_a_kernel_that_does_not_show_them_to_the_rules_is_a_reason(rules: PacketRules, tmp_path: Path) -> None:
    (tmp_path / "bridge-nf-call-iptables").write_text("1\n")
    policy = EgressPolicy(lambda: "docker0", [], list, run=rules.run, bridges=tmp_path)
    (tmp_path / "bridge-nf-call-ip6tables").mkdir()
    policy.keep()
    assert "bridge-nf-call-ip6tables cannot be 1" in policy.reason
    assert not rules.installs


@pytest.mark.anyio
async def test_who_waits_for_news_is_told_of_each_other_reason_once(
    policy: EgressPolicy, rules: PacketRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_policy, "INTERVAL_S", 0.001)
    told: list[str] = []
    running = asyncio.create_task(policy.run(lambda: told.append(policy.reason)))
    async with asyncio.timeout(60):
        while not told:  # noqa: ASYNC110 -- what is waited for happens in a thread
            await asyncio.sleep(0.005)
        rules.table, rules.refuses = "", ProcessError("no")
        while len(told) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
    running.cancel()
    assert told == ["", "sessions cannot be kept apart: no"]
