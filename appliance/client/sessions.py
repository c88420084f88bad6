"""Sessions, and the presets and sandboxes for them."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator, Sequence
from typing import Unpack

from appliance.client.requests import (
    BatchRequest,
    DryRunRequest,
    Extension,
    PresetChange,
    PresetRequest,
    SandboxChange,
    SandboxRequest,
    SessionChange,
    SessionRequest,
)
from appliance.client.transport import Query, Resource
from appliance.client.views import (
    DeniedCalls,
    Done,
    DryRun,
    Metrics,
    Preset,
    Sandbox,
    Session,
    SessionEntry,
    SessionEvent,
)
from appliance.client.words import State


class Sessions(Resource):
    """Containers with shares of GPUs; a name is one of a project."""

    def list(
        self,
        project: str | None = None,
        *,
        user: str | None = None,
        node: str | None = None,
        state: Sequence[State] | None = None,
        all_: bool = False,
    ) -> builtins.list[SessionEntry]:
        """Return sessions, oldest first: of a project, or of all that the caller may see.

        Of a `user`, on a `node`, in any `state` that is named; `all_` has those that were taken off the list too.
        """
        query: Query = {"project": project, "user": user, "node": node, "state": state, "all": all_}
        return [session for page in self._api.pages(SessionEntry, "/sessions", query=query) for session in page]

    def submit(self, **request: Unpack[SessionRequest]) -> Session:
        """Put a session into the queue."""
        return self._api.call(Session, "POST", "/sessions", body=request)

    def submit_batch(self, **request: Unpack[BatchRequest]) -> builtins.list[SessionEntry]:
        """Put equal sessions into the queue, all or none: `count` 3 makes NAME-1, NAME-2 and NAME-3."""
        return self._api.call(list[SessionEntry], "POST", "/sessions/batch", body=request)

    def check(self, **request: Unpack[DryRunRequest]) -> DryRun:
        """Return what would become of a session, or of `count` equal ones; nothing is submitted."""
        return self._api.call(DryRun, "POST", "/sessions/check", body=request)

    def get(self, name: str, *, project: str) -> Session:
        """Return the live session of a name, else the newest that has ended, or the session of an id."""
        return self._api.call(Session, "GET", "/sessions/{name}", {"name": name}, query={"project": project})

    def update(self, name: str, /, *, project: str, **changes: Unpack[SessionChange]) -> Session:
        """Change the priority of a session that waits, or the share of the GPUs that a running one has a part of."""
        query = {"project": project}
        return self._api.call(Session, "PATCH", "/sessions/{name}", {"name": name}, query=query, body=changes)

    def restart(self, name: str, *, project: str) -> Session:
        """End the containers of a session, which waits for new ones under its name and id."""
        return self._api.call(Session, "POST", "/sessions/{name}/restart", {"name": name}, query={"project": project})

    def extend(self, name: str, /, *, project: str, **request: Unpack[Extension]) -> Session:
        """Put off the end of a session that has a time limit."""
        query = {"project": project}
        return self._api.call(Session, "POST", "/sessions/{name}/extend", {"name": name}, query=query, body=request)

    def delete(self, name: str, *, project: str) -> Session:
        """End a session, or take an ended one off the lists; one that is ending or has ended is returned as it is."""
        return self._api.call(Session, "DELETE", "/sessions/{name}", {"name": name}, query={"project": project})

    def log(
        self, name: str, *, project: str, rank: int | None = None, follow: bool = False, tail: int | None = None
    ) -> Iterator[bytes]:
        """Yield the log of a session's container, by default the first, as it comes; `follow` goes on to its end."""
        query: Query = {"project": project, "rank": rank, "follow": follow, "tail": tail}
        return self._api.stream("/sessions/{name}/logs", {"name": name}, query)

    def metrics(
        self,
        name: str,
        *,
        project: str,
        since: str | None = None,
        until: str | None = None,
        points: int | None = None,
    ) -> Metrics:
        """Return what a session used of its GPUs, by default in its last hour; at most so many `points` a series."""
        query: Query = {"project": project, "since": since, "until": until, "points": points}
        return self._api.call(Metrics, "GET", "/sessions/{name}/metrics", {"name": name}, query=query)

    def events(self, name: str, *, project: str, limit: int | None = None) -> builtins.list[SessionEvent]:
        """Return the states that a session came to, and why, the newest first."""
        path, query = "/sessions/{name}/events", {"project": project, "limit": limit}
        return self._api.call(list[SessionEvent], "GET", path, {"name": name}, query=query)

    def denied_calls(self, name: str, *, project: str) -> DeniedCalls:
        """Return which system calls the sandbox of a session denied."""
        path, query = "/sessions/{name}/denied-calls", {"project": project}
        return self._api.call(DeniedCalls, "GET", path, {"name": name}, query=query)

    def exec(
        self,
        name: str,
        command: Sequence[str],
        *,
        project: str,
        container: int = 0,
        tty: bool = False,
        rows: int = 24,
        cols: int = 80,
    ) -> str:
        """Return the address of the WebSocket that runs a command in a container of a session.

        Its frames are those of agents; without a terminal what the command writes as errors comes apart.
        """
        size: Query = {"tty": tty, "rows": rows, "cols": cols, "apart": not tty}
        query: Query = {"project": project, "command": json.dumps(command), "container": container, **size}
        return self._api.websocket("/sessions/{name}/exec", {"name": name}, query)


class Presets(Resource):
    """Amounts for sessions by name."""

    def list(self) -> builtins.list[Preset]:
        """Return the presets, the smallest first."""
        return self._api.call(list[Preset], "GET", "/presets")

    def get(self, name: str) -> Preset:
        """Return one preset."""
        return self._api.call(Preset, "GET", "/presets/{name}", {"name": name})

    def create(self, **request: Unpack[PresetRequest]) -> Preset:
        """Create a preset."""
        return self._api.call(Preset, "POST", "/presets", body=request)

    def update(self, name: str, /, **changes: Unpack[PresetChange]) -> Preset:
        """Change a preset; what is left out stays."""
        return self._api.call(Preset, "PATCH", "/presets/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a preset; sessions that were submitted with it go on."""
        return self._api.call(Done, "DELETE", "/presets/{name}", {"name": name})


class Sandboxes(Resource):
    """Rules on what programs of sessions may ask of the kernel."""

    def list(self) -> builtins.list[Sandbox]:
        """Return the sandboxes by name."""
        return self._api.call(list[Sandbox], "GET", "/sandboxes")

    def get(self, name: str) -> Sandbox:
        """Return one sandbox."""
        return self._api.call(Sandbox, "GET", "/sandboxes/{name}", {"name": name})

    def create(self, **request: Unpack[SandboxRequest]) -> Sandbox:
        """Create a sandbox."""
        return self._api.call(Sandbox, "POST", "/sandboxes", body=request)

    def update(self, name: str, /, **changes: Unpack[SandboxChange]) -> Sandbox:
        """Change a sandbox; it holds for what is submitted from now on."""
        return self._api.call(Sandbox, "PATCH", "/sandboxes/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a sandbox; sessions that were submitted with it keep its rules."""
        return self._api.call(Done, "DELETE", "/sandboxes/{name}", {"name": name})
