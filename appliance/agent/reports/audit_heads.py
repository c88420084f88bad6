"""Heads of the site's audit log that this node has been told: a second place, which the master cannot write.

A log that ends before one of them, or has another line there, is not the one that this node has seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from common import files
from common.audit_protocol import AuditHead, AuditHeads
from common.messages import Report

log = structlog.get_logger()

FILE = "audit-heads.json"
MOST = 500
"""So many are kept: one an hour of the last day, one a day before that, and all behind which the log went back."""
HOUR, DAY = 3600, 24 * 3600


class SeenHead(Report):
    """A head and when it was told, in seconds since 1970; `end` says that it was the last before the log went back."""

    head: AuditHead
    at: int = Field(ge=0)
    end: bool = False


_FILE = TypeAdapter(list[SeenHead])


class AuditHeadKeeper:
    """Keeps heads in memory, and in a folder, so that the next agent knows them, too."""

    def __init__(self, folder: Path) -> None:
        """Read what the agent before has kept."""
        self._path = folder / FILE
        self._kept = _read(self._path)
        self._news = asyncio.Event()

    def note(self, told: str) -> None:
        """Take note of what the control API says: `SEQ:CODE`; nothing else counts."""
        seq, _, mac = told.partition(":")
        try:
            head = AuditHead.model_validate({"seq": seq, "mac": mac}, strict=False)
        except ValidationError:
            return
        last = self._kept[-1] if self._kept else None
        if last and last.head == head:
            return
        if last and head.seq <= last.head.seq:
            log.warning("the audit log has gone back", line=head.seq, seen=last.head.seq)
            # one that goes to and fro, as by two who tell of it, counts once
            is_new = all(last.head.seq > one.head.seq for one in self._kept if one.end)
            self._kept[-1] = last.model_copy(update={"end": last.end or is_new})
        self._kept = thinned([*self._kept, SeenHead(head=head, at=int(time.time()))])
        self._news.set()

    def heads(self) -> AuditHeads:
        """Return what is kept, oldest first."""
        return AuditHeads(heads=[seen.head for seen in self._kept])

    async def run(self) -> None:
        """Write what is new for ever; heartbeats never wait for the disk."""
        while True:
            await self._news.wait()
            self._news.clear()
            content = _FILE.dump_json(self._kept)
            try:
                await asyncio.to_thread(files.write, self._path, content, 0o600)
            except OSError as error:
                log.warning("heads of the audit log cannot be kept", path=str(self._path), reason=str(error))
            await asyncio.sleep(1)


def thinned(heads: Sequence[SeenHead]) -> list[SeenHead]:
    """Return heads without those that the next one of the same hour or, a day later, of the same day goes on from."""
    newest = heads[-1].at
    kept = [
        one for one, following in pairwise(heads) if one.end or _period(one.at, newest) != _period(following.at, newest)
    ] + [heads[-1]]
    while len(kept) > MOST:
        kept.remove(next((one for one in kept[:-1] if not one.end), kept[1]))
    return kept


def _period(at: int, newest: int) -> tuple[int, int]:
    length = HOUR if newest - at < DAY else DAY
    return length, at // length


def _read(path: Path) -> list[SeenHead]:
    try:
        return _FILE.validate_json(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("heads of the audit log cannot be read", path=str(path), reason=str(error))
        return []
