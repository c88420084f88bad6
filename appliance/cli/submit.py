"""Submission of sessions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from appliance.cli import config, output, parse, share
from appliance.cli.like import changed
from appliance.cli.options import (
    ProjectOption,
    complete_groups,
    complete_images,
    complete_presets,
    complete_sessions,
    given,
    told_by_options,
)
from appliance.cli.output import Format, FormatOption
from appliance.cli.session import status
from appliance.cli.share import FgpuOption, GpusOption
from appliance.cli.waiting import until_all_started
from appliance.client import Client
from appliance.client.requests import PvcRequest, VolumeRequest
from appliance.client.views import DryRun, SessionEntry
from appliance.client.words import Access, Enforcement, Kind
from common.errors import InputError, Problem
from common.gpu.units import format_gpus
from common.starts import check_start
from common.topology import TopologyLevel

FIELDS = {
    "image": "-i",
    "environment": "-e",
    "ports": "--port",
    "pvcs": "--pvc",
    "volumes": "-v",
    "gpu_models": "--gpu-model",
    "starts_at": "--start-at",
    "limit_s": "--time",
    "max_replicas": "--replicas",
    "preemptible": "--preemptible",
    **{
        field: f"--{field}"
        for field in ("preset", "command", "args", "count", "replicas", "group", "priority", "access", "p2p", "rdma")
    },
}
"""Options of `submit` alone, by the field of the request."""


class ServiceType(StrEnum):
    """How the ports of a session are reached."""

    INGRESS = "ingress"


def submit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the session.")],
    *,
    image: Annotated[
        str | None,
        typer.Option("-i", "--image", help="Image, such as python or python:3.11.", autocompletion=complete_images),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="SESSION",
            help="As that one was submitted, also if it has ended, but for other options.",
            autocompletion=complete_sessions,
        ),
    ] = None,
    gpus: GpusOption = None,
    fgpu: FgpuOption = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="Amounts by a name.", autocompletion=complete_presets),
    ] = None,
    cpu: Annotated[str | None, typer.Option("--cpu", metavar="N", help="Cores, such as 4 or 0.5.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Memory, such as 8G.")] = None,
    shm: Annotated[str | None, typer.Option("--shm", metavar="SIZE", help="Size of /dev/shm, such as 1G.")] = None,
    large_shm: Annotated[bool, typer.Option("--large-shm", help="Half of the memory as /dev/shm.")] = False,
    disk: Annotated[
        str | None, typer.Option("--disk", metavar="SIZE", help="What it may write beside its volumes, such as 20G.")
    ] = None,
    project: ProjectOption = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="It runs until you delete it.")] = False,
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="What it is for; training unless it is said otherwise.")
    ] = None,
    command: Annotated[str | None, typer.Option("--command", help="Command, instead of the image's own.")] = None,
    args: Annotated[list[str] | None, typer.Option("--args", help="Argument of the command; may be repeated.")] = None,
    environment: Annotated[
        list[str] | None, typer.Option("-e", "--env", metavar="KEY=VALUE", help="A variable; may be repeated.")
    ] = None,
    service_type: Annotated[
        ServiceType | None, typer.Option("--service-type", help="How the ports are reached: by the site's address.")
    ] = None,
    ports: Annotated[
        list[int] | None,
        typer.Option("--port", metavar="N", min=1, max=65535, help="A port that gets an address; may be repeated."),
    ] = None,
    pvc: Annotated[
        list[str] | None,
        typer.Option("--pvc", metavar="NAME:PATH[:ro]", help="A PVC of the project; may be repeated."),
    ] = None,
    volumes: Annotated[
        list[str] | None,
        typer.Option("-v", "--volume", metavar="NODE-PATH:PATH[:ro]", help="A folder of the node; may be repeated."),
    ] = None,
    local_image: Annotated[bool, typer.Option("--local-image", help="The image is on the node; pull nothing.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="So many sessions: NAME-1, NAME-2 ...")
    ] = None,
    replicas: Annotated[
        dict[str, int] | None,
        typer.Option(
            "--replicas",
            metavar="N[..M]",
            parser=lambda text: parse.replicas(text, "--replicas"),
            help="Containers of it; up to M while there is room.",
        ),
    ] = None,
    gpu_models: Annotated[
        list[str] | None, typer.Option("--gpu-model", metavar="TEXT", help="Only on GPUs called so; may be repeated.")
    ] = None,
    enforcement: Annotated[
        Enforcement | None, typer.Option("--enforcement", help="Only where shares are held so, or better.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Resource group to run in.", autocompletion=complete_groups),
    ] = None,
    within: Annotated[
        TopologyLevel | None,
        typer.Option("--within", help="Containers close together: NVLink island, node, leaf switch."),
    ] = None,
    required: Annotated[
        bool, typer.Option("--within-required", help="Wait rather than run farther apart than --within.")
    ] = False,
    p2p: Annotated[
        bool | None, typer.Option("--p2p/--no-p2p", help="Its GPUs reach each other by NVLink, or may not at all.")
    ] = None,
    rdma: Annotated[bool, typer.Option("--rdma", help="Its containers meet over InfiniBand.")] = False,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", min=0, max=100, help="Higher goes first in the project.")
    ] = None,
    preemptible: Annotated[
        bool | None,
        typer.Option("--preemptible/--no-preemptible", help="May it use idle GPUs of others and be reclaimed?"),
    ] = None,
    start_at: Annotated[
        str | None, typer.Option("--start-at", metavar="TIME", help="Not before: 2027-01-31T22:00, or +2h.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="4h", help="It is stopped when it has run so long, and may start sooner."),
    ] = None,
    access: Annotated[
        Access | None,
        typer.Option("--access", help="Who sees it: your project, or of its members you alone."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say whether it would start now, or why it would wait; submit nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it runs, or has ended.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Submit a session: containers with shares of GPUs."""
    if image is None and like is None:
        raise InputError("no image is named", where="-i", hint="name one, or a session with `--like`")
    remembered = config.load()
    client = remembered.client
    if service_type and not ports:
        raise InputError(f"{service_type} needs a port", where="--port", hint="add the port, such as --port 8888")
    if ports and not service_type:
        raise InputError("a port is reached by an address", where="--port", hint="add `--service-type ingress`")
    options = given(
        gpu_milli=_share(client, gpus, fgpu, otherwise=bool(preset or cpu or like)),
        preset=preset,
        cpu_milli=None if cpu is None else parse.cpu_milli(cpu, "--cpu"),
        memory_mib=None if memory is None else parse.size_mib(memory, "--memory"),
        shm_mib=None if shm is None else parse.size_mib(shm, "--shm"),
        large_shm=large_shm or None,
        disk_mib=None if disk is None else parse.size_mib(disk, "--disk"),
        kind=kind,
        interactive=interactive or None,
        command=_words(command),
        args=args,
        environment=_environment(environment),
        ports=ports,
        pvcs=None if pvc is None else [_pvc(text) for text in pvc],
        volumes=None if volumes is None else [_volume(text) for text in volumes],
        local_image=local_image or None,
        **(replicas or {}),
        gpu_models=gpu_models,
        enforcement=enforcement,
        group=group,
        within=within,
        within_required=required or None,
        p2p=p2p,
        rdma=rdma or None,
        priority=priority,
        preemptible=preemptible,
        access=access,
        starts_at=None if start_at is None else _start(start_at),
        limit_s=None if time is None else parse.duration(time, "--time"),
    )
    if cpu is not None and preset is None and like is None:
        options.setdefault("gpu_milli", 0)
    chosen = remembered.project_or(project)
    wanted: dict[str, Any] = {"name": name, "project": chosen, "image": image, "created_by_cli": True}
    if like is not None:
        options = changed(client.sessions.get(like, project=chosen), options, image)
        wanted = options | {"name": name, "project": chosen, "created_by_cli": True}
    if dry_run:
        with told_by_options(**FIELDS):
            found = client.sessions.check(**{**wanted, **options, **given(count=count)})
        output.show(found, form, _tell_dry_run)
        return
    with told_by_options(**FIELDS):
        submitted = _submit(client, {**wanted, **options}, count)
    if wait:
        submitted = until_all_started(client, submitted)
    output.show(submitted if count else submitted[0], form, lambda _: _tell(submitted))


