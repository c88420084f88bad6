"""Leases: what comes of those that are lost, forgotten or held by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from api.control.leases import AT_ONCE, LeaseKeeper
from api.engine.launcher import DirectLauncher, Held, LeasedNode, Leases
from api.tables.nodes import Node
from api.tables.sessions import Session
from common.checks import Check
from common.errors import UnavailableError
from common.lease_protocol import Lease
from tests.api.cluster import V1, Cluster, ok
from tests.api.steps import run

pytestmark = pytest.mark.anyio


@dataclass
class Lender:
    """A launcher that tells what a test says; whoever asks it for a lease waits until `go_on`."""

    seen: Leases = field(default_factory=Leases)
    answers: bool = True
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Lease] = field(default_factory=list)
    released: set[Lease] = field(default_factory=set)
    is_watched = True

    async def admit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        self.asked.append(lease)
        if len(self.asked) == AT_ONCE:
            self.enough.set()
        await self.go_on.wait()
        if not self.answers:
            raise UnavailableError("nobody answers")

    async def release(self, leases: Collection[Lease]) -> dict[Lease, str]:
        self.released |= set(leases)
        return {}

    async def watch(self) -> Leases:
        return self.seen

    async def checks(self) -> list[Check]:
        return []


@dataclass
class Kept:
    """A keeper of leases, and its launcher."""

    keeper: LeaseKeeper
    lender: Lender


@pytest.fixture
def kept(ready: Cluster) -> Kept:
    lender = Lender()
    return Kept(LeaseKeeper(ready.database, lender, ready.clock), lender)


async def lending(cluster: Cluster) -> dict[str, tuple[str, int, int]]:
    """Return what is known to any process of the API."""
    async with cluster.database.reading() as db:
        found = await db.execute(select(Node.name, Node.withheld, Node.foreign_cpu_milli, Node.foreign_memory_mib))
        return {name: (why, cpu_milli, memory_mib) for name, why, cpu_milli, memory_mib in found}


async def run_some(cluster: Cluster, number: int) -> None:
    for each in range(number):
        await cluster.submit(f"s{each}", gpu_milli=100, memory_mib=64)
    await cluster.settle()
    assert set((await cluster.states()).values()) == {"RUNNING"}


async def test_leases_that_were_forgotten_are_asked_for_side_by_side(ready: Cluster, kept: Kept) -> None:
    """One after another they would keep the leader for as long as the launcher takes for all of them."""
    await run_some(ready, AT_ONCE + 1)
    work = asyncio.create_task(kept.keeper.work())
    async with asyncio.timeout(60):
        await kept.lender.enough.wait()
        kept.lender.go_on.set()
        await work
    assert len(set(kept.lender.asked)) == AT_ONCE + 1


async def test_where_nobody_answers_no_more_are_asked_for(ready: Cluster, kept: Kept) -> None:
    await run_some(ready, AT_ONCE + 1)
    kept.lender.answers = False
    kept.lender.go_on.set()
    await kept.keeper.work()
    assert len(kept.lender.asked) == AT_ONCE
    assert set((await ready.states()).values()) == {"RUNNING"}


async def test_a_session_whose_place_was_taken_back_says_so_for_good(ready: Cluster, kept: Kept) -> None:
    session = await run(ready, kind="interactive")
    kept.lender.seen = Leases(ended={Lease(UUID(session["id"]), 0): "TIMEOUT"})
    await kept.keeper.work()
    await ready.settle()
    session = await ready.session("demo")
    assert (session["state"], session["cause"]) == ("FAILED", "withdrawn")
    assert session["reason"] == "Slurm took its place back: TIMEOUT"


async def test_what_has_ended_and_still_holds_something_is_given_back(ready: Cluster, kept: Kept) -> None:
    suspended = Lease(uuid4(), 0)
    kept.lender.seen = Leases(ended={suspended: "SUSPENDED", Lease(uuid4(), 0): "TIMEOUT"}, left={suspended})
    await kept.keeper.work()
    assert kept.lender.released == {suspended}


async def test_nodes_that_the_launcher_does_not_know_are_withheld(ready: Cluster, kept: Kept) -> None:
    await ready.add_node("worker2")
    unknown = "Slurm does not know it in partition gpus"
    kept.lender.seen = Leases(nodes={"worker2": "", "other": "Slurm: down"}, unknown=unknown)
    await kept.keeper.work()
    assert await lending(ready) == {"worker1": (unknown, 0, 0), "worker2": ("", 0, 0)}
    listed = await ok(ready.admin.get(f"{V1}/nodes"))
    assert {node["name"]: node["withheld"] for node in listed} == {"worker1": unknown, "worker2": ""}


async def test_what_others_hold_of_a_node_is_not_offered(ready: Cluster, kept: Kept) -> None:
    await run(ready, cpu_milli=1500, memory_mib=64)
    async with ready.database.reading() as db:
        node = (await db.scalars(select(Node))).one()
    others = node.cpu_milli - 3000
    kept.lender.seen = Leases(
        lent=await leases_of(ready), nodes={"worker1": ""}, held={"worker1": Held(2000 + others, 1064)}
    )
    await kept.keeper.work()
    assert await lending(ready) == {"worker1": ("", others, 1000)}
    await ready.submit("large", gpu_milli=100, cpu_milli=2000, memory_mib=64)
    await ready.settle()
    assert (await ready.session("large"))["state"] == "PENDING"
    kept.lender.seen = Leases(lent=await leases_of(ready), nodes={"worker1": ""}, held={"worker1": Held(2000, 64)})
    await kept.keeper.work()
    await ready.settle()
    assert (await ready.session("large"))["state"] == "RUNNING"


async def leases_of(cluster: Cluster) -> set[Lease]:
    async with cluster.database.reading() as db:
        return {Lease(id_, attempt) for id_, attempt in await db.execute(select(Session.id, Session.attempt))}


async def test_a_site_that_has_left_slurm_offers_all_nodes_again(ready: Cluster, kept: Kept) -> None:
    kept.lender.seen = Leases(nodes={"worker1": "Slurm: down"}, held={"worker1": Held(1000, 1)})
    await kept.keeper.work()
    assert await lending(ready) == {"worker1": ("Slurm: down", 1000, 1)}
    keeper = LeaseKeeper(ready.database, DirectLauncher(), ready.clock)
    assert keeper.is_due
    await keeper.work()
    assert not keeper.is_due
    assert await lending(ready) == {"worker1": ("", 0, 0)}
