"""Nodes as people see them: plain columns of a few queries, for lists are long and asked for often.

A node is seen every few seconds, and nothing else of it changes for hours: `last_seen` is in no version and in no text
that is kept, it comes with the versions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends
from pydantic_core import to_json
from sqlalchemy import ARRAY, Integer, Select, Text, and_, any_, bindparam, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection

from api.database import among, fingerprint
from api.lists.texts import Entry, Page, said, server
from api.resources.groups import service as groups
from api.resources.nodes.schemas import GpuView, NodeView
from api.resources.sessions import lifecycle
from api.tables.nodes import Gpu, Node, NodeMode, NodeState
from api.tables.sessions import HOLDS, Container, GpuShareRow, Session
from api.tables.written import written
from common.errors import NotFoundError
from common.natural_order import natural
from common.sentence import Sentence

GROUPS_S = 5.0
"""For so long the groups of nodes are remembered: they change seldom, and reading them means to look at every GPU."""

_MADE = {"endpoint", "groups", "gpu_milli", "used_milli", "gpus", "sessions"}
_COLUMNS = [getattr(Node, name) for name in NodeView.model_fields if name not in _MADE]
_GPU = [name for name in GpuView.model_fields if name != "used_milli"]
_GPU_COLUMNS = [getattr(Gpu, name) for name in _GPU]
_VERSION = select(fingerprint(Node.id, Node.revision), *groups.version())
_BEFORE_END = [name for name in NodeView.model_fields if name != "last_seen"]

Row = dict[str, Any]
Groups = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Filters:
    """Which nodes to list; None asks for nothing."""

    state: NodeState | None = None
    mode: NodeMode | None = None
    group: str | None = None
    within: frozenset[str] | None = None
    """Resource groups; only nodes of any of them."""
    word: str | None = None
    """Some letters of the name, small ones."""


class GroupsOfNodes:
    """Remembers the groups of nodes for a moment; one for each process."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._groups: Groups = {}
        self._read_at = float("-inf")
        self._version: tuple[object, ...] | None = None

    async def by_node(self, db: AsyncSession, *, within: frozenset[str] | None = None) -> Groups:
        """Return the groups of every node that is in any. One page is made with the same ones from first to last.

        Who sees only what is `within` some groups sees nothing that was taken from these since, or left them with its
        hardware.
        """
        version = self._version if within is None else tuple((await db.execute(_VERSION)).one())
        if version != self._version or self._read_at + GROUPS_S < time.monotonic():
            self._groups, self._read_at, self._version = await groups.by_node(db), time.monotonic(), version
        return self._groups


async def groups_of(connection: HTTPConnection) -> GroupsOfNodes:
    """Return the groups that the application remembers."""
    remembered: GroupsOfNodes = connection.app.state.groups_of_nodes
    return remembered


Remembered = Annotated[GroupsOfNodes, Depends(groups_of)]


async def page(db: AsyncSession, filters: Filters, by_node: Groups, *, limit: int, after: str | None = None) -> Page:
    """Return which nodes a page has, by name."""
    given = _given(filters, by_node) | ({"after": after} if after is not None else {})
    statement = _statement(frozenset(given))
    rows = (await db.execute(statement, given | {"limit": limit + 1})).all()
    entries = [
        Entry(id_, f"{version}{by_node.get(name, ())}", name, b',"last_seen":%b}' % to_json(last_seen))
        for id_, name, last_seen, version in rows[:limit]
    ]
    return Page(entries, len(rows) > limit, (limit,))


async def texts(db: AsyncSession, ids: Collection[UUID], by_node: Groups) -> dict[UUID, bytes]:
    """Return nodes as the JSON of a `NodeView`, those that are there, up to `last_seen`, which is the end."""
    found = await rows(db, ids, by_node)
    return {row["id"]: to_json({name: row[name] for name in _BEFORE_END})[:-1] for row in found}


async def rows(db: AsyncSession, ids: Collection[UUID], by_node: Groups) -> list[Row]:
    """Return nodes by name, as people count, with all that a `NodeView` has, those that are there."""
    found = [row._asdict() for row in await db.execute(select(*_COLUMNS).where(among(Node.id, ids)))]
    return await _complete(db, sorted(found, key=lambda row: natural(row["name"])), by_node)


