"""Heartbeats as they come in: kept in memory, handed over in batches, late and repeated ones left out."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import structlog

from common.errors import ConflictError
from common.protocol import MACHINE_HEADER, Heartbeat

log = structlog.get_logger()

TIMES_WRONG = 3
"""So many heartbeats in a row show that a clock is wrong."""
FINISHED_BOOTS = 8
"""So many runs of an agent are remembered that others have followed."""
JUDGED_FOR = timedelta(seconds=1)
"""So long it is remembered whose clock is wrong."""
HEARD_FOR = timedelta(minutes=1)
"""An agent that was not heard for so long says nothing of clocks."""
CONTESTED_FOR = timedelta(minutes=1)
"""So long after an agent was heard that was not the node's, its node says so."""
SOONER = 0.1
"""Up to such a part of the interval agents report before it: after ten of them they are spread over all of it."""
HELD_PART = 0.8
"""A node is its machine's for this part of the time after which it is lost: who was changed is back before."""


class Rival(StrEnum):
    """Who reports as a node beside its agent: another agent of its machine, as far as is known, or another machine."""

    AGENT = "agent"
    MACHINE = "machine"


@dataclass(frozen=True)
class Contest:
    """Another one was just heard that reports as the same node, from an address, where that is known."""

    rival: Rival
    address: str = ""


@dataclass(frozen=True)
class Sender:
    """Where a heartbeat comes from: `machine` is another text on each machine, and after each of its starts."""

    machine: str = ""
    address: str = ""


UNTOLD = Sender()


@dataclass(frozen=True)
class HeardHeartbeat:
    """A heartbeat and when it came; `news` says whether it, or one left out since, says more than that it lives.

    `clock_offset_s` is how far the agent's clock was ahead of ours, `clock_skew_s` how far it is known to be wrong.
    `api_clock` says that all other agents' clocks are as wrong, so that it is ours. `contest` is with whom its agent
    contests the node. `protocol` is what the agent speaks, `machine` the start of the machine that it reports from.
    """

    heartbeat: Heartbeat
    received_at: datetime
    news: bool = True
    clock_offset_s: float = 0.0
    clock_skew_s: int = 0
    api_clock: bool = False
    contest: Contest | None = None
    protocol: int = 0
    machine: str = ""


@dataclass
class _Agent:
    """What is known of an agent; `sequence` is the number of its last heartbeat, which may repeat the `latest`."""

    machine: str

    latest: HeardHeartbeat
    sequence: int
    finished_boots: deque[str] = field(default_factory=lambda: deque(maxlen=FINISHED_BOOTS))
    contest: Contest | None = None
    contested_at: datetime | None = None
    times_wrong: int = 0


