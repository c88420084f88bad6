"""Heartbeats as they come in: kept in memory, handed over in batches, late and repeated ones left out."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import structlog

from common.errors import ConflictError
from common.protocol import Heartbeat

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
"""So long after an agent was heard of which another one had taken the place, its node says so."""


@dataclass(frozen=True)
class HeardHeartbeat:
    """A heartbeat and when it came; `news` says whether it, or one left out since, says more than that it lives.

    `clock_offset_s` is how far the agent's clock was ahead of ours, `clock_skew_s` how far it is known to be wrong.
    `api_clock` says that all other agents' clocks are as wrong, so that it is ours. `contested` says that another agent
    was just heard that reports as the same node. `protocol` is what the agent speaks.
    """

    heartbeat: Heartbeat
    received_at: datetime
    news: bool = True
    clock_offset_s: float = 0.0
    clock_skew_s: int = 0
    api_clock: bool = False
    contested: bool = False
    protocol: int = 0


@dataclass
class _Agent:
    """What is known of an agent; `sequence` is the number of its last heartbeat, which may repeat the `latest`."""

    latest: HeardHeartbeat
    sequence: int
    finished_boots: deque[str] = field(default_factory=lambda: deque(maxlen=FINISHED_BOOTS))
    contested_at: datetime | None = None
    times_wrong: int = 0


class Heartbeats:
    """The last heartbeat of every agent, and those that the database does not know yet."""

    def __init__(self, clock_offset_s: float = 5.0) -> None:
        """Start with nothing heard; a clock that is further off than so many seconds is wrong."""
        self._clock_bound_s = clock_offset_s
        self._agents: dict[str, _Agent] = {}
        self._fresh: dict[str, HeardHeartbeat] = {}
        self._judged_at = datetime.min.replace(tzinfo=UTC)
        self._ours = False
        self.news = asyncio.Event()
        """Set when a heartbeat says more than that its agent is alive."""

    def receive(
        self, heartbeat: Heartbeat, received_at: datetime, clock_offset_s: float = 0.0, protocol: int = 0
    ) -> bool:
        """Take a heartbeat; returns False for one that is older than what we know.

        Raises ConflictError for a run of the agent that another one has followed: it lives, and has to begin anew.
        """
        agent = self._agents.get(heartbeat.name)
        if agent is None:
            report = HeardHeartbeat(heartbeat, received_at, clock_offset_s=clock_offset_s, protocol=protocol)
            self._agents[heartbeat.name] = _Agent(report, heartbeat.sequence)
            self._keep(report)
            return True
        known = agent.latest.heartbeat
        if heartbeat.boot in agent.finished_boots:
            agent.contested_at = received_at
            raise ConflictError(
                f"another agent reports as {heartbeat.name}",
                where="boot",
                hint="stop one of the two; the other one begins a new boot",
            )
        if heartbeat.boot == known.boot and heartbeat.sequence <= agent.sequence:
            return False
        if heartbeat.boot != known.boot:
            agent.finished_boots.append(known.boot)
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
        contested = agent.contested_at is not None and received_at - agent.contested_at < CONTESTED_FOR
        api_clock = bool(skew_s) and self._is_ours(received_at)
        same = (before, agent.latest.api_clock, agent.latest.contested)
        news = news or (skew_s, api_clock, contested) != same
        agent.latest = HeardHeartbeat(heartbeat, received_at, news, offset_s, skew_s, api_clock, contested, protocol)

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


def _content(heartbeat: Heartbeat) -> tuple[object, ...]:
    containers = {
        container.id: (
            *(container.status, container.exit_code, container.error, container.ports),
            *(container.gpus, container.enforcement, container.warning),
        )
        for container in heartbeat.containers
    }
    return heartbeat.boot, heartbeat.address, heartbeat.port, heartbeat.node_info, containers
