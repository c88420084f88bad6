"""Submission: a request is completed and checked, and becomes sessions that wait in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import structlog
from pydantic import Field, TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth.identity import Identity
from api.auth.policy import Action
from api.clock import now
from api.database import SERVICES_LOCK, exclusively
from api.resources.groups import service as groups
from api.resources.images import service as images
from api.resources.images.schemas import REFERENCE
from api.resources.nodes.fleet import Fleet
from api.resources.projects import beside
from api.resources.projects import service as projects
from api.resources.sandboxes import service as sandboxes
from api.resources.schemas import Name
from api.resources.sessions import access, amounts, elastic, leases, repository, spec, ways
from api.resources.sessions.addresses import Taken, addresses
from api.resources.sessions.mounts import mounts
from api.resources.sessions.schemas import BatchRequest, SessionRequest
from api.resources.sessions.service import PRIORITY, check_priority
from api.resources.user_policies import service as user_policies
from api.resources.user_policies.service import HeldUser
from api.resources.volumes import service as volumes
from api.settings import Settings
from api.tables.projects import Project
from api.tables.sessions import Kind, Service, Session
from api.tables.volumes import Volume
from common import image_references, request_id
from common.errors import ConflictError, InputError
from common.sentence import Moment, Sentence
from common.starts import check_start

log = structlog.get_logger()

WAITS = Sentence("waits for the scheduler")
MAX_WORDS_KIB = 128
"""Most of command, args and environment together: each container gets all of it, and so does each call for one."""
NOT_DUE = "not-due"
"""Why a session waits whose start has not come."""

_name = TypeAdapter[str](Name)
_reference = TypeAdapter[str](Annotated[str, Field(pattern=REFERENCE, max_length=257)])


@dataclass(frozen=True)
class SubmissionContext:
    """What a submission is checked against beside the database."""

    settings: Settings
    fleet: Fleet


async def submit(db: AsyncSession, request: SessionRequest, caller: Identity, context: SubmissionContext) -> UUID:
    """Put a session into the queue; returns its id.

    Raises InputError for what could never run, ConflictError for a name in use or a project outside its period.
    """
    return (await _submit(db, request, [request.name], caller, context))[0]


async def would_submit(
    db: AsyncSession, request: BatchRequest, caller: Identity, context: SubmissionContext
) -> Session:
    """Make the first of what a request asks for in a transaction that the caller rolls back: nobody else ever sees it.

    It is without its words and addresses, of which the scheduler knows nothing: whoever asks again and again has little
    written, and holds up nobody. Raises what `submit` raises.
    """
    names = [request.name] if request.count == 1 else _names(request)
    return (await _make(db, request, names, caller, context, is_dry=True))[0]


async def submit_batch(
    db: AsyncSession, request: BatchRequest, caller: Identity, context: SubmissionContext
) -> list[UUID]:
    """Put equal sessions into the queue, all or none; returns their ids."""
    return await _submit(db, request, _names(request), caller, context)


def _names(request: BatchRequest) -> list[str]:
    names = [f"{request.name}-{number}" for number in range(1, request.count + 1)]
    try:
        _name.validate_python(names[-1])
    except ValidationError as error:
        raise InputError(
            Sentence("the last session would be called {name}, which is too long", name=names[-1]),
            where="name",
            hint=Sentence("choose a shorter one"),
        ) from error
    return names


async def _submit(
    db: AsyncSession, request: SessionRequest, names: Sequence[str], caller: Identity, context: SubmissionContext
) -> list[UUID]:
    made = await _make(db, request, names, caller, context)
    log.info("submitted", session=request.name, session_id=str(made[0].id), project=request.project, count=len(made))
    return [session.id for session in made]


async def _make(
    db: AsyncSession,
    request: SessionRequest,
    names: Sequence[str],
    caller: Identity,
    context: SubmissionContext,
    *,
    is_dry: bool = False,
) -> list[Session]:
    _check_length(request)
    check_start(request.starts_at, now(), "starts_at")
    project = await projects.get(db, request.project, caller)
    caller.check(Action.SESSION_SUBMIT, project=project)
    projects.check_active(project, max(now(), request.starts_at or now()))
    kind = request.kind_or_default
    if request.group:
        await groups.keep(db, request.group)
    await context.fleet.refresh(db)
    allowed = groups.allowed(context.fleet.permissions, caller.id, project, kind, request.group)
    user = await user_policies.hold(db, caller.id)
    user_policies.check_waiting(user, len(names), context.settings.waiting_per_user)
    each = await amounts.complete(
        db, request, _most_memory(request, user, len(names)), allowed, settings=context.settings, fleet=context.fleet
    )
    ways.check(request, each.gpu_milli)
    amounts.check_fits(request, each, allowed, context.fleet)
    preemptible = kind is Kind.TRAINING if request.preemptible is None else request.preemptible
    in_one_place = request.within_required or ways.is_in_one_island(request)
    elastic.check(request, preemptible=preemptible, in_one_place=in_one_place, settings=context.settings)
    await projects.check_cap(db, project, request.replicas * each.gpu_milli, preemptible=preemptible)
    cpu_milli = request.replicas * leases.counted_cpu_milli(each.cpu_milli, context.settings)
    beside.check_caps(project, cpu_milli, request.replicas * each.memory_mib, preemptible=preemptible)
    title, reference = await _image(db, request, project)
    await user_policies.check(db, user, amounts.summed(len(names), request.most_replicas, each))
    _check_unmoved(user, caller)
    sandbox, rules = await sandboxes.for_session(db, project.id, reference)
    pvcs = await _volumes(db, request, project, caller, context.settings)
    mounted = mounts(request, pvcs, context.settings)
    priority = PRIORITY[kind] if request.priority is None else request.priority
    check_priority(priority, kind, caller, project)
    starts_at = request.starts_at if request.starts_at and request.starts_at > now() else None
    await _check_names(db, project, names, caller)
    made = [
        Session(
            name=name,
            project=project,
            user_id=caller.id,
            user_name=caller.name,
            access=request.access or project.session_access,
            image=title,
            reference=reference,
            kind=kind,
            priority=priority,
            preemptible=preemptible,
            replicas=request.replicas,
            min_replicas=request.replicas if elastic.is_elastic(request) else 0,
            max_replicas=request.most_replicas if elastic.is_elastic(request) else 0,
            gpu_milli=each.gpu_milli,
            cpu_milli=each.cpu_milli,
            memory_mib=each.memory_mib,
            shm_mib=each.shm_mib,
            disk_mib=each.disk_mib,
            enforcement=each.enforcement.value,
            preset=request.preset or "",
            group=request.group or "",
            gpu_models=request.gpu_models,
            ports=sorted(request.ports),
            within=ways.within(request).value,
            within_required=request.within_required or ways.is_in_one_island(request),
            p2p=request.p2p,
            rdma=request.rdma,
            command=None if is_dry else request.command,
            args=[] if is_dry else request.args,
            environment={} if is_dry else request.environment,
            mounts=mounted,
            local_image=request.local_image,
            sandbox=sandbox,
            sandbox_rules=rules,
            created_by_cli=request.created_by_cli,
            starts_at=starts_at,
            limit_s=request.limit_s or 0,
            request_id=request_id.current(),
            **_first_reason(starts_at),
            cause=NOT_DUE if starts_at else "",
            containers=[],
            services=[],
        )
        for name in (names[:1] if is_dry else names)
    ]
    await _give_addresses(db, made, request, is_dry=is_dry)
    for session in made:
        repository.add(db, session)
    await db.flush()
    for session in made:
        session.protocol = spec.protocol(session)
    # after the sessions, which hold the project: who deletes that has it before its volumes, too
    await volumes.mount(db, project, pvcs.values(), [session.id for session in made])
    return made


def _check_length(request: SessionRequest) -> None:
    """Refuse what is too long to be kept with a session, by the longest part; counted as the kernel does."""
    words = {
        "command": request.command or [],
        "args": request.args,
        "environment": [f"{name}={value}" for name, value in request.environment.items()],
    }
    sizes = {field: sum(len(word.encode()) + 1 for word in found) for field, found in words.items()}
    if sum(sizes.values()) > MAX_WORDS_KIB << 10:
        raise InputError(
            Sentence(
                "command, args and environment are longer than {most} KiB together, a byte more a word",
                most=MAX_WORDS_KIB,
            ),
            where=max(sizes, key=lambda field: sizes[field]),
            hint=Sentence("put what is long into a file on a PVC or into the image"),
        )


def _most_memory(request: SessionRequest, user: HeldUser, count: int) -> int | None:
    """Return the most memory of one container that the user's policy allows; None where it does not say."""
    policy = user.policy
    if policy is None or policy.max_memory_mib is None:
        return None
    return policy.max_memory_mib // (count * request.most_replicas)


