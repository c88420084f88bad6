"""Objects of a Kubernetes cluster, with what its documentation says of lists and watches.

A list comes in pages of one moment; its tokens expire, with a 410 that brings another one. A watch tells what changed
for whoever has a selector, ends with 410 where its version is too old, and sends bookmarks to whoever wants them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""


class RefusedError(Exception):
    """An answer that is no success: a Status of Kubernetes."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Say which."""
        super().__init__(message)
        self.code = code
        self.headers = dict(headers or {})
        body = {"kind": "Status", "apiVersion": "v1", "metadata": dict(metadata or {}), "status": "Failure"}
        self.body = body | {"code": code, "reason": reason, "message": message, "details": dict(details or {})}


@dataclass(frozen=True)
class Change:
    """What happened to an object; `before` None means that it is new, `after` None that it is gone."""

    version: int
    kind: str
    before: Object | None
    after: Object | None

    def event(self, query: httpx.QueryParams) -> tuple[str, Object] | None:
        """Return what a watch tells of it; who has a selector is told of what no longer meets it as of what is gone."""
        was = self.before is not None and _meets(self.before, query)
        meets = self.after is not None and _meets(self.after, query)
        if meets:
            assert self.after is not None
            return ("MODIFIED" if was else "ADDED", self.after)
        if was:
            assert self.before is not None
            metadata = self.before["metadata"] | {"resourceVersion": str(self.version)}
            return "DELETED", (self.after or self.before) | {"metadata": metadata}
        return None


@dataclass(frozen=True)
class Rest:
    """What is left of a list, as it was when it began."""

    version: int
    kind: str
    selector: str
    items: list[tuple[Key, Object]]


class Store:
    """Objects by kind, their history, lists and watches."""

    def __init__(self) -> None:
        """Start empty."""
        self.away = False
        self._objects: dict[str, dict[Key, Object]] = {"nodes": {}, "pods": {}}
        self._changes: list[Change] = []
        self._version = 1
        self._oldest = 0
        self._restored = 0
        self._rests: dict[str, Rest] = {}
        self._watchers: set[asyncio.Queue[str]] = set()

    def compact(self) -> None:
        """Forget all changes: who watches or pages from before must list again."""
        self._changes, self._oldest = [], self._version
        self._wake()

    def restore(self) -> None:
        """Come back from a copy: watches end, and versions that were told are of a time that has never been."""
        self._changes, self._oldest, self._version = [], 0, 1
        self._restored += 1
        self._wake()

    def bookmark(self) -> None:
        """Tell whoever wants bookmarks how far it is."""
        self._wake("BOOKMARK")

    def _list(self, kind: str, query: httpx.QueryParams) -> httpx.Response:
        selector = query.get("labelSelector", "")
        if token := query.get("continue"):
            rest = self._rests.pop(token, None)
            if rest is None or (rest.kind, rest.selector) != (kind, selector):
                raise RefusedError(400, "BadRequest", "continue key is not valid")
            if rest.version < self._oldest:
                later = [item for item in sorted(self._objects[kind].items()) if item[0] >= rest.items[0][0]]
                other = self._keep(Rest(self._version, kind, selector, copy.deepcopy(later)))
                words = "The provided continue parameter is too old to display a consistent list result."
                raise RefusedError(410, "Expired", words, metadata={"continue": other})
        else:
            rest = Rest(self._version, kind, selector, copy.deepcopy(sorted(self._objects[kind].items())))
        items = [(key, item) for key, item in rest.items if _meets(item, query)]
        limit = int(query.get("limit", 0)) or len(items)
        metadata = {"resourceVersion": str(rest.version)}
        if items[limit:]:
            metadata["continue"] = self._keep(Rest(rest.version, kind, selector, items[limit:]))
        # the items of a list do not say what they are; its kind does
        page = [{name: part for name, part in item.items() if name != "kind"} for _, item in items[:limit]]
        body = {"kind": f"{kind[:-1].capitalize()}List", "apiVersion": "v1", "metadata": metadata, "items": page}
        return httpx.Response(200, json=body)

    def _watch(self, kind: str, query: httpx.QueryParams) -> httpx.Response:
        return httpx.Response(200, content=self._events(kind, query))

    async def _events(self, kind: str, query: httpx.QueryParams) -> AsyncIterator[bytes]:
        since = int(query["resourceVersion"])
        until = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._watchers.add(queue)
        restored = self._restored
        wants_bookmarks = query.get("allowWatchBookmarks") == "true"
        try:
            if since > self._version:
                words = f"Too large resource version: {since}, current: {self._version}"
                yield _line("ERROR", RefusedError(504, "Timeout", words).body)
                return
            while (left := until - asyncio.get_running_loop().time()) > 0 and not self.away:
                if restored != self._restored:
                    return
                if since < self._oldest:
                    gone = RefusedError(410, "Expired", f"too old resource version: {since} ({self._oldest})")
                    yield _line("ERROR", gone.body)
                    return
                for change in list(self._changes):
                    if change.version > since and change.kind == kind and (told := change.event(query)):
                        yield _line(*told)
                since = self._version
                try:
                    word = await asyncio.wait_for(queue.get(), left)
                except TimeoutError:
                    word = "BOOKMARK"
                if word and wants_bookmarks and restored == self._restored and since >= self._oldest:
                    metadata = {"resourceVersion": str(since), "creationTimestamp": None}
                    empty = {"kind": kind[:-1].capitalize(), "apiVersion": "v1", "metadata": metadata, "spec": {}}
                    yield _line("BOOKMARK", empty | {"status": {}})
        finally:
            self._watchers.discard(queue)

    def _add(self, kind: str, item: Object) -> None:
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": moment()}
        self._write(kind, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)

    def _change(self, kind: str, key: Key, change: Callable[[Object], None]) -> None:
        item = copy.deepcopy(self._objects[kind][key])
        change(item)
        self._write(kind, key, item)

    def _drop(self, kind: str, key: Key) -> None:
        self._version += 1
        self._changes.append(Change(self._version, kind, self._objects[kind].pop(key), None))
        self._wake()

    def _write(self, kind: str, key: Key, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        before = self._objects[kind].get(key)
        self._objects[kind][key] = item
        self._changes.append(Change(self._version, kind, before, copy.deepcopy(item)))
        self._wake()

    def _keep(self, rest: Rest) -> str:
        token = uuid.uuid4().hex
        self._rests[token] = rest
        return token

    def _wake(self, word: str = "") -> None:
        for queue in self._watchers:
            queue.put_nowait(word)


def moment() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _meets(item: Object, query: httpx.QueryParams) -> bool:
    wanted = [part.split("=") for part in query.get("labelSelector", "").split(",") if part]
    return all((item["metadata"].get("labels") or {}).get(name) == value for name, value in wanted)


def _line(event: str, item: Object) -> bytes:
    return json.dumps({"type": event, "object": item}).encode() + b"\n"
