"""Long lists that are asked for often: only what has changed is read and written as JSON again.

A statement first says which things a page has, and gives each a version: a text that is another one whenever the thing
is. The JSON text of a thing is kept with its version; a page whose versions are those of the last time is not even put
together. Because versions are read first, a text may be newer than its version, never older: then the next version is
another one, and the thing is read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Response
from sqlalchemy import func
from starlette.requests import HTTPConnection

MAX_BYTES = 64 << 20
"""How many bytes of texts a process keeps."""
PAGE_BYTES = 4 << 20
"""How many bytes of texts a page has; a thing that is longer has a page of its own."""
AT_ONCE = 250
"""So many things are read at once: what they are together is known only then."""

VERSION = version("penstock")
STRING = {"type": "string"}
HEADERS: dict[str, Any] = {
    "X-Next": {"description": "Send it as `after` to get what follows; absent on the last page", "schema": STRING},
    "ETag": {"description": "Changes with the answer", "schema": STRING},
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"headers": HEADERS},
    304: {"description": "As it was: the ETag is that of If-None-Match", "headers": HEADERS},
}

Render = Callable[[Collection[UUID]], Awaitable[Mapping[UUID, bytes]]]
"""Returns the JSON texts of things, but for their ends; what is gone is left out."""


@dataclass(frozen=True)
class Entry:
    """A thing of a page, its version, and the cursor after which a page begins with what follows it.

    `end` is put behind its text. It may change all the time, and does not make it another thing.
    """

    id: UUID
    version: str
    cursor: str
    end: bytes = b""


@dataclass(frozen=True)
class Page:
    """Which things a page may have, in order: as many of them as `PAGE_BYTES` hold. `more` is whether others follow.

    `asked` is all that the texts of its things depend on beside the database, and what makes it another page.
    """

    entries: Sequence[Entry]
    more: bool
    asked: tuple[object, ...] = ()

    @property
    def tag(self) -> str:
        """A text that is another one whenever the page is, but for the ends of its texts."""
        said = [(entry.id.hex, entry.version, entry.cursor) for entry in self.entries]
        described = repr((VERSION, self.asked, self.more, said))
        return sha256(described.encode()).hexdigest()[:32]

    def following(self, count: int) -> str | None:
        """Return the cursor after the first `count` things; None where nothing follows."""
        return self.entries[count - 1].cursor if self.more or count < len(self.entries) else None


class Texts:
    """The JSON texts of this process, those that were kept first are forgotten first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """Start without any."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: dict[UUID, tuple[str, bytes]] = {}

    async def of(self, entries: Sequence[Entry], render: Render) -> dict[UUID, bytes]:
        """Return the texts of things, without those that are gone; `render` makes those that are not known."""
        found: dict[UUID, bytes] = {}
        for entry in entries:
            version, text = self._kept.get(entry.id, (None, b""))
            if entry.version == version:
                found[entry.id] = text
        if len(found) < len(entries):
            made = await render([entry.id for entry in entries if entry.id not in found])
            versions = {entry.id: entry.version for entry in entries}
            for id_, text in made.items():
                self._keep(id_, versions[id_], text)
            found |= made
        return found

    def _keep(self, id_: UUID, version: str, text: bytes) -> None:
        _, before = self._kept.pop(id_, ("", b""))
        self._kept[id_] = version, text
        self._bytes += len(text) - len(before)
        while self._bytes > self._max_bytes:
            _, oldest = self._kept.pop(next(iter(self._kept)))
            self._bytes -= len(oldest)


async def answer(
    page: Page, texts: Texts, render: Render, if_none_match: str | None, page_bytes: int = PAGE_BYTES
) -> Response:
    """Return the page as JSON, or that it is as it was for who has it already."""
    tag, body = page.tag, b""
    held = _held(tag, len(page.entries), if_none_match)
    count = held
    if count is None:
        parts, count = await _texts(page.entries, texts, render, page_bytes)
        body = b"[%b]" % b",".join(parts)
    following = page.following(count)
    headers = {"ETag": f'"{tag}.{count}"', "Cache-Control": "private, no-cache"}
    headers |= {"X-Next": following} if following else {}
    if held is not None:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _held(tag: str, most: int, if_none_match: str | None) -> int | None:
    """Return how many things of a page somebody has who names its ETag, at least one of `most`; None who has none.

    The tag says so itself: how long the texts were is not known before they are made.
    """
    for part in (if_none_match or "").split(","):
        # what stands between may have packed the answer, and then says of the tag that it is a weak one
        named, _, count = part.strip().removeprefix("W/").strip('"').partition(".")
        if named == tag and count.isdecimal() and min(most, 1) <= int(count) <= most:
            return int(count)
    return None


async def _texts(entries: Sequence[Entry], texts: Texts, render: Render, page_bytes: int) -> tuple[list[bytes], int]:
    """Return the texts of the first things, as many as so many bytes hold, and how many things these are."""
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(entries), AT_ONCE):
        part = entries[start : start + AT_ONCE]
        found = await texts.of(part, render)
        for count, entry in enumerate(part, start):
            if entry.id not in found:
                continue
            text = found[entry.id] + entry.end
            size += len(text)
            if parts and size > page_bytes:
                return parts, count
            parts.append(text)
    return parts, len(entries)


def said(*parts: Any) -> Any:
    """Return the expression of a text that says several things."""
    return func.concat(*(word for part in parts for word in (part, " ")))


def server() -> Any:
    """Return what is another text where the same numbers of transactions may come again.

    So it is after the database came back from a copy, or another server took over that lacked the last transactions.
    """
    return func.pg_postmaster_start_time()


async def texts_of(connection: HTTPConnection) -> Texts:
    """Return the texts that the application keeps."""
    texts: Texts = connection.app.state.texts
    return texts


TextsOf = Annotated[Texts, Depends(texts_of)]