async def _image(db: AsyncSession, request: SessionRequest, project: Project) -> tuple[str, str]:
    """Return an image's title and reference; one that is on the nodes already need not be registered.

    What other projects have for themselves is not there for this one, whether a node has it or not.
    """
    if not request.local_image:
        image = await images.resolve(db, request.image, project.id)
        return image.title, image.reference
    image_references.check(request.image)
    try:
        reference = _reference.validate_python(request.image)
    except ValidationError as error:
        raise InputError(
            Sentence("{image} is not the reference of an image", image=request.image),
            where="image",
            hint=Sentence("write it like tensorflow:2.15"),
        ) from error
    if await images.is_of_others(db, reference, [project.id]):
        raise images.unknown(reference)
    return request.image, reference


async def _volumes(
    db: AsyncSession, request: SessionRequest, project: Project, caller: Identity, settings: Settings
) -> dict[str, Volume]:
    """Return the volumes that the request names, by name."""
    if not request.pvcs:
        return {}
    volumes.check_storage(settings, "pvcs")
    return await volumes.for_session(db, project, [pvc.name for pvc in request.pvcs], caller.name, settings)


def _check_unmoved(user: HeldUser, caller: Identity) -> None:
    """Refuse who has been moved to another domain since the request began: its rights were read before.

    The user's row is held by now, so that whoever moves the user from here on sees the sessions.
    """
    if user.domain != caller.domain:
        raise ConflictError(
            Sentence("{name} has been moved to another domain meanwhile", name=caller.name),
            where="project",
            hint=Sentence("submit it again"),
        )


