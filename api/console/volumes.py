"""Volumes of projects: what is in them and who uses them, new ones, those that go, and those that others get."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.control.manager import WakeAfterwards
from api.endpoints import volumes
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import session_search, stamps
from api.lists.session_search import LIVE, Search
from api.resources.projects import service as projects
from api.resources.schemas import NamePath, NameQuery
from api.resources.volumes import service
from api.resources.volumes.schemas import HandOver, NewVolume
from api.tables.sessions import Session
from api.tables.volumes import SessionVolume, Volume
from common.errors import InputError
from common.sentence import Sentence

SHOWN = 200
SESSIONS = 50
"""So many volumes are listed, and so many sessions that use one."""
OF_VOLUMES: stamps.Tables = (*stamps.PEOPLE, Volume, SessionVolume, Session)

router = Router(prefix="/volumes")


class VolumeForm(BaseModel):
    """A volume to create."""

    name: forms.Line = ""
    project: forms.Line = ""


class HandOverForm(BaseModel):
    """Which project gets a volume, and by which name; empty: by the one that it has."""

    to: forms.Line = ""
    new_name: forms.Line = ""


@router.get("")
@action(Action.VOLUME_READ)
async def list_volumes(
    *,
    request: Request,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    q: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the volumes that the caller sees, by project and name: those with some letters in either."""
    stamp = await pages.stamp(request, db, OF_VOLUMES, caller.id, request.url)
    if answer := pages.unchanged(request, stamp):
        return answer
    word = q.strip().lower()
    every = await service.visible(db, caller, None)
    found = [volume for volume in every if word in f"{volume.name} {_owner(volume)}".lower()]
    creates = settings.pvc_root is not None and caller.reach(Action.VOLUME_CREATE).anything
    owners = [
        (project.name, project.name)
        for project in (await projects.visible(db, caller) if creates else ())
        if caller.may(Action.VOLUME_CREATE, project=project)
    ]
    values = {
        "q": q,
        "volumes": await volumes.views(db, found[:SHOWN], caller),
        "more": max(0, len(found) - SHOWN),
        "creates": creates,
        "owners": owners,
        "has_storage": settings.pvc_root is not None,
    }
    return await pages.live(request, "volumes.html", "volumes_live.html", values, stamp=stamp)


@router.get("/{name}")
@action(Action.VOLUME_READ)
async def show_volume(
    *,
    name: NamePath,
    request: Request,
    caller: Caller,
    db: Reading,
    settings: SettingsOf,
    project: NameQuery | None = None,
) -> Response:
    """Show a volume, by its id or its name and project, and the live sessions that use it."""
    volume = await service.get(db, name, project, caller, settings.pvc_storage)
    using = await session_search.lines(db, caller, Search(states=LIVE, volume_id=volume.id), limit=SESSIONS)
    (view,) = await volumes.views(db, [volume], caller)
    values = {
        "volume": view,
        "sessions": using.lines,
        "more": view.sessions - len(using.lines),
        "can": {
            "delete": service.may(caller, Action.VOLUME_DELETE, volume),
            "hand_over": service.may(caller, Action.VOLUME_HAND_OVER, volume),
        },
    }
    return await pages.live(request, "volume.html", "volume_live.html", values)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.VOLUME_CREATE)
async def create_volume(
    form: Annotated[VolumeForm, Form()], caller: Caller, db: Transaction, settings: SettingsOf
) -> None:
    """Create a volume for a project."""
    await volumes.create_volume(forms.checked(NewVolume, form.model_dump()), caller, db, settings)


@router.post("/{name}/delete", status_code=204, dependencies=[back_to("/volumes")])
@action(Action.VOLUME_DELETE)
async def delete_volume(
    *,
    name: NamePath,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    wake: WakeAfterwards,
    project: NameQuery | None = None,
    confirmed: Annotated[str, Form(max_length=100)] = "",
) -> None:
    """Delete a volume that no session uses, with its files, where somebody has written its name."""
    volume = await service.get(db, name, project, caller, settings.pvc_storage)
    service.check(caller, Action.VOLUME_DELETE, volume)
    if confirmed.strip() != volume.name:
        raise InputError(
            Sentence("this is not the name of the volume"),
            where="confirmed",
            hint=Sentence("write {name}: its files go for good", name=volume.name),
        )
    await volumes.delete_volume(name=name, caller=caller, db=db, settings=settings, _wake=wake, project=project)


@router.post("/{name}/hand-over", status_code=204, dependencies=[back_to("/volumes")])
@action(Action.VOLUME_HAND_OVER)
async def hand_over_volume(
    *,
    name: NamePath,
    form: Annotated[HandOverForm, Form()],
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    project: NameQuery | None = None,
) -> None:
    """Give a volume that no session uses to another project."""
    wanted = forms.checked(HandOver, {"project": form.to, "name": form.new_name or None})
    await volumes.hand_over_volume(name=name, request=wanted, caller=caller, db=db, settings=settings, project=project)


def _owner(volume: Volume) -> str:
    return volume.project.name if volume.project else volume.former_project
