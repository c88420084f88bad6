"""Endpoints of volumes. Members see those of their projects; managers make and delete them, administrators move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.control.manager import WakeAfterwards
from api.endpoints.access import Caller, SettingsOf, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.schemas import NamePath, NameQuery
from api.resources.sessions import service as sessions
from api.resources.sessions.access import seen_by
from api.resources.volumes import service
from api.resources.volumes.schemas import HandOver, NewVolume, VolumeView
from api.tables.volumes import Volume, VolumeState

router = Router(prefix="/volumes", tags=["volumes"])


@router.get("")
@action(Action.VOLUME_READ)
async def list_volumes(
    caller: Caller,
    db: Reading,
    project: NameQuery | None = None,
    state: Annotated[list[VolumeState] | None, Query(max_length=len(VolumeState))] = None,
) -> list[VolumeView]:
    """List volumes: of a project, or all that the caller may see, in any `state` that is named."""
    found = await service.visible(db, caller, project)
    return await views(db, [volume for volume in found if not state or volume.state in state], caller)


@router.get("/{name}")
@action(Action.VOLUME_READ)
async def get_volume(
    name: NamePath, caller: Caller, db: Reading, settings: SettingsOf, project: NameQuery | None = None
) -> VolumeView:
    """Show the volume of a name and a project, or of an id in place of the name."""
    return await _view(db, await service.get(db, name, project, caller, settings.pvc_storage), caller)


@router.post("", status_code=201)
@action(Action.VOLUME_CREATE)
async def create_volume(request: NewVolume, caller: Caller, db: Transaction, settings: SettingsOf) -> VolumeView:
    """Create a volume for a project. A session that names one that there is not makes it, too."""
    return await _view(db, await service.create(db, request, caller, settings), caller)


@router.post("/{name}/hand-over")
@action(Action.VOLUME_HAND_OVER)
async def hand_over_volume(
    *,
    name: NamePath,
    request: HandOver,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    project: NameQuery | None = None,
) -> VolumeView:
    """Give a volume that no session mounts to another project, one whose project is gone too."""
    await service.hold(db)
    volume = await service.get(db, name, project, caller, settings.pvc_storage, lock=True)
    service.check(caller, Action.VOLUME_HAND_OVER, volume)
    await sessions.refuse_while_mounted(db, volume.id, volume.name, caller)
    await service.hand_over(db, volume, request, caller)
    return await _view(db, volume, caller)


@router.delete("/{name}", status_code=202, response_description="Its files are being deleted")
@action(Action.VOLUME_DELETE)
async def delete_volume(
    *,
    name: NamePath,
    caller: Caller,
    db: Transaction,
    settings: SettingsOf,
    _wake: WakeAfterwards,
    project: NameQuery | None = None,
) -> VolumeView:
    """Delete a volume that no session mounts; it is `deleting` until a node has removed its files, and then gone."""
    volume = await service.get(db, name, project, caller, settings.pvc_storage, lock=True)
    service.check(caller, Action.VOLUME_DELETE, volume)
    await sessions.refuse_while_mounted(db, volume.id, volume.name, caller)
    await service.delete(db, volume, caller)
    return await _view(db, volume, caller)


async def _view(db: AsyncSession, volume: Volume, caller: Identity) -> VolumeView:
    return (await views(db, [volume], caller))[0]


async def views(db: AsyncSession, volumes: Sequence[Volume], caller: Identity) -> list[VolumeView]:
    """Return views of volumes, with how many live sessions that the caller sees mount each."""
    live = await service.live_sessions(db, [volume.id for volume in volumes], caller.id, seen_by(caller).private)
    return [VolumeView.of(volume, live.get(volume.id, 0)) for volume in volumes]
