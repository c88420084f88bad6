"""Reports of what this node has and runs: at every interval, and at once when a container changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Callable

import httpx
import structlog
from pydantic import ValidationError

from appliance.agent.container_runtime import Containers
from appliance.agent.settings import Settings
from appliance.agent.tls import api_client
from common.audit_protocol import AUDIT_HEAD_HEADER
from common.check_protocol import CheckReport
from common.messages import MAX_REASON
from common.protocol import (
    HEARTBEAT_PATH,
    MACHINE_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    TIME_HEADER,
    ContainerState,
    Heartbeat,
    HeartbeatReply,
    NodeInfo,
)

log = structlog.get_logger()

MAX_DELAY_S = 5.0
"""Shorter than the time after which a silent node counts as lost, so that an API that was away hears all in time."""
SOONEST = 0.5
"""The least part of such a delay that is waited."""
STUCK_S = 60.0
"""A report takes less, to an API that does not answer, too."""
_GATHER_S = 0.02
"""Changes that come together, such as a start and its end, go out in one message."""


class HeartbeatReporter:
    """Posts heartbeats for ever; the control API being away changes nothing on the node."""

    def __init__(
        self,
        settings: Settings,
        node_info: Callable[[], NodeInfo],
        supervisor: Containers,
        checks: Callable[[], list[CheckReport]] = list,
        note_audit_head: Callable[[str], object] = str,
        *,
        machine: str = "",
    ) -> None:
        """Prepare for one run of the agent, which gets a `boot` of its own.

        `node_info` tells what the node has now, `checks` how it is. `note_audit_head` gets what an answer says of the
        site's audit log; `machine` is another text on each machine.
        """
        self._settings = settings
        self._node_info = node_info
        self._supervisor = supervisor
        self._checks = checks
        self._note_audit_head = note_audit_head
        self._machine = machine
        self._boot = uuid.uuid4().hex
        self._sequence = 0
        self._interval_s = HeartbeatReply().interval_s
        self._answered = False
        self._due = float("inf")
        self._takes_checks = False
        self._takes_all = True

    def is_stuck(self) -> bool:
        """Return whether reports have stopped: an API that does not answer is no reason, and takes its time."""
        return time.monotonic() > self._due

    async def run(self) -> None:
        """Report for ever."""
        async with api_client(self._settings) as client:
            failures, delay = 0, 0.0
            while True:
                self._supervisor.changed.clear()
                try:
                    delay = await self.report(client)
                except (httpx.HTTPError, ValidationError) as error:
                    failures += 1
                    delay = own_delay_after(failures)
                    if failures == 1:
                        log.warning("the control API does not take heartbeats", url=client.base_url, reason=str(error))
                else:
                    if failures:
                        log.info("the control API takes heartbeats again", after_failures=failures)
                    failures = 0
                self._due = time.monotonic() + delay + STUCK_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._supervisor.changed.wait(), delay)
                    await asyncio.sleep(_GATHER_S)

    async def report(self, client: httpx.AsyncClient) -> float:
        """Report once; return in how many seconds to do so again. Raises HTTPError, and ValidationError of a reply."""
        if not self._answered:
            # a reply that was lost is told anew to a boot that the API does not know; to this one all is as before,
            # or over, if another agent has reported since
            self._boot = uuid.uuid4().hex
        self._sequence += 1
        heartbeat = Heartbeat(
            name=self._settings.name,
            address=self._settings.address,
            port=self._settings.port,
            boot=self._boot,
            sequence=self._sequence,
            node_info=self._node_info(),
            containers=self._supervisor.states(),
            checks=self._checks() if self._takes_checks else [],
        )
        answer = await client.post(
            HEARTBEAT_PATH,
            content=_written(heartbeat if self._takes_all else _as_before_protocols(heartbeat)),
            headers={
                "Content-Type": "application/json",
                TIME_HEADER: f"{time.time():.3f}",
                PROTOCOL_HEADER: str(PROTOCOL),
                MACHINE_HEADER: self._machine,
            },
        )
        if answer.status_code != httpx.codes.NO_CONTENT:
            # one of the release before protocols were told refuses keys that it does not know
            self._takes_checks = PROTOCOL_HEADER in answer.headers
            self._takes_all = self._takes_checks or (
                self._takes_all and answer.status_code != httpx.codes.UNPROCESSABLE_ENTITY
            )
        if answer.status_code == httpx.codes.CONFLICT:
            log.warning("another agent reports as this node", node=self._settings.name, answer=answer.text[:MAX_REASON])
            self._answered = False
            return delay_after(1)
        answer.raise_for_status()
        if head := answer.headers.get(AUDIT_HEAD_HEADER):
            self._note_audit_head(head)
        if answer.status_code == httpx.codes.NO_CONTENT:
            return self._interval_s
        self._interval_s = HeartbeatReply.model_validate_json(answer.content).interval_s
        self._answered = True
        return self._interval_s


def own_delay_after(failures: int) -> float:
    """Return a part of that: agents that all heard nothing would come back at one moment, again and again."""
    return delay_after(failures) * random.uniform(SOONEST, 1)  # noqa: S311 - nobody gains by guessing it


def _as_before_protocols(heartbeat: Heartbeat) -> Heartbeat:
    """Return what the release before protocols were told knows of a heartbeat: it refuses one with other keys."""
    node_info = heartbeat.node_info.model_copy(update={"rdma": False, "no_rdma": "", "hcas": [], "interfaces": []})
    containers = [state.model_copy(update={"nccl": None}) for state in heartbeat.containers]
    return heartbeat.model_copy(update={"node_info": node_info, "containers": containers})


def _written(heartbeat: Heartbeat) -> str:
    """Return a heartbeat as it goes over the line; a state that cannot be written keeps no other from being told."""
    try:
        return heartbeat.written()
    except ValueError:
        told = [_tellable(state) for state in heartbeat.containers]
        return heartbeat.model_copy(update={"containers": told}).written()


def _tellable(state: ContainerState) -> ContainerState:
    try:
        state.written()
    except ValueError as error:
        log.exception("the state of a container cannot be told", id=state.id, reason=str(error))
        kept = state.model_dump(include={"id", "session_id", "status", "exit_code"})
        return ContainerState(**kept, warning="its state cannot be told; see the journal of the agent")
    return state


def delay_after(failures: int) -> float:
    """Return how long to wait after so many failures in a row, in seconds; an API may be away for days."""
    return min(2.0 ** min(failures - 2, 10), MAX_DELAY_S)
