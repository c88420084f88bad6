"""Choices of the page that launches sessions: what people may make one of, and which hardware allows what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.console import launch_templates
from api.resources.groups import service as groups
from api.resources.groups.permissions import Groups
from api.resources.images import service as images
from api.resources.nodes.fleet import Fleet
from api.resources.nodes.traits import P2P, RDMA
from api.resources.presets import service as presets
from api.resources.projects import service as projects
from api.resources.sessions import defaults
from api.resources.sessions.submission import SubmissionContext
from api.resources.sessions.views import SessionView
from api.resources.volumes import service as volumes
from api.scheduler.snapshot import Workload
from api.tables.images import Status
from api.tables.projects import Access, Project
from api.tables.sessions import Kind
from common.errors import InputError
from common.gpu.share import MILLI, format_gpus
from common.natural_order import natural

WAYS = {
    "p2p": Workload("p2p", "", 0, gpu_milli=2 * MILLI, traits=(P2P,)),
    "rdma": Workload("rdma", "", 0, gpu_milli=MILLI, replicas=2, traits=(RDMA,)),
}
"""The least that takes a way between GPUs, by the field that asks for it."""


async def offered(db: AsyncSession, caller: Identity, context: SubmissionContext) -> dict[str, Any]:
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
    await context.fleet.refresh(db)
    return {
        "projects": seen,
        "images": sorted({f"{image.name}:{image.tag}" for image in found}, key=natural),
        "templates": launch_templates.offered(found),
        "presets": {preset.name: (preset, _described(preset)) for preset in await presets.every(db)},
        "volumes": dict(by_project),
        "accesses": Access,
        **_of_hardware(context.fleet, caller, seen),
    }


def usual_memory_mib(session: SessionView, project: Project, caller: Identity, context: SubmissionContext) -> int:
    """Return the memory that a container like those of a session has where nobody says how much."""
    fleet = context.fleet
    try:
        place = groups.allowed(fleet.permissions, caller.id, project, session.kind, session.group or None)
    except InputError:
        return 0
    models = fleet.gpu_models_of(session.gpu_models) if session.gpu_models else ()
    nodes = defaults.fitting(fleet.nodes, models, place)
    return defaults.memory_mib(session.gpu_milli, session.cpu_milli, nodes, context.settings, most=None)


def _of_hardware(fleet: Fleet, caller: Identity, seen: Iterable[Project]) -> dict[str, Any]:
    """Return the resource groups that the caller may name, and which GPUs and ways between them are on their nodes."""
    named: set[str] = set()
    places: set[Groups] = set()
    for project in seen:
        named.update(fleet.permissions.usable(caller.id, frozenset([project.id])))
        named.update(group for group in (project.training_group, project.interactive_group) if group)
        for kind in Kind:
            try:
                places.add(groups.allowed(fleet.permissions, caller.id, project, kind))
            except InputError:
                continue
    reached = [node for place in places for node in defaults.fitting(fleet.nodes, (), place)]
    return {
        "groups": sorted(named, key=natural),
        "models": sorted({gpu.model for node in reached for gpu in node.gpus}, key=natural),
        "ways": {field for field, asked in WAYS.items() if any(_is_there(fleet, asked, place) for place in places)},
    }


def _is_there(fleet: Fleet, asked: Workload, place: Groups) -> bool:
    return not fleet.never_fits(replace(asked, groups=place[0], grouped_only=place[1]))


def _described(preset: Any) -> str:
    return f"{format_gpus(preset.gpu_milli)} GPU" if preset.gpu_milli else f"{preset.cpu_milli / 1000:g} CPU"
