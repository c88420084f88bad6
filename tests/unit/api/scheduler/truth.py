"""Whether what a decision says is so: every number and name in its reasons, against what the cluster says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

from api.scheduler.cluster import ClusterState
from api.scheduler.elastic import one_more, part_id, parts
from api.scheduler.phrases import gpus
from api.scheduler.snapshot import (
    Cause,
    Decision,
    GpuState,
    Placement,
    Reclaim,
    Resource,
    Running,
    Snapshot,
    Workload,
    taking,
)

AMOUNT = r"([\d.]+) GPUs?"
UNITS = {Resource.CPU: "CPUs?", Resource.MEMORY: "MiB of memory"}


def check_reasons(snapshot: Snapshot, decision: Decision) -> None:
    """Assert that each reason says what is so when the decision is done, each line of the log when it is written."""
    _Truth(snapshot, decision).check()


class _Truth:
    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        self.snapshot, self.decision = snapshot, decision
        self.queued = {workload.id: workload for workload in snapshot.queue}
        self.running = {part.workload.id: part for each in snapshot.running for part in parts(each)}
        self.quotas = {each.name: each.quota_milli for each in snapshot.projects}
        self.limits = {each.name: each.limit_milli for each in snapshot.projects}
        self.victims = {id_ for each in decision.reclaims for id_ in self.going(each)}
        placed = decision.placements.items()
        self.placed = [Running(taking(self.queued[id_], places), places, 0) for id_, places in placed]
        of = {each.workload.id: each for each in snapshot.running}
        self.grown = [
            Running(one_more(of[id_], rank), (place,), 0)
            for id_, places in decision.grown.items()
            for rank, place in places.items()
        ]
        self.held: Counter[str] = Counter()
        for each in self.running.values():
            if not each.terminating:
                self.held[each.workload.project] += each.workload.total_milli

    def going(self, reclaim: Reclaim) -> list[str]:
        """The parts of a session that go."""
        if reclaim.ranks:
            return [part_id(reclaim.victim, rank) for rank in reclaim.ranks]
        return [reclaim.victim, *self.running[reclaim.victim].extras]

    def check(self) -> None:
        self._check_log()
        for victim in self.victims:
            self.held[self.running[victim].workload.project] -= self.running[victim].workload.total_milli
        for each in (*self.placed, *self.grown):
            self.held[each.workload.project] += sum(s.milli for place in each.placements for s in place.shares)
        for id_, wait in self.decision.pending_reasons.items():
            where = f"{id_}: {wait.reason}"
            self._check_numbers(wait.reason, self.queued[id_], self.held, where)
            self._check_beside(wait.reason, self.queued[id_], where)
            self._check_places(self.queued[id_], wait.cause, wait.reason, where)

    def _check_log(self) -> None:
        """What a project holds is told when one is reclaimed: what was decided before counts."""
        now = self.held.copy()
        reclaims, placements = list(self.decision.reclaims), list(self.placed)
        grown = {each.workload.id: each for each in self.grown}
        taken: list[tuple[str, int]] = []
        said: set[str] = set()
        for line in self.decision.log:
            if line.startswith(("reclaimed: ", "moved: ")):
                reclaim = reclaims.pop(0)
                assert line.endswith(reclaim.reason)
                victim = self.running[reclaim.victim].workload
                soon = [each.workload for each in placements if each.workload.id in self.snapshot.reservations]
                self._check_numbers(reclaim.reason, victim, now, line, self.ways(victim.project, said, soon))
                taken += [(victim.project, self.running[id_].workload.total_milli) for id_ in self.going(reclaim)]
            else:
                for project, milli in taken:
                    now[project] -= milli
                taken.clear()
            said.update(re.findall(r"^waits: ([\w-]+) of", line))
            if line.startswith(("placed: ", "grown: ")):
                by_rank = re.match(r"grown: ([\w-]+) of \w+ by container (\d+)", line)
                each = grown.pop(part_id(by_rank[1], int(by_rank[2]))) if by_rank else placements.pop(0)
                now[each.workload.project] += sum(s.milli for place in each.placements for s in place.shares)
                self._check_numbers(line, each.workload, now, line)

    def _check_numbers(
        self, text: str, workload: Workload, held: Counter[str], where: str, ways: Iterable[Sequence[Workload]] = ()
    ) -> None:
        name = workload.project
        for amount in _told("holds", rf"\b{name} holds {AMOUNT}", text):
            now = self.fixed_of(name) if "by work that cannot be reclaimed" in text else held[name]
            assert amount == _number(now), f"{name} holds {_number(now)}: {where}"
        for amount in _told(" gets ", rf"\b{name} holds .* and gets {AMOUNT} more", text):
            fixed_only = "by work that cannot be reclaimed" in text
            gets = {_number(_gets(name, each, fixed_only=fixed_only)) for each in ways or (self.about,)}
            assert text.startswith(("placed: ", "grown: ")) or amount in gets, where
        line = self.limits.get(name) if "larger limit" in text else self.quotas.get(name, 0)
        for amount in _told("quota", rf"(?:quota of|\(quota) {AMOUNT}", text):
            assert amount == _number(self.quotas.get(name, 0)), where
        for amount in _told("limit", rf"limit of {AMOUNT}", text):
            assert amount == _number(self.limits[name] or 0), where
        for amount in _told("may hold", rf"may hold {AMOUNT}", text):
            assert amount == _number(line or 0), where
        for amount in _told("beyond", rf"{AMOUNT} of them beyond", text):
            assert amount == _number(held[name] - self.quotas.get(name, 0)), where
        for amount in re.findall(rf"(?:and|no node has|times) {AMOUNT}(?: more)? (?:are asked|free|are not)", text):
            assert amount in (_number(workload.total_milli), _number(workload.gpu_milli)), where

    def _check_beside(self, text: str, workload: Workload, where: str) -> None:
        """CPU and memory, as things stand when the decision is done."""
        name = workload.project
        fixed_only = "by work that cannot be reclaimed" in text
        for item, unit in UNITS.items():
            if unit.rstrip("s?") not in text:
                continue
            number = r"([\d.]+) " + unit
            runs = [
                each.workload for each in (*self.running.values(), *self.placed, *self.grown) if not each.terminating
            ]
            stay = [each for each in runs if each.id not in self.victims and not (fixed_only and each.preemptible)]
            held = sum(each.amount(item) for each in stay if each.project == name)
            for amount in _told("holds", rf"\b{name} holds {number}", text):
                assert amount == _plain(item, held), f"{name} holds {held}: {where}"
            bounds = next((each.bounds(item) for each in self.snapshot.projects if each.name == name), None)
            for amount in _told("quota", rf"of its quota of {number}", text):
                assert bounds is not None, where
                assert amount == _plain(item, bounds.quota), where
            for amount in _told("limit", rf"of its limit of {number}", text):
                assert bounds is not None, where
                assert amount == _plain(item, bounds.limit or 0), where
            for amount in re.findall(rf"and {number} (?:more )?are asked", text):
                assert amount == _plain(item, workload.amount(item)), where

    def _check_places(self, workload: Workload, cause: Cause, text: str, where: str) -> None:
        kept = self.decision.reservations
        if cause in (Cause.NO_ROOM, Cause.FAIR_SHARE) or text.startswith("no node has"):
            assert self.cluster.find(workload) is None, f"it fits: {where}"
        for amount, name in _told("largest", rf"largest free piece is {AMOUNT} on ([\w-]+)", text):
            piece = self.piece(name, workload)
            assert amount == _number(piece), f"{piece} on {name}: {where}"
            assert float(amount) * 1000 < workload.gpu_milli or workload.replicas > 1 or "which has" in text, where
        if "every GPU" in text:
            is_kept = "or kept for a session" in text
            assert is_kept != ("every GPU" in self.unreserved.largest_piece(workload)), where
        self._check_service(workload, text, where)
        for names in _told("kept for it", r"room on ([\w, -]+?)(?: and \d+ more)? is kept for it", text):
            nodes = {place.node for place in kept[workload.id]}
            assert set(re.split(", | and ", names)) <= nodes, where
        for holder, amount in _told("free is kept", rf"free is kept for ([\w-]+) of \w+ with {AMOUNT}", text):
            assert amount == _number(self.asks(holder)), where
        for count, amount in _told("free is kept", rf"free is kept for (\d+) others with {AMOUNT}", text):
            assert int(count) == len(kept), where
            assert amount == _number(sum(map(self.asks, kept))), where
        for held, more, amount, holder in _told(
            " keeps ",
            rf"holds {AMOUNT}(?: and gets {AMOUNT} more)? of .* keeps {AMOUNT} for ([\w-]+) of {workload.project},",
            text,
        ):
            taken = sum(round(1000 * float(each or 0)) for each in (held, more, amount))
            line = self.limits if "of its limit" in text else self.quotas
            quota = line.get(workload.project) or 0
            assert holder in self.decision.pending_reasons, where
            assert holder != workload.id, where
            assert self.queued[holder].project == workload.project, where
            assert round(1000 * float(amount)) <= self.asks(holder), f"no more is kept than is asked for: {where}"
            assert taken <= quota < taken + workload.total_milli, f"it is kept of what is left, and in the way: {where}"
        for names, together, limit in _told(
            "projects of", rf"the projects of (\w+) have, or are about to, {AMOUNT} of the {AMOUNT}", text
        ):
            domain = next(each for each in self.snapshot.domains if each.name == names)
            members = [each.name for each in self.snapshot.projects if each.domain == names]
            have = sum(self.held[name] + _gets(name, self.about, fixed_only=False) for name in members)
            assert (together, limit) == (_number(have), _number(domain.limit_milli or 0)), f"{have}: {where}"
            assert have + workload.total_milli > (domain.limit_milli or 0), where
        if cause is Cause.RECLAIMING:
            nodes = {place.node for place in kept[workload.id]}
            stopped = text.partition(" still being stopped")[0]
            for id_ in re.findall(r"([\w-]+) of \w+(?:,| is| are| and)", stopped):
                assert any(self.is_going(part) for part in self.running if part.partition("/")[0] == id_), where

    def _check_service(self, workload: Workload, text: str, where: str) -> None:
        """What is free on nodes out of service, and that quotas are more than what is in service."""
        closed = {
            node.name
            for node in self.snapshot.nodes
            if not (node.open or node.unhealthy or {*workload.storages} & {*node.missing_storages})
            and node.protocol >= workload.protocol
        }
        told = _told("out of service", rf"free on nodes out of service: {AMOUNT} \(([^)]*)\)", text)
        for amount, names in told:
            named = set(re.split(", | and ", re.sub(r" and \d+ more", "", names)))
            assert named <= {name for name in closed if self.left_on(name, workload)}, where
            if workload.groups is None:
                assert amount == _number(sum(self.left_on(name, workload) for name in closed)), where
        if "no node has" in text and workload.gpu_milli and workload.groups is None:
            assert bool(told) == any(self.left_on(name, workload) for name in closed), where
        open_gpus = sum(gpu.capacity_milli for node in self.snapshot.nodes if node.open for gpu in node.gpus)
        numbers = rf"quotas come to {AMOUNT} and nodes in service have {AMOUNT}: other projects hold {AMOUNT} within"
        for quotas, most, others in _told("quotas come", numbers, text):
            known = {name: milli for name, milli in self.held.items() if name != workload.project}
            assert quotas == _number(sum(self.quotas.values())), where
            assert most == _number(open_gpus), where
            assert others == _number(sum(known.values())), where
            assert sum(self.quotas.values()) > open_gpus, where
            self._check_guarantees(where)
            assert self.held[workload.project] + workload.total_milli <= self.quotas[workload.project], where
            assert sum(self.held.values()) + workload.total_milli > open_gpus, where

    def _check_guarantees(self, where: str) -> None:
        """Nobody has more than is guaranteed: the own quota, or what projects of a domain are together."""
        sharing = {each.name: each.quota_milli for each in self.snapshot.domains if each.quota_milli}
        members = {each.name: each.domain for each in self.snapshot.projects if each.domain in sharing}
        assert all(milli <= self.quotas.get(name, 0) for name, milli in self.held.items() if name not in members), where
        for domain, quota in sharing.items():
            of_domain = [name for name, own in members.items() if own == domain]
            given = max(quota, sum(self.quotas[name] for name in of_domain))
            assert sum(self.held.get(name, 0) for name in of_domain) <= given, where

    def lost(self) -> list[Workload]:
        """Those whose reservation went to others: they were about to have them until then."""
        gone = self.snapshot.reservations.keys() & self.queued.keys() - self.decision.reservations.keys()
        return [self.queued[id_] for id_ in sorted(gone - self.decision.placements.keys())]

    def is_going(self, part: str) -> bool:
        return part in self.victims or self.running[part].terminating

    def asks(self, id_: str) -> int:
        """What a workload that waits asks for, or one that is moved has."""
        return (self.queued[id_] if id_ in self.queued else self.running[id_].workload).total_milli

    def fixed_of(self, name: str) -> int:
        """What a project holds when the decision is done by work that cannot be reclaimed."""
        runs = [each.workload for each in self.running.values() if not each.terminating]
        return sum(
            each.total_milli
            for each in (*runs, *(each.workload for each in (*self.placed, *self.grown)))
            if each.project == name and not each.preemptible
        )

    def ways(self, name: str, said: Collection[str], soon: Sequence[Workload]) -> list[Sequence[Workload]]:
        """Who may have been about to start when a line of the log was written.

        Those of whom one was written before are; of those who are told of later, who are placed `soon` and who lost
        their places some were.
        """
        settled = [each for each in self.about if each.id in said]
        others = [each for each in (*self.about, *soon, *self.lost()) if each.id not in said and each.project == name]
        counts = range(len(others) + 1)
        return [[*settled, *some] for count in counts for some in combinations(others, count)]

    @cached_property
    def about(self) -> list[Workload]:
        """Those who are about to start when the decision is done, as they will be on their places."""
        known = {id_: each.workload for id_, each in self.running.items()} | self.queued
        own = [taking(known[id_], places) for id_, places in self.decision.reservations.items()]
        waits = self.decision.pending_reasons
        return [each for each in own if each.id not in waits or waits[each.id].cause is Cause.RECLAIMING]

    def everything(self) -> Iterator[tuple[Workload, Sequence[Placement]]]:
        """Return who has places: what runs, what is placed, and whom places are kept for."""
        yield from self.those_who_run()
        moved = {id_: each.workload for id_, each in self.running.items()}
        yield from (({**moved, **self.queued}[id_], places) for id_, places in self.decision.reservations.items())

    def those_who_run(self) -> Iterator[tuple[Workload, Sequence[Placement]]]:
        """Return who has places and does not wait: what runs, and what is placed."""
        yield from ((each.workload, each.placements) for each in (*self.running.values(), *self.placed, *self.grown))

    @cached_property
    def unreserved(self) -> ClusterState:
        """What would be free when the decision is done if nothing were kept."""
        cluster = ClusterState(self.snapshot.nodes)
        for workload, places in self.those_who_run():
            cluster.allocate(places, workload)
        return cluster

    @cached_property
    def cluster(self) -> ClusterState:
        """What is free when the decision is done."""
        cluster = ClusterState(self.snapshot.nodes)
        for workload, places in self.everything():
            cluster.allocate(places, workload)
        return cluster

    def left_on(self, name: str, workload: Workload) -> int:
        """What is free on a node of what the workload may have some of: of slices those that are large enough."""
        return sum(self.free[gpu.uuid] for gpu in self.gpus[name] if not gpu.slice or _may_have(workload, gpu))

    def piece(self, name: str, workload: Workload) -> int:
        """What is free on a node for one container: whole GPUs and the most that is left of a shared one, or a slice.

        A slice is told also where it is too small; what asks for a whole GPU has none.
        """
        left = [self.free[gpu.uuid] for gpu in self.gpus[name] if not gpu.slice]
        slices = [self.free[gpu.uuid] for gpu in self.gpus[name] if gpu.slice and workload.gpu_milli < 1000]
        whole = 1000 * left.count(1000) + max([part for part in left if part < 1000], default=0)
        return max([whole, *slices])

    @cached_property
    def gpus(self) -> dict[str, tuple[GpuState, ...]]:
        """The GPUs of each node, and their slices."""
        return {node.name: node.gpus for node in self.snapshot.nodes}

    @cached_property
    def free(self) -> dict[str, int]:
        """What is free of each GPU, and of each slice, which has one container or none."""
        used: Counter[str] = Counter()
        for _, places in self.everything():
            for share in (share for place in places for share in place.shares):
                used[share.uuid] += share.milli
        left = {gpu: gpu.capacity_milli - used[gpu.uuid] for node in self.snapshot.nodes for gpu in node.gpus}
        return {gpu.uuid: 0 if gpu.slice and used[gpu.uuid] else max(0, milli) for gpu, milli in left.items()}


def _told(word: str, pattern: str, text: str) -> list[Any]:
    """What a text tells in this way: a look for a word of it spares most looks for the rest."""
    return re.findall(pattern, text) if word in text else []


def _gets(name: str, about: Iterable[Workload], *, fixed_only: bool) -> int:
    """What a project is about to have of these."""
    return sum(each.total_milli for each in about if each.project == name and not (fixed_only and each.preemptible))


def _may_have(workload: Workload, gpu: GpuState) -> bool:
    return workload.gpu_milli < 1000 and gpu.capacity_milli >= workload.gpu_milli


def _number(milli: int) -> str:
    return gpus(milli).split()[0]


def _plain(item: Resource, amount: int) -> str:
    return f"{amount / 1000:g}" if item is Resource.CPU else str(amount)
