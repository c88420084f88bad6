"""Rules of repairs: the controller does what was ordered, and tells of what was ordered on itself, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC
from http import HTTPStatus
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from api.clock import now
from api.resources import controller_orders
from api.resources.audit import lines
from api.resources.audit import service as audit
from api.resources.health import service as health
from api.resources.nodes import service as nodes
from api.resources.repairs import automatic, repository
from api.resources.repairs.automatic import Failing, Past
from api.resources.repairs.schemas import (
    ControllerView,
    RepairRequest,
    RepairRunDetailView,
    RepairRunView,
    RepairView,
    RungView,
)
from api.tables.repairs import RepairRun
from common import repairs
from common.errors import ConflictError, NotFoundError
from common.repair_protocol import AWAY_S, CommandReport, ControllerReport, RepairOrder, RunReport
from common.repairs import OPEN, REPAIRS, RUNGS, RunState
from common.sentence import Sentence, Several

NAMED = 20
"""So many nodes are named to choose of."""


def every() -> list[RepairView]:
    """Return all repairs."""
    return [
        RepairView(
            id=repair.id,
            symptoms=list(repair.symptoms),
            looks_for=repair.looks_for,
            rungs=[RungView(rung=rung, does=RUNGS[rung]) for rung in repair.rungs],
        )
        for repair in REPAIRS.values()
    ]


async def controller(db: AsyncSession, *, taken: bool) -> ControllerView:
    """Return when the controller was last heard of; `taken` says whether it takes orders."""
    heard_at = await health.controller_heard(db)
    away = heard_at is None or (now() - heard_at).total_seconds() > AWAY_S
    return ControllerView(takes_orders=taken, heard_at=heard_at, away=away)


async def order(
    db: AsyncSession,
    identity: str,
    request: RepairRequest,
    user: str,
    *,
    taken: bool,
    workers: Collection[str] = (),
) -> RepairRun:
    """Order a run; `taken` says whether the controller of the site takes orders, `workers` are those of its list.

    Raises NotFoundError for a repair or a node that there is not, ConflictError where nobody would do it or one is
    under way.
    """
    repair = repairs.find(identity)
    if not taken:
        raise ConflictError(
            Sentence("the controller of this site takes no orders"),
            where="repair",
            hint=Sentence(
                "run `penstock repair run` on the reservoir node; or set `repair.controller: true` and deploy"
            ),
        )
    if request.limit is not None:
        await _check_node(db, request.limit, workers)
    if (waiting := await controller_orders.waiting_alone(db, RepairRun)) is not None:
        raise ConflictError(
            Sentence("a run of {name} waits already", name=waiting.name),
            where="repair",
            hint=Sentence("wait until it has ended"),
        )
    run = RepairRun(
        name=repair.id,
        node=request.limit,
        dry_run=request.dry_run,
        agreed=request.agreed,
        user_name=user,
        status=RunState.ORDERED,
    )
    db.add(run)
    await db.flush()
    return run


async def cancel(db: AsyncSession, identity: UUID, user: str) -> RepairRunDetailView:
    """Call back a run that waits; raises NotFoundError, and ConflictError for one that does not wait any more."""
    return view(await controller_orders.cancel(db, RepairRun, identity, user))


async def runs(db: AsyncSession) -> list[RepairRunView]:
    """Return the last runs, the latest first."""
    return [RepairRunView.model_validate(_plain(run)) for run in await controller_orders.latest(db, RepairRun)]


async def past(db: AsyncSession, failing: Iterable[Failing]) -> list[Past]:
    """Return the last runs but rehearsals that are over, and all that count for checks that fail."""
    runs = {run.id: run for run in await controller_orders.latest(db, RepairRun)}
    for each in failing:
        ordered = await repository.ordered_by(db, automatic.name(each.check), each.node, each.well_at)
        runs |= {run.id: run for run in ordered}
    return [
        Past(run.name, run.node, RunState(run.status), run.created_at, run.user_name, run.finished_at)
        for run in runs.values()
        if not run.dry_run or RunState(run.status) in OPEN
    ]


async def show(db: AsyncSession, identity: UUID) -> RepairRunDetailView:
    """Return one run with its steps; raises NotFoundError."""
    return view(await controller_orders.get(db, RepairRun, identity))


def view(run: RepairRun) -> RepairRunDetailView:
    """Return a run as it is shown."""
    return RepairRunDetailView.model_validate(_plain(run))


async def take(db: AsyncSession, report: ControllerReport) -> RepairOrder | None:
    """Take in what the controller tells of its runs, and return what it is to do next; None: nothing."""
    for told in report.runs:
        await _note(db, told)
    await db.flush()
    run = await controller_orders.hand_out(db, RepairRun) if report.wants else None
    return RepairOrder.model_validate(_plain(run) | {"id": str(run.id)}) if run else None


async def tell(db: AsyncSession, commands: Iterable[CommandReport], *, wanted: bool) -> None:
    """Tell the audit log of what somebody did on the controller as root; `wanted` says whether a log is kept."""
    for told in commands if wanted else ():
        entry = lines.by_itself(
            time=f"{told.began_at.astimezone(UTC):%FT%T.%fZ}",
            user=f"command:{told.by}",
            action=told.command.replace(" ", "_"),
            method="COMMAND",
            object=told.object,
            status=HTTPStatus.OK if told.ok else HTTPStatus.INTERNAL_SERVER_ERROR,
            result="done" if told.ok else "failed",
            reason=told.reason,
            request=told.id,
        )
        await audit.add(db, entry, changes=False)


async def _check_node(db: AsyncSession, name: str, workers: Collection[str]) -> None:
    """Raise NotFoundError for a node that is neither a worker nor one that the controller looks at.

    Before it has told of its nodes it is the one to judge, and so it is where nobody knows of any.
    """
    if await health.controller_heard(db) is None:
        return
    known = {node.name for node in await nodes.every(db)} | await health.nodes_without_agent(db) | {*workers}
    if known and name not in known:
        hint = Sentence("choose of {names}", names=Several(sorted(known)[:NAMED]))
        raise NotFoundError(Sentence("the site has no node {name}", name=name), where="limit", hint=hint)


async def _note(db: AsyncSession, told: RunReport) -> None:
    """Take in one run. What was ordered of it here stays as it was ordered, and what is over stays over."""
    run = await db.get(RepairRun, UUID(told.id))
    if run is None:
        run = RepairRun(
            id=UUID(told.id),
            name=told.repair,
            node=told.limit,
            dry_run=told.dry_run,
            agreed=told.agreed,
            user_name=told.by,
            created_at=told.ordered_at,
            status=RunState.ORDERED,
        )
        db.add(run)
    elif controller_orders.is_settled(run):
        return
    run.status, run.reason, run.finished_at = told.state, told.reason, told.finished_at
    run.record = told.model_dump(mode="json", include={"tried", "sick", "steps"})


def _plain(run: RepairRun) -> dict[str, Any]:
    return controller_orders.told(run) | {
        "repair": run.name,
        "limit": run.node,
        "dry_run": run.dry_run,
        "agreed": run.agreed,
        "tried": run.record.get("tried", []),
        "sick": run.record.get("sick", []),
        "steps": run.record.get("steps", []),
    }