async def one(db: AsyncSession, name: str) -> Row:
    """Return one node; raises NotFoundError."""
    row = (await db.execute(select(*_COLUMNS).where(Node.name == name))).one_or_none()
    if row is None:
        raise NotFoundError(
            Sentence("there is no node {name}", name=name), where="name", hint=Sentence("list the nodes")
        )
    (found,) = await _complete(db, [dict(row._mapping)], await groups.by_node(db))
    return found


@cache
def _statement(asked: frozenset[str]) -> Select[Any]:
    """Return the statement for what is asked: the names of its parameters, but for the limit."""
    conditions = {
        "after": Node.name > bindparam("after"),
        "state": Node.state == bindparam("state"),
        "mode": Node.mode == bindparam("mode"),
        "names": Node.name == any_(bindparam("names", type_=ARRAY(Text))),
        "word": func.strpos(Node.name, bindparam("word")) > 0,
    }
    described = func.row(*(column for column in _COLUMNS if column is not Node.last_seen))
    columns = (Node.id, Node.name, Node.last_seen, func.md5(cast(described, Text)).label("described"))
    query = select(*columns).where(*(condition for name, condition in conditions.items() if name in asked))
    return _with_versions(query.order_by(Node.name).limit(bindparam("limit", type_=Integer)))


def _with_versions(query: Select[Any]) -> Select[Any]:
    """Give each node a text that is another one whenever it is shown another way, but for its groups."""
    page = query.cte("page")
    within = select(page.c.id)
    gpus = select(Gpu.node_id, said(*written(Gpu)).label("said")).where(Gpu.node_id.in_(within))
    held = and_(GpuShareRow.session_id == Container.session_id, GpuShareRow.rank == Container.rank)
    places = select(Container.node_id, said(*written(Container), *written(GpuShareRow)).label("said"))
    places = places.join(Session, Session.id == Container.session_id).outerjoin(GpuShareRow, held)
    places = places.where(Container.node_id.in_(within), HOLDS)
    of_gpus = gpus.group_by(Gpu.node_id).subquery("of_gpus")
    of_places = places.group_by(Container.node_id).subquery("of_places")
    joined = page.outerjoin(of_gpus, of_gpus.c.node_id == page.c.id)
    joined = joined.outerjoin(of_places, of_places.c.node_id == page.c.id)
    version = said(server(), page.c.described, of_gpus.c.said, of_places.c.said).label("version")
    return select(page.c.id, page.c.name, page.c.last_seen, version).select_from(joined).order_by(page.c.name)


def _given(filters: Filters, by_node: Groups) -> dict[str, Any]:
    """Return what is asked for, by the names of parameters."""
    asked = {"state": filters.state, "mode": filters.mode, "names": _names(filters, by_node), "word": filters.word}
    return {name: value for name, value in asked.items() if value is not None}


def _names(filters: Filters, by_node: Mapping[str, Collection[str]]) -> list[str] | None:
    """Return the names of the nodes whose groups are asked for; None where no group is."""
    if filters.group is None and filters.within is None:
        return None
    wanted = {filters.group} if filters.group else filters.within or set()
    within = filters.within if filters.within is not None else wanted
    return [name for name, own in by_node.items() if not (wanted.isdisjoint(own) or within.isdisjoint(own))]


async def _complete(db: AsyncSession, rows: list[Row], by_node: Mapping[str, Sequence[str]]) -> list[Row]:
    ids = [row["id"] for row in rows]
    gpus = await _gpus(db, ids)
    live = await lifecycle.count_by_node(db, ids)
    for row in rows:
        used = sum(gpu["used_milli"] for gpu in gpus[row["id"]])
        row |= {
            "endpoint": f"tcp://{row['address']}:{row['port']}",
            "groups": list(by_node.get(row["name"], ())),
            "gpu_milli": sum(gpu["capacity_milli"] for gpu in gpus[row["id"]]),
            "used_milli": used,
            "gpus": gpus[row["id"]],
            "sessions": live.get(row["id"], 0),
        }
    return rows


async def _gpus(db: AsyncSession, ids: Collection[UUID]) -> defaultdict[UUID, list[Row]]:
    used = await lifecycle.used_by_gpu(db, ids)
    gpus: defaultdict[UUID, list[Row]] = defaultdict(list)
    query = select(Gpu.node_id, *_GPU_COLUMNS).where(among(Gpu.node_id, ids)).order_by(Gpu.node_id, Gpu.index)
    for node_id, *values in await db.execute(query):
        gpu = dict(zip(_GPU, values, strict=True))
        gpus[node_id].append(gpu | {"used_milli": used.get((node_id, gpu["uuid"]), 0)})
    return gpus