class Heartbeats:
    """The last heartbeat of every agent, and those that the database does not know yet."""

    def __init__(self, clock_offset_s: float = 5.0, held_s: float = 12.0) -> None:
        """Start with nothing heard; a clock that is further off than so many seconds is wrong.

        A node is of the machine that was heard less than `held_s` ago, and no other takes it.
        """
        self._held = timedelta(seconds=held_s)
        self._clock_bound_s = clock_offset_s
        self._agents: dict[str, _Agent] = {}
        self._machines: Mapping[str, str] = {}
        self._recalled_at = datetime.min.replace(tzinfo=UTC)
        self._fresh: dict[str, HeardHeartbeat] = {}
        self._judged_at = datetime.min.replace(tzinfo=UTC)
        self._ours = False
        self.news = asyncio.Event()
        """Set when a heartbeat says more than that its agent is alive."""
        self.audit_head = ""
        """What agents are told of the audit log with each answer; empty where there is none."""

    def recall(self, machines: Mapping[str, str], at: datetime) -> None:
        """Take from which machines nodes reported before this process began: they are theirs for a while longer."""
        self._machines, self._recalled_at = machines, at

    def receive(
        self,
        heartbeat: Heartbeat,
        received_at: datetime,
        clock_offset_s: float = 0.0,
        protocol: int = 0,
        sender: Sender = UNTOLD,
    ) -> bool:
        """Take a heartbeat; returns False for one that is older than what we know.

        Raises ConflictError for a run of the agent that another one has followed: it lives, and has to begin anew. So
        for another machine's: a cloned disk has the node's certificate, and would take the place again and again.
        """
        agent = self._agents.get(heartbeat.name)
        if agent is None:
            if _is_other(sender, self._machines.get(heartbeat.name, "")):
                self._refuse_while_held(heartbeat.name, self._recalled_at, received_at)
            report = HeardHeartbeat(
                heartbeat, received_at, clock_offset_s=clock_offset_s, protocol=protocol, machine=sender.machine
            )
            self._agents[heartbeat.name] = _Agent(sender.machine, report, heartbeat.sequence)
            self._keep(report)
            return True
        known = agent.latest.heartbeat
        is_other = _is_other(sender, agent.machine)
        if is_other:
            try:
                self._refuse_while_held(heartbeat.name, agent.latest.received_at, received_at)
            except ConflictError:
                agent.contest, agent.contested_at = Contest(Rival.MACHINE, sender.address), received_at
                raise
        if heartbeat.boot in agent.finished_boots:
            agent.contest, agent.contested_at = Contest(Rival.AGENT), received_at
            raise ConflictError(
                f"another agent reports as {heartbeat.name}",
                where="boot",
                hint="stop one of the two; the other one begins a new boot",
            )
        if heartbeat.boot == known.boot and heartbeat.sequence <= agent.sequence:
            return False
        if heartbeat.boot != known.boot:
            agent.finished_boots.append(known.boot)
            if is_other:  # it was started anew, or exchanged, and is refused no more
                agent.contest = None
            agent.machine = sender.machine
        agent.sequence = heartbeat.sequence
        news = _content(heartbeat) != _content(known)
        self._take(agent, heartbeat, received_at, clock_offset_s, protocol, news=news)
        self._keep(agent.latest)
        return True

    def repeat(self, name: str, sequence: int, received_at: datetime, clock_offset_s: float = 0.0) -> bool:
        """Take a heartbeat that is as the last one of its agent, but for its number; returns False for an old one."""
        agent = self._agents.get(name)
        if agent is None or sequence <= agent.sequence:
            return False
        # To copy the heartbeat for its number alone would cost more than all else here.
        agent.sequence = sequence
        self._take(agent, agent.latest.heartbeat, received_at, clock_offset_s, agent.latest.protocol, news=False)
        self._keep(agent.latest)
        return True

    def latest(self, name: str) -> Heartbeat | None:
        """Return the last heartbeat of an agent that this process has heard."""
        agent = self._agents.get(name)
        return agent.latest.heartbeat.model_copy(update={"sequence": agent.sequence}) if agent else None

    def take(self) -> list[HeardHeartbeat]:
        """Return the heartbeats that came since the last call, the newest of each agent."""
        fresh = list(self._fresh.values())
        self._fresh.clear()
        self.news.clear()
        return fresh

    def give_back(self, reports: list[HeardHeartbeat]) -> None:
        """Return heartbeats that could not be written; newer ones win."""
        for report in reports:
            newer = self._fresh.get(report.heartbeat.name)
            self._fresh[report.heartbeat.name] = replace(newer, news=newer.news or report.news) if newer else report

    def _refuse_while_held(self, name: str, held_at: datetime, at: datetime) -> None:
        """Raise ConflictError while a node is that of the machine from which it was known at a moment."""
        if abs(at - held_at) < self._held:
            raise ConflictError(
                f"another machine reports as {name}",
                where=MACHINE_HEADER,
                hint="if the disk of one is a copy of the other's, stop its agent and install it as a node of its own",
            )

    def _take(
        self,
        agent: _Agent,
        heartbeat: Heartbeat,
        received_at: datetime,
        offset_s: float,
        protocol: int,
        *,
        news: bool,
    ) -> None:
        before = agent.latest.clock_skew_s
        skew_s = self._skew(agent, before, offset_s)
        is_contested = agent.contested_at is not None and received_at - agent.contested_at < CONTESTED_FOR
        contest = agent.contest if is_contested else None
        api_clock = bool(skew_s) and self._is_ours(received_at)
        same = (before, agent.latest.api_clock, agent.latest.contest)
        news = news or (skew_s, api_clock, contest) != same
        agent.latest = HeardHeartbeat(
            heartbeat, received_at, news, offset_s, skew_s, api_clock, contest, protocol, agent.machine
        )

    def _skew(self, agent: _Agent, before: int, offset_s: float) -> int:
        """Return how far an agent's clock is wrong; what came late once, for we were busy, does not make it so."""
        if abs(offset_s) <= self._clock_bound_s:
            agent.times_wrong = 0
            return 0
        agent.times_wrong += 1
        if agent.times_wrong < TIMES_WRONG or (before and abs(offset_s - before) <= self._clock_bound_s):
            return before
        return round(offset_s) or (1 if offset_s > 0 else -1)

    def _is_ours(self, at: datetime) -> bool:
        """Return whether the clocks of all agents are off alike: then ours is. It is looked at anew every second."""
        if abs(at - self._judged_at) >= JUDGED_FOR:
            heard = [agent.latest for agent in self._agents.values() if at - agent.latest.received_at < HEARD_FOR]
            skews = [report.clock_skew_s for report in heard]
            was, self._judged_at = self._ours, at
            self._ours = len(skews) > 1 and all(skews) and max(skews) - min(skews) <= self._clock_bound_s
            if self._ours and not was:
                log.error("the clock of the API is wrong", by_s=-skews[0], hint="look at the master's chrony service")
        return self._ours

    def _keep(self, report: HeardHeartbeat) -> None:
        left_out = self._fresh.get(report.heartbeat.name)
        overtaken = left_out is not None and left_out.news and not report.news
        self._fresh[report.heartbeat.name] = replace(report, news=True) if overtaken else report
        if report.news:
            self.news.set()


def interval_of(name: str, interval_s: float) -> float:
    """Return in how many seconds an agent is to report next: by its name a little sooner than `interval_s`.

    Agents that all began at once, as when the power came back, would report at one moment for ever.
    """
    part = zlib.crc32(name.encode()) % 1000 / 1000
    return round(interval_s * (1 - SOONER * part), 3)


def _is_other(sender: Sender, machine: str) -> bool:
    """Return whether a heartbeat comes from another machine than this one, so far as both are known."""
    return bool(sender.machine and machine and sender.machine != machine)


def _content(heartbeat: Heartbeat) -> tuple[object, ...]:
    containers = {
        container.id: (
            *(container.status, container.exit_code, container.error, container.ports),
            *(container.gpus, container.enforcement, container.warning, container.nccl),
        )
        for container in heartbeat.containers
    }
    return heartbeat.boot, heartbeat.address, heartbeat.port, heartbeat.node_info, containers, heartbeat.checks