async def _check_names(db: AsyncSession, project: Project, names: Sequence[str], caller: Identity) -> None:
    live = await repository.live_by_names(db, project.id, names)
    for session in (live[name] for name in names if name in live):
        taken = Sentence("{project} has a session {name} already", project=project.name, name=session.name)
        if not access.sees(caller, session, project):
            raise ConflictError(taken, where="name", hint=Sentence("choose another name"))
        raise ConflictError(
            Sentence("{taken}, and it is {state}", taken=taken, state=session.state),
            where="name",
            hint=Sentence("choose another name, or delete that session"),
        )


async def _give_addresses(
    db: AsyncSession, made: Sequence[Session], request: SessionRequest, *, is_dry: bool = False
) -> None:
    """Give each session its addresses at the edge, none of them twice; those that are taken are read once for all.

    Where it `is_dry` none is given, and no lock taken: raises what is known to be refused.
    """
    if not request.ports:
        return
    if not is_dry:
        await exclusively(db, SERVICES_LOCK)
    taken = await repository.taken_paths(db)
    paths, base_paths = set(taken.paths), set(taken.base_paths)
    for session in made:
        so_far = Taken(paths, base_paths, taken.projects)
        project, apart = session.project.name, session.project.domain is not None
        for address in addresses(project, session.name, request.ports, request.args, so_far, apart=apart):
            if not is_dry:
                session.services.append(Service(port=address.port, path=address.path, base_path=address.base_path))
            paths.add(address.path)
            base_paths |= {address.base_path} if address.base_path else set()


def _first_reason(starts_at: datetime | None) -> dict[str, Any]:
    why = Sentence("starts at {at}", at=Moment.at(starts_at, seconds=True)) if starts_at else WAITS
    return {"reason": why, "reason_parts": why.parts}
