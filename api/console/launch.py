"""The page on which people launch sessions, with what they may use to choose from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from secrets import token_hex
from typing import Annotated, Any

from fastapi import Form, Query, Request, Response
from pydantic import Field, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.console import forms, launch_again, launch_choices, launch_form, pages, shares
from api.console.launch_form import LaunchForm, Line, Offered
from api.console.routes import Router
from api.control.manager import WakeAfterwards
from api.endpoints.access import Caller, action
from api.endpoints.room import RoomForSessions
from api.endpoints.sessions import DryRunsOf, SubmissionContextOf
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.lists import session_views
from api.resources.sessions import service as sessions
from api.resources.sessions import submission
from api.resources.sessions.schemas import MAX_BATCH, BatchRequest, DryRunRequest, SessionRequest
from api.resources.sessions.submission import SubmissionContext
from api.tables.sessions import MAX_CONTAINERS, Kind
from common.errors import ConflictError, InputError

VOLUMES_SHOWN, VOLUMES_FOLDED = 2, 6
"""So many rows for volumes are shown, and so many more are folded up."""

router = Router(prefix="/launch")


class LaunchQuery(Offered):
    """What a form shows from the start: of a template, of a session, or of what was chosen of it before."""

    template: Annotated[str, Field(max_length=64)] = ""
    like: Line = ""
    project: Line = ""
    kind: Kind | None = None


@router.get("")
@action(Action.SESSION_SUBMIT)
async def show_launch(
    request: Request,
    caller: Caller,
    db: Reading,
    context: SubmissionContextOf,
    asked: Annotated[LaunchQuery, Query()],
) -> Response:
    """Show the form with what the caller may use, filled in as a template or another session says, if one is named."""
    values = await launch_choices.offered(db, caller, context)
    filled = await _filled(db, asked, caller, context, values)
    named = next((project for project in values["projects"] if project.name == filled["project"]), None)
    project = named or next(iter(values["projects"]), None)
    kind = filled["kind"] or next(iter(Kind))
    offered = await shares.offered(db, project, kind, caller, context) if project else []
    filled["share"] = bisect_right(offered, filled["gpu_milli"])
    if asked.like:
        launch_again.note_share(filled, filled["gpu_milli"], offered)
    values |= {
        "filled": filled,
        "unfolded": launch_again.is_unfolded(filled),
        "shares": offered,
        "kinds": Kind,
        "most": {"count": MAX_BATCH, "replicas": MAX_CONTAINERS},
    }
    values |= {"volume_rows": _rows(len(filled["volumes"])) if context.settings.pvc_storage else (0, 0)}
    return pages.page(request, "launch.html", values)


@router.post("", status_code=204)
@action(Action.SESSION_SUBMIT)
async def launch(
    form: Annotated[LaunchForm, Form()],
    caller: Caller,
    db: Transaction,
    context: SubmissionContextOf,
    response: Response,
    _room: RoomForSessions,
    _wake: WakeAfterwards,
) -> None:
    """Put a session into the queue, or several equal ones, and show it or them."""
    body = launch_form.body(form, context.settings)
    if form.count > 1:
        batch = forms.checked(BatchRequest, body | {"count": form.count})
        await submission.submit_batch(db, batch, caller, context)
    else:
        await submission.submit(db, forms.checked(SessionRequest, body), caller, context)
    one = f"/sessions/{form.name}?project={form.project}"
    response.headers["HX-Redirect"] = one if form.count == 1 else f"/sessions?mine=1&q={form.name}"


@router.post("/check")
@action(Action.SESSION_DRY_RUN)
async def check(
    *,
    form: Annotated[LaunchForm, Form()],
    request: Request,
    caller: Caller,
    database: DatabaseOf,
    context: SubmissionContextOf,
    dry_runs: DryRunsOf,
    _room: RoomForSessions,
) -> Response:
    """Say below the form what would become of what it says so far; what is wrong with it is told on launching."""
    values: dict[str, Any] = {"found": None, "problem": None}
    if not (form.name or form.share or form.preset or form.cpu):
        # what nobody has filled in yet is not wrong
        return pages.page(request, "launch_check.html", values)
    try:
        body = launch_form.body(form, context.settings) | {"count": form.count}
        # whoever has not thought of a name yet hears of the rest
        wanted = DryRunRequest.model_validate(body | {"name": form.name or f"new-{token_hex(4)}"})
        values["found"] = await dry_runs.check(database, wanted, caller, context)
    except (InputError, ConflictError) as error:
        values["problem"] = error.problems[0]
    except ValidationError:
        pass  # it is told beside the fields on launching
    return pages.page(request, "launch_check.html", values)


async def _filled(
    db: AsyncSession, asked: LaunchQuery, caller: Identity, context: SubmissionContext, choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the form shows from the start."""
    if asked.like:
        found = await sessions.get(db, asked.project, asked.like, caller)
        like = await session_views.view(db, found.id, context.settings.apps)
        usual = launch_choices.usual_memory_mib(like, found.project, caller, context)
        return launch_again.filled(like, choices, context.settings, usual)
    values = {**launch_again.EMPTY, "project": asked.project, "kind": asked.kind, "notes": {}}
    template, image = choices["templates"].get(asked.template, (None, ""))
    if template:
        values |= {"template": template, "image": image, "command": template.command, "ports": str(template.port)}
    return values | {"gpu_milli": launch_form.milli(asked, context.settings)}


def _rows(filled: int) -> tuple[int, int]:
    """Return how many rows for volumes the form shows, and how many it has."""
    shown = max(VOLUMES_SHOWN, filled)
    return shown, min(launch_form.VOLUMES, shown + VOLUMES_FOLDED)
