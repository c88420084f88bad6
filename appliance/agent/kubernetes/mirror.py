"""A copy of all objects of one kind of a cluster, kept by watching it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httpx
import structlog

from appliance.agent.kubernetes.capacity import Object
from appliance.agent.kubernetes.client import Client, ClusterAwayError, GoneError
from common.errors import PenstockError

log = structlog.get_logger()

T = TypeVar("T")

WATCH_S = 300
"""A watch ends after so long and begins anew, so that a connection that died unnoticed does so no longer."""
_SLACK_S = 30
_PAUSE_S = 1.0


class Mirror(Generic[T]):
    """What is kept of each object, by the uid of the object."""

    def __init__(
        self,
        client: Client,
        path: str,
        keep: Callable[[Object], T | None],
        changed: Callable[[], None],
        *,
        selector: str = "",
        gone: Callable[[T], None] = lambda _: None,
    ) -> None:
        """Prepare; `keep` returns what is kept of an object, None for nothing. `changed` is told of every change.

        `gone` is told what was kept last of an object that is not there any more, before that is forgotten.

        Only objects whose labels meet the `selector` count.
        """
        self.items: dict[str, T] = {}
        self._client = client
        self._path = path
        self._keep = keep
        self._changed = changed
        self._gone = gone
        self._which = {"labelSelector": selector} if selector else {}
        self._version = ""

    async def load(self) -> None:
        """Copy all objects; raises PenstockError."""
        objects, self._version = await self._client.every(self._path, **self._which)
        for uid in self.items.keys() - {item["metadata"]["uid"] for item in objects}:
            self._forget(uid)
        for item in objects:
            self._take(item)
        self._changed()

    def take(self, item: Object) -> None:
        """Look at an object anew that the cluster returned, whatever is kept of it."""
        self._take(item)
        self._changed()

    def put(self, item: Object) -> None:
        """Take up an object that the cluster returned; what the watch told already is newer."""
        if item["metadata"]["uid"] not in self.items:
            self._take(item)
            self._changed()

    def drop(self, uid: str) -> None:
        """Forget an object that is gone."""
        if self.items.pop(uid, None) is not None:
            self._changed()

    async def run(self) -> None:
        """Follow all changes, for ever; a cluster that is away is waited out."""
        failed = False
        while True:
            try:
                if not self._version:
                    await self.load()
                await self._watch()
                failed = False
            except GoneError:
                self._version = ""
            except PenstockError as error:
                log.warning("the cluster cannot be watched; pods go on", path=self._path, reason=str(error))
                # a cluster that was restored may never again take the version that it told before
                self._version = "" if failed else self._version
                failed = True
                await asyncio.sleep(_PAUSE_S)
            except Exception as error:
                # whatever it was: without this task no pod's end would be noticed any more
                log.exception("what the cluster says cannot be followed", path=self._path, reason=str(error))
                self._version = ""
                await asyncio.sleep(_PAUSE_S)

    async def _watch(self) -> None:
        query: dict[str, str | int] = {
            **self._which,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_S,
            "resourceVersion": self._version,
        }
        async with self._client.stream(self._path, query, silence_s=WATCH_S + _SLACK_S) as response:
            async for line in response.aiter_lines():
                if line:
                    self._follow(json.loads(line))

    def _follow(self, event: dict[str, Any]) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == httpx.codes.GONE:
                raise GoneError(str(item.get("message")))
            raise ClusterAwayError(f"the watch ended: {item.get('message')}")
        self._version = item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        self._take(item)
        if kind == "DELETED":
            self._forget(item["metadata"]["uid"])
        self._changed()

    def _forget(self, uid: str) -> None:
        if (kept := self.items.pop(uid, None)) is not None:
            self._gone(kept)

    def _take(self, item: Object) -> None:
        uid = item["metadata"]["uid"]
        try:
            kept = self._keep(item)
        except (PenstockError, AttributeError, KeyError, TypeError, ValueError) as error:
            # the others count all the same
            name = item["metadata"].get("name")
            log.warning("an object of the cluster cannot be read", path=self._path, name=name, reason=repr(error))
            kept = None
        if kept is None:
            self.items.pop(uid, None)
        else:
            self.items[uid] = kept