def _submit(client: Client, request: dict[str, Any], count: int | None) -> Sequence[SessionEntry]:
    if count is None:
        return [client.sessions.submit(**request)]
    return client.sessions.submit_batch(**request, count=count)


def _tell(sessions: Sequence[SessionEntry]) -> None:
    for session in sessions:
        gpus = format_gpus(session["gpu_milli"] * session["replicas"])
        print(f"{session['name']}: {status(session)}, {gpus} GPU, project {session['project']}")


def _tell_dry_run(found: DryRun) -> None:
    starting, waiting = found["starting"], found["waiting"]
    if starting:
        print("it would start now" if starting + waiting == 1 else f"{starting} would start now")
    if waiting:
        place = f", at place {found['position']} of the queue" if found["position"] else ""
        who = "it would wait" if starting + waiting == 1 else f"{waiting} would wait"
        print(f"{who}{place}: {found['reason']}")


def _share(client: Client, gpus: str | None, fgpu: str | None, *, otherwise: bool) -> int | None:
    """Return the milli-GPU that `-g` or `--fgpu` asks for; None where neither does, and a preset may."""
    if gpus is None and fgpu is None and otherwise:
        return None
    return share.milli(
        client, gpus, fgpu, "write `-g 0.5`, `--fgpu 1` to count in fGPU, `--preset NAME`, or `--cpu 4` for none"
    )


def _words(command: str | None) -> Sequence[str] | None:
    if command is None:
        return None
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InputError.of(
            [Problem("--command", f"{command!r} cannot be split into words: {error}", "close the quotes")]
        ) from error


def _start(text: str) -> str:
    starts_at = parse.moment(text, "--start-at")
    check_start(datetime.fromisoformat(starts_at), datetime.now(UTC), "--start-at", text)
    return starts_at


def _environment(texts: list[str] | None) -> dict[str, str] | None:
    return None if texts is None else dict(_variable(text) for text in texts)


def _variable(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if key and found:
        return key, value
    raise InputError(f"{text!r} is no variable", where="--env", hint="write it like EPOCHS=10")


def _pvc(text: str) -> PvcRequest:
    name, target, read_only = _mount(text, "--pvc", "data:/data, or data:/data:ro")
    return {"name": name, "target": target, "read_only": read_only}


def _volume(text: str) -> VolumeRequest:
    source, target, read_only = _mount(text, "-v", "/srv/data:/data, or /srv/data:/data:ro")
    return {"source": source, "target": target, "read_only": read_only}


def _mount(text: str, field: str, like: str) -> tuple[str, str, bool]:
    parts = text.split(":")
    if len(parts) in (2, 3) and all(parts) and parts[2:] in ([], ["ro"], ["rw"]):
        return parts[0], parts[1], parts[2:] == ["ro"]
    raise InputError(f"{text!r} is no mount", where=field, hint=f"write it like {like}")
