"""Rules of health: what a report of checks changes, what closes a node, who acknowledges and clears."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.clock import now
from api.resources.health import repository
from api.resources.health.bounds import Hour, kept
from api.resources.health.schemas import AcknowledgementRequest, CheckChangeView, CheckView
from api.resources.health.writer import Writer, is_news
from api.settings import Settings
from api.tables.health import HealthCheck, Source
from api.tables.nodes import Node
from common.check_protocol import CheckReport
from common.checks import CheckState
from common.errors import InputError, NotFoundError
from common.repair_protocol import SILENT_S, NodeChecks
from common.sentence import Sentence

NAMED = 3
"""So many failing checks of a node are named."""
LONGEST = timedelta(days=90)
"""So long a check may be acknowledged: who knows of it for longer has forgotten it."""

CONTROLLER = "controller"
SILENT = timedelta(seconds=SILENT_S)
HEARD = timedelta(seconds=30)
"""So often it is written down that the controller was heard of."""

agents = repository.agents
Agent = repository.Agent
silent_s = repository.silent_s
mark = repository.mark
due_alerts = repository.due
last_well = repository.last_well
told_alert = repository.told


async def record(
    db: AsyncSession, settings: Settings, reports: Mapping[UUID, Sequence[CheckReport]], nodes: Mapping[UUID, Node]
) -> None:
    """Write what agents say of their nodes; one that says nothing, as one that has just started, changes nothing."""
    told = {id_: checks for id_, reported in reports.items() if (checks := kept(reported))}
    if not told:
        return
    known: defaultdict[UUID, list[HealthCheck]] = defaultdict(list)
    for row in await repository.of_nodes(db, told.keys(), Source.AGENT):
        if row.node_id is not None:
            known[row.node_id].append(row)
    for id_, checks in told.items():
        hour = Hour(db, nodes[id_].name)
        await Writer(db, settings, nodes[id_], hour=hour).write(known[id_], checks, Source.AGENT)
    await close(db, settings, [nodes[id_] for id_ in told])


async def record_nodes(
    db: AsyncSession, settings: Settings, found: Sequence[tuple[Agent, Sequence[CheckReport]]]
) -> None:
    """Write what the leader found of nodes by their agents."""
    known: defaultdict[UUID | None, list[HealthCheck]] = defaultdict(list)
    for row in await repository.of_nodes(db, [node.id for node, _ in found], Source.LEADER):
        known[row.node_id].append(row)
    for node, checks in found:
        await Writer(db, settings, node).write(known[node.id], checks, Source.LEADER)


async def of_site(db: AsyncSession) -> Sequence[HealthCheck]:
    """Return what the leader found of the site itself."""
    return await repository.of_source(db, Source.LEADER)


async def is_news_of_site(db: AsyncSession, checks: Sequence[CheckReport], at: datetime) -> bool:
    """Return whether what the leader found of the site itself, or how late the controller is, is to be written."""
    known = await repository.of_source(db, Source.LEADER, Source.CONTROLLER)
    own = (row for row in known if row.source is Source.LEADER)
    return is_news(own, checks) or any(_late_since(row, at) for row in known)


async def record_site(db: AsyncSession, settings: Settings, checks: Sequence[CheckReport], at: datetime) -> None:
    """Write what the leader found of the site itself.

    The controller's own check fails where nothing was heard of it for long; before it reports it has none.
    """
    writer = Writer(db, settings, None)
    await writer.write(await of_site(db), checks, Source.LEADER)
    for row in await repository.of_source(db, Source.CONTROLLER):
        if since := _late_since(row, at):
            report = _controller(CheckState.FAIL, f"silent since {since:%Y-%m-%d %H:%M:%S} UTC", since=since)
            await writer.write([row], [report], Source.CONTROLLER)


def _late_since(row: HealthCheck, at: datetime) -> datetime | None:
    """Return when the controller was heard of, where that was too long ago; `row` may be any check."""
    is_own = row.source is Source.CONTROLLER and row.check_id == CONTROLLER
    return row.occurred_at if is_own and row.occurred_at and at - row.occurred_at > SILENT else None


async def record_controller(db: AsyncSession, settings: Settings, told: Sequence[NodeChecks]) -> None:
    """Write what the controller found: of the site, with that it reports, and of all nodes without an agent."""
    known: defaultdict[str, list[HealthCheck]] = defaultdict(list)
    for row in await repository.of_source(db, Source.CONTROLLER):
        known[row.node_name].append(row)
    found = {node.node: node.checks for node in told}
    found[""] = [*found.get("", ()), _controller(CheckState.OK, "it reports", since=now())]
    for name in known.keys() | found.keys():
        await Writer(db, settings, None, name).write(known[name], found.get(name, ()), Source.CONTROLLER)


async def controller_heard(db: AsyncSession) -> datetime | None:
    """Return when the controller was last heard of; None before it has told of its nodes."""
    return await repository.heard(db, CONTROLLER)


async def note_controller(db: AsyncSession) -> None:
    """Note that the controller was heard of, once in a while."""
    await repository.note_heard(db, CONTROLLER, now(), HEARD)


async def record_repairs(db: AsyncSession, settings: Settings, told: Sequence[NodeChecks]) -> None:
    """Write which automatic repairs do not help, of all nodes and, without a name, of the site."""
    known: defaultdict[str, list[HealthCheck]] = defaultdict(list)
    for row in await repository.of_source(db, Source.REPAIRS):
        known[row.node_name].append(row)
    found = {node.node: node.checks for node in told}
    for name in known.keys() | found.keys():
        await Writer(db, settings, None, name).write(known[name], found.get(name, ()), Source.REPAIRS)
    await db.flush()


async def close(db: AsyncSession, settings: Settings, nodes: Collection[Node]) -> None:
    """Say on nodes which failing checks let them take nothing new."""
    await db.flush()
    failing: defaultdict[UUID | None, list[str]] = defaultdict(list)
    for row in await repository.of_nodes(db, [node.id for node in nodes]):
        if _closes(row, settings):
            failing[row.node_id].append(f"{row.check_id} {row.thing}".strip())
    for node in nodes:
        names = failing[node.id]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        if (unhealthy := ", ".join(names[:NAMED]) + more) != node.unhealthy:
            node.unhealthy = unhealthy
    await db.flush()


async def show(
    db: AsyncSession, settings: Settings, node: str | None, states: Collection[CheckState]
) -> list[CheckView]:
    """Return checks: of a node, in some states; those of the site itself first."""
    return [_view(row, name, settings) for row, name in await repository.listed(db, node, states)]


async def worst(
    db: AsyncSession, settings: Settings, node: str | None, states: Sequence[CheckState], limit: int
) -> list[CheckView]:
    """Return so many checks by state in the order of `states`: of a node, of all."""
    return [_view(row, name, settings) for row, name in await repository.worst(db, node, states, limit)]


async def one(db: AsyncSession, settings: Settings, id_: UUID) -> CheckView:
    """Return one check; raises NotFoundError."""
    row, name = await _get(db, id_, locked=False)
    return _view(row, name, settings)


async def changes(
    db: AsyncSession, node: str | None, check: str | None, before: int | None, limit: int
) -> list[CheckChangeView]:
    """Return how checks have changed, the newest first."""
    return [
        CheckChangeView.model_validate(
            {
                **{name: getattr(row, name) for name in CheckChangeView.model_fields if name != "check"},
                "check": row.check_id,
            }
        )
        for row in await repository.changes(db, node, check, before, limit)
    ]


async def acknowledge(
    db: AsyncSession, settings: Settings, id_: UUID, request: AcknowledgementRequest, caller: Identity
) -> CheckView:
    """Tell nobody of a check until a moment; raises NotFoundError, and InputError for one that is over or far away."""
    if request.until <= now():
        raise InputError(Sentence("that moment is over"), where="until", hint=Sentence("write a later one"))
    if request.until > now() + LONGEST:
        reason = Sentence("nobody is told of a check for {days} days at most", days=LONGEST.days)
        hint = Sentence("write an earlier one, and acknowledge it again when that is over")
        raise InputError(reason, where="until", hint=hint)
    row, name = await _get(db, id_)
    row.acknowledged_until, row.acknowledged_by, row.comment = request.until, caller.name, request.comment
    return _view(row, name, settings)


async def end_acknowledgement(db: AsyncSession, settings: Settings, id_: UUID) -> CheckView:
    """Tell of a check again."""
    row, name = await _get(db, id_)
    row.acknowledged_until, row.acknowledged_by, row.comment = None, "", ""
    return _view(row, name, settings)


async def clear(db: AsyncSession, settings: Settings, id_: UUID, node: Node | None, caller: Identity) -> CheckView:
    """Let a check count as well until what it tells of occurs anew; raises NotFoundError."""
    row, name = await _get(db, id_)
    if row.state is not CheckState.OK:
        row.cleared_at = row.occurred_at or now()
        evidence = f"cleared by {caller.name}; it was: {row.evidence}"
        await Writer(db, settings, node, row.node_name).change(row, CheckState.OK, evidence)
    if node is not None:
        await close(db, settings, [node])
    return _view(row, name, settings)


async def node_of(db: AsyncSession, id_: UUID) -> UUID | None:
    """Return the node of a check; raises NotFoundError."""
    return (await _get(db, id_))[0].node_id


async def nodes_without_agent(db: AsyncSession) -> set[str]:
    """Return the names of the nodes without an agent that the controller looks at."""
    return {row.node_name for row in await repository.of_source(db, Source.CONTROLLER)} - {""}


async def not_well(db: AsyncSession) -> Sequence[Row[HealthCheck, str]]:
    """Return all checks that are not well with the names of their nodes, `""` for the site."""
    return await repository.listed(db, None, [state for state in CheckState if state is not CheckState.OK])


async def forget(db: AsyncSession, before: datetime, limit: int) -> int:
    """Delete how checks have changed before a moment, a part of it; returns how much."""
    return await repository.forget(db, before, limit)


async def _get(db: AsyncSession, id_: UUID, *, locked: bool = True) -> tuple[HealthCheck, str]:
    found = await repository.by_id(db, id_, locked=locked)
    if found is None:
        raise NotFoundError(
            Sentence("there is no check {id_}", id_=id_), where="check_id", hint=Sentence("list the checks")
        )
    return found[0], found[1]


def _controller(state: CheckState, evidence: str, since: datetime) -> CheckReport:
    return CheckReport(
        id=CONTROLLER,
        name="controller reports",
        state=state,
        evidence=evidence,
        hint="" if state is CheckState.OK else "look at `systemctl status penstock-controller` on the reservoir node",
        since=since,
    )


def _closes(row: HealthCheck, settings: Settings) -> bool:
    return row.node_id is not None and row.state is CheckState.FAIL and row.check_id in settings.health_closes


def _view(row: HealthCheck, node: str, settings: Settings) -> CheckView:
    same = {name: getattr(row, name) for name in CheckView.model_fields if name not in ("node", "check", "closes")}
    if row.acknowledged_until and row.acknowledged_until <= now():
        same |= {"acknowledged_until": None, "acknowledged_by": "", "comment": ""}
    return CheckView(**same, node=node, check=row.check_id, closes=_closes(row, settings))
