"""The page on which people launch sessions, with what they may use to choose from."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime
from secrets import token_hex
from typing import Annotated, Any

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.console import forms, launch_templates, pages, shares
from api.console.routes import Router
from api.control.manager import WakeAfterwards
from api.endpoints.access import Caller, action
from api.endpoints.room import RoomForSessions
from api.endpoints.sessions import DryRunsOf, SubmissionContextOf
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.resources.images import service as images
from api.resources.presets import service as presets
from api.resources.projects import service as projects
from api.resources.sessions import submission
from api.resources.sessions.schemas import MAX_BATCH, BatchRequest, DryRunRequest, SessionRequest
from api.resources.volumes import service as volumes
from api.settings import Settings
from api.tables.images import Status
from api.tables.sessions import MAX_CONTAINERS, Kind
from common.errors import ConflictError, InputError
from common.gpu.share import format_gpus
from common.hints import hinted
from common.natural_order import natural
from common.sentence import Sentence

HOUR_S = 3600
VOLUMES = 2
"""So many volumes a session gets on this page."""

MAX_COMMAND = 1 << 14
"""Most characters of a command: taking it apart costs the square of its length."""
MAX_SHARES = 1 << 13
"""Most characters of a list of shares: of the finest granularity."""
Line = Annotated[str, Field(max_length=1024)]
_SHARES = hinted(Sentence("load the page again"), Sentence("is no list of shares"))

router = Router(prefix="/launch")


class Offered(BaseModel):
    """A place of the slider in the list of shares that its page offered, 0 none."""

    share: int = Field(default=0, ge=0)
    shares: Annotated[str, Field(max_length=MAX_SHARES, pattern=r"^(\d{1,5}(,\d{1,5})*)?$"), _SHARES] = ""


class LaunchQuery(Offered):
    """What a form shows from the start: of a template, or of what was chosen of it before."""

    template: Annotated[str, Field(max_length=64)] = ""
    project: Line = ""
    kind: Kind | None = None


class LaunchForm(Offered):
    """The form as a browser sends it.

    `cpu` are cores, `max_replicas` is empty where the number of containers stays, and `start` is UTC.
    """

    name: Line = ""
    project: Line = ""
    image: Line = ""
    preset: Line = ""
    kind: Kind = Kind.INTERACTIVE
    cpu: float | None = Field(default=None, ge=0, le=4096)
    replicas: int = 1
    max_replicas: int | None = None
    count: int = Field(default=1, ge=1, le=MAX_BATCH)
    command: Annotated[str, Field(max_length=MAX_COMMAND)] = ""
    ports: Line = ""
    hours: float | None = Field(default=None, gt=0, le=8784)
    start: datetime | None = None
    volume: list[Line] = Field(default=[], max_length=VOLUMES)
    target: list[Line] = Field(default=[], max_length=VOLUMES)


@router.get("")
@action(Action.SESSION_SUBMIT)
async def show_launch(
    request: Request,
    caller: Caller,
    db: Reading,
    context: SubmissionContextOf,
    asked: Annotated[LaunchQuery, Query()],
) -> Response:
    """Show the form with what the caller may use, and with what a template fills in, where one is named."""
    values = await _choices(db, caller)
    chosen, image = values["templates"].get(asked.template, (None, ""))
    named = next((project for project in values["projects"] if project.name == asked.project), None)
    project = named or next(iter(values["projects"]), None)
    offered = await shares.offered(db, project, asked.kind or next(iter(Kind)), caller, context) if project else []
    values["filled"] = {
        "template": chosen,
        "image": image,
        "project": named.name if named else "",
        "kind": asked.kind,
        "share": bisect_right(offered, _milli(asked, context.settings)),
    }
    values |= {
        "shares": offered,
        "kinds": Kind,
        "most": {"count": MAX_BATCH, "replicas": MAX_CONTAINERS},
    }
    values |= {"volume_rows": VOLUMES if context.settings.pvc_storage else 0}
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
    body = _body(form, context.settings)
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
        body = _body(form, context.settings) | {"count": form.count}
        # whoever has not thought of a name yet hears of the rest
        wanted = DryRunRequest.model_validate(body | {"name": form.name or f"new-{token_hex(4)}"})
        values["found"] = await dry_runs.check(database, wanted, caller, context)
    except (InputError, ConflictError) as error:
        values["problem"] = error.problems[0]
    except ValidationError:
        pass  # it is told beside the fields on launching
    return pages.page(request, "launch_check.html", values)


async def _choices(db: AsyncSession, caller: Identity) -> dict[str, Any]:
    """Return what a session of the caller may be made of."""
    seen = [
        project
        for project in await projects.visible(db, caller)
        if caller.may(Action.SESSION_SUBMIT, project=project) and projects.is_active(project, now())
    ]
    named = {project.id: project.name for project in seen}
    by_project: defaultdict[str, list[str]] = defaultdict(list)
    for volume in await volumes.visible(db, caller, None):
        if volume.project_id in named:
            by_project[named[volume.project_id]].append(volume.name)
    found = [image for image in await images.visible(db, caller) if image.status is not Status.FAILED]
    return {
        "projects": seen,
        "images": sorted({f"{image.name}:{image.tag}" for image in found}, key=natural),
        "templates": launch_templates.offered(found),
        "presets": [(preset, _described(preset)) for preset in await presets.every(db)],
        "volumes": dict(by_project),
    }


def _described(preset: Any) -> str:
    return f"{format_gpus(preset.gpu_milli)} GPU" if preset.gpu_milli else f"{preset.cpu_milli / 1000:g} CPU"


def _body(form: LaunchForm, settings: Settings) -> dict[str, Any]:
    """Return the body of the API's request; what was left empty is left out. Raises InputError."""
    body: dict[str, Any] = {name: getattr(form, name) for name in ("name", "project", "image", "kind", "replicas")}
    if form.max_replicas is not None:
        body["max_replicas"] = form.max_replicas
    if form.preset:
        body["preset"] = form.preset
    if form.share or not form.preset:
        body["gpu_milli"] = _milli(form, settings)
    if form.cpu is not None:
        body["cpu_milli"] = forms.whole("cpu_milli", form.cpu, 1000)
    if form.hours is not None:
        body["limit_s"] = round(form.hours * HOUR_S)
    if form.start is not None:
        body["starts_at"] = form.start if form.start.tzinfo else form.start.replace(tzinfo=UTC)
    if command := _words(form.command):
        body["command"] = command
    body["ports"] = [_port(word) for word in forms.names(form.ports)]
    pairs = zip(form.volume, form.target, strict=False)
    body["pvcs"] = [{"name": name, "target": target} for name, target in pairs if name or target]
    return body


def _milli(chosen: Offered, settings: Settings) -> int:
    # a page of an earlier release says nothing of its list, which had all steps
    offered = [int(milli) for milli in chosen.shares.split(",")] if chosen.shares else shares.steps(settings)
    if chosen.share > len(offered):
        raise InputError(Sentence("there is no such share"), where="gpu_milli", hint=Sentence("choose one of the list"))
    return offered[chosen.share - 1] if chosen.share else 0


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        raise InputError(
            Sentence("a quotation mark has no other end"),
            where="command",
            hint=Sentence('close it, as in sh -c "echo hello"'),
        ) from None


def _port(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 5):
        raise InputError(
            Sentence("{word} is no port", word=word), where="ports", hint=Sentence("write numbers such as 8888, 6006")
        )
    return int(word)
