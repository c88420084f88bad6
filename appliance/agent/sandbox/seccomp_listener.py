"""The listener to the sandboxes of this node's containers: each denied system call is noted, then answered.

The kernel holds a call that a sandbox denies until it is answered, and fails it with ENOSYS once nobody listens. So a
call is never let through, whatever becomes of this agent. One thread does it all, and none of the agent's other work
waits for it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from appliance.agent.fd_store import FdStore
from appliance.agent.sandbox import seccomp_notify
from appliance.agent.sandbox.audited_filter import AuditedFilter
from appliance.agent.sandbox.budget import Budget
from appliance.agent.sandbox.confinement import Confinement, rule_for
from appliance.agent.sandbox.denied_calls import DeniedCalls, SeenCall
from appliance.agent.sandbox.seccomp_notify import Call
from common import syscalls
from common.denied_call_protocol import DeniedCall

log = structlog.get_logger()

KILLED = "killed"
_HELLO_S = 2.0
_HELLO_BYTES = 1 << 18
_PAUSE_S = 0.1


class SeccompListener:
    """Answers every denied call of the node's containers; `take` and `tell` are for whoever reports them."""

    def __init__(self, path: Path, store: FdStore | None = None) -> None:
        """Prepare to listen at a socket; `start` does. Filters are kept in `store` while the agent is restarted."""
        self._path = path
        self._store = store or FdStore()
        self._denied = DeniedCalls()
        self._lock = threading.Lock()
        self._filters: dict[int, AuditedFilter] = {}
        self._budgets: dict[str, Budget] = {}
        self._resting: dict[int, float] = {}
        self._poll = select.epoll()
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="sandboxes", daemon=True)

    def start(self) -> None:
        """Listen, also to what was kept; raises OSError where the socket cannot be made."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self._path))
        self._path.chmod(0o600)
        self._socket.listen(128)
        self._poll.register(self._socket, select.EPOLLIN)
        self._poll.register(self._ending, select.EPOLLIN)
        for name, descriptors in self._store.kept.items():
            self._take_over(name, descriptors)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; what sandboxes deny waits for the next agent, or ends with ENOSYS where nothing is kept."""
        if self._thread.is_alive():
            os.write(self._end, b"x")
            self._thread.join()
            self._socket.close()
        for source in self._filters.values():
            source.close()
        self._filters.clear()
        self._poll.close()
        os.close(self._ending)
        os.close(self._end)

    def reports(self) -> int:
        """Return how many reports it takes to tell all that the control API has not been told by now."""
        with self._lock:
            return self._denied.reports

    def take(self) -> list[DeniedCall]:
        """Return what the control API has not been told."""
        with self._lock:
            return self._denied.untold()

    def tell(self, denied_calls: Sequence[DeniedCall]) -> None:
        """Note that the control API has these, and forget what it needs no more of containers that have ended."""
        with self._lock:
            self._denied.tell(denied_calls)
            self._denied.forget_all_but({source.confinement.id for source in self._filters.values()})

    def _run(self) -> None:
        while True:
            for descriptor, event in self._poll.poll(_PAUSE_S if self._resting else None):
                if descriptor == self._ending:
                    return
                try:
                    if descriptor == self._socket.fileno():
                        self._welcome()
                    elif source := self._filters.get(descriptor):
                        self._attend(source, event)
                except Exception as error:
                    # whatever it was: without this thread no denied call would be answered any more
                    log.exception("a denied system call is not noted", reason=str(error))
                    if source := self._filters.get(descriptor):
                        self._close(source)
            self._wake()

    def _welcome(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(_HELLO_S)
            descriptors: list[int] = []
            try:
                state = _hello(connection, descriptors)
                confinement = Confinement.model_validate_json(state["metadata"])
                descriptor = descriptors[state["fds"].index("seccompFd")]
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                log.warning("a sandbox cannot be listened to", reason=str(error))
                # a filter whose descriptor stays open has a listener, and its processes would wait for ever
                for opened in descriptors:
                    os.close(opened)
                return
        for opened in descriptors:
            if opened != descriptor:
                os.close(opened)
        try:
            source = AuditedFilter.new(descriptor, confinement)
        except OSError:
            os.close(descriptor)
            raise
        self._store.keep(source.name, source.descriptors)
        self._attach(source)

    def _take_over(self, name: str, descriptors: Sequence[int]) -> None:
        try:
            self._attach(AuditedFilter.kept(name, descriptors))
        except (OSError, ValueError) as error:
            log.info("a sandbox is not listened to any more", name=name, reason=str(error))
            for descriptor in descriptors:
                os.close(descriptor)
            self._store.forget(name)

    def _attach(self, source: AuditedFilter) -> None:
        with self._lock:
            self._filters[source.descriptor] = source
        self._budgets.setdefault(source.confinement.id, Budget(time.monotonic()))
        self._poll.register(source.descriptor, select.EPOLLIN)

    def _attend(self, source: AuditedFilter, event: int) -> None:
        if not event & select.EPOLLIN:
            # every process that the filter was for has ended
            self._close(source)
            return
        budget, now = self._budgets[source.confinement.id], time.monotonic()
        if budget.is_spent(now):
            self._poll.unregister(source.descriptor)
            self._resting[source.descriptor] = now + _PAUSE_S
            return
        call = source.receive()
        if call is None:
            return
        name = syscalls.name_of(call.architecture, call.number)
        rule = rule_for(source.confinement.sandbox.rules, name, call.arguments)
        process, pid, leader = _process(call.thread)
        killed = rule.ends and _kill(source.descriptor, call, leader)
        seen = SeenCall(
            source.confinement.id,
            source.confinement.session_id,
            name,
            process,
            pid,
            KILLED if killed else rule.errno,
            datetime.now(UTC),
        )
        with self._lock:
            self._denied.note(seen)
        source.refuse(call, getattr(errno, rule.errno))
        budget.spend()

    def _wake(self) -> None:
        now = time.monotonic()
        for descriptor in [descriptor for descriptor, until in self._resting.items() if until <= now]:
            del self._resting[descriptor]
            self._poll.register(descriptor, select.EPOLLIN)

    def _close(self, source: AuditedFilter) -> None:
        identity = source.confinement.id
        with self._lock:
            del self._filters[source.descriptor]
        if not any(other.confinement.id == identity for other in self._filters.values()):
            del self._budgets[identity]
        if self._resting.pop(source.descriptor, None) is None:
            # systemd may have a copy: to close ours does not end the watch
            self._poll.unregister(source.descriptor)
        source.close()
        self._store.forget(source.name)


def _hello(connection: socket.socket, descriptors: list[int]) -> dict[str, Any]:
    """Return the container's state that its runtime sends, and add the descriptors that come with it.

    Raises OSError, and ValueError where the word ends in the middle.
    """
    data, received, _, _ = socket.recv_fds(connection, _HELLO_BYTES, 8)
    descriptors += received
    while True:
        with contextlib.suppress(json.JSONDecodeError, UnicodeDecodeError):
            state: dict[str, Any] = json.loads(data)
            return state
        more = connection.recv(_HELLO_BYTES)
        if not more or len(data) > _HELLO_BYTES:
            raise ValueError("the runtime's word ends in the middle")
        data += more


def _process(thread: int) -> tuple[str, int, int]:
    """Return the name of a thread's process, its id in its container, and its id on this node; empty where it ended."""
    try:
        leader = int(_status(thread)["Tgid"])
        status = _status(leader)
        name = "".join(sign if sign.isprintable() else "?" for sign in status["Name"])
        return name, int(status["NSpid"].split()[-1]), leader
    except (OSError, KeyError, ValueError):
        return "", 0, 0


def _status(thread: int) -> dict[str, str]:
    lines = Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _kill(descriptor: int, call: Call, leader: int) -> bool:
    """Kill the process of a call that still waits; return whether that was done."""
    if not leader:
        return False
    try:
        process = os.pidfd_open(leader)
    except OSError:
        return False
    try:
        # who waits for an answer still has its number, and so the descriptor is of no other process
        if not seccomp_notify.is_waiting(descriptor, call):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(process)
