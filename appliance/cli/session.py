"""Sessions: list, show, log, restart, extend, delete."""

from __future__ import annotations

import shlex
import time
from typing import Annotated

import typer

from appliance.cli import config, nccl, output, parse, share
from appliance.cli.options import ProjectOption, complete_sessions, told_by_options
from appliance.cli.output import Format, FormatOption
from appliance.cli.share import FgpuOption, GpusOption
from appliance.cli.waiting import until_all_started
from appliance.client.views import Container, GpuShare, Mount, Session, SessionEntry
from appliance.client.words import Access
from common.errors import ConflictError, NotFoundError, PenstockError
from common.gpu.units import MILLI, format_gpus

WAIT_STEP_S = 0.5
STATES = {"PREPARING": "ContainerCreating"}
HEAD = (
    *("NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs"),
    *("CREATED-BY-CLI", "SERVICE URL(S)"),
)
BELOW = ("IMAGE", "CREATED-BY-CLI", "SERVICE URL(S)")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the session.", autocompletion=complete_sessions)
]


def list_sessions(
    *,
    project: ProjectOption = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="With the sessions that have ended.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the sessions of the current project, or of all your projects where none is set."""
    remembered = config.load()
    sessions = remembered.client.sessions.list(project or remembered.project or None, all_=all_)
    output.show(sessions, form, _table)


def get(name: NameArgument, *, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show one session: where it runs, its addresses, and the reason when it waits or failed."""
    remembered = config.load()
    output.show(remembered.client.sessions.get(name, project=remembered.project_or(project)), form, _fields)


def restart(
    name: NameArgument,
    *,
    project: ProjectOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it runs again, or has ended.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """End the containers of a session and put it back into the queue, with its name, id, volumes and addresses."""
    remembered = config.load()
    session: SessionEntry = remembered.client.sessions.restart(name, project=remembered.project_or(project))
    if wait:
        (session,) = until_all_started(remembered.client, [session])
    output.show(session, form, lambda _: print(f"{name}: {status(session)}"))


def extend(
    name: NameArgument,
    by: Annotated[str, typer.Argument(metavar="TIME", help="How much longer it may run, such as 30m or 2h.")],
    *,
    project: ProjectOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Put off the end of a session that has a time limit; not while others have places reserved there."""
    remembered = config.load()
    seconds = parse.duration(by, "TIME")
    with told_by_options(seconds="TIME"):
        session = remembered.client.sessions.extend(name, project=remembered.project_or(project), seconds=seconds)
    output.show(session, form, lambda _: print(f"{name}: runs until {output.moment(session['expires_at'])}"))


def priority(
    name: NameArgument,
    value: Annotated[int, typer.Argument(metavar="N", min=0, max=100, help="From 0 to 100; higher goes first.")],
    *,
    project: ProjectOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change the priority of a session that waits, among those of its project."""
    remembered = config.load()
    with told_by_options(priority="N"):
        session = remembered.client.sessions.update(name, project=remembered.project_or(project), priority=value)
    output.show(session, form, lambda _: print(f"{name}: priority {session['priority']}"))


def access(
    name: NameArgument,
    wanted: Annotated[Access, typer.Argument(metavar="project|private", help="Your project, or its owner alone.")],
    *,
    project: ProjectOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change who sees a session, also one that has ended: all members of its project, or of these its owner alone."""
    remembered = config.load()
    with told_by_options():
        session = remembered.client.sessions.update(name, project=remembered.project_or(project), access=wanted)
    output.show(session, form, lambda _: print(f"{name}: {session['access']}"))


def resize(
    name: NameArgument,
    *,
    gpus: GpusOption = None,
    fgpu: FgpuOption = None,
    project: ProjectOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is done, or was refused.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change the share of a GPU that a running session has, on the GPU that it has."""
    remembered = config.load()
    sessions, chosen = remembered.client.sessions, remembered.project_or(project)
    wanted = share.milli(remembered.client, gpus, fgpu, "write `-g 0.5`, or `--fgpu 1` to count in fGPU")
    with told_by_options():
        session = sessions.update(name, project=chosen, gpu_milli=wanted)
    while wait and session["resize_milli"] is not None:
        time.sleep(WAIT_STEP_S)
        session = sessions.get(name, project=chosen)
    output.show(session, form, lambda _: print(f"{name}: {_share(session)}"))
    if wait and session["gpu_milli"] != wanted:
        raise ConflictError(session["reason"] or f"{name} is {status(session)}", hint="ask for another share")


def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of the sessions.", autocompletion=complete_sessions)
    ],
    *,
    project: ProjectOption = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Sessions that are not there are no error.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete sessions: end those that live, and take ended ones off the list; those that are not there are named."""
    remembered = config.load()
    chosen = remembered.project_or(project)
    deleted: list[Session] = []
    refused: list[PenstockError] = []
    for name in names:
        try:
            deleted.append(remembered.client.sessions.delete(name, project=chosen))
        except PenstockError as error:
            if not (ignore_not_found and isinstance(error, NotFoundError)):
                refused.append(error)
        else:
            if form is Format.TABLE:
                print(f"{name}: {status(deleted[-1])}")
    if form is Format.JSON:
        output.print_json(deleted)
    if refused:
        # the first says what kind all of it is: what is not there matters least
        refused.sort(key=lambda error: isinstance(error, NotFoundError))
        raise type(refused[0]).of([problem for error in refused for problem in error.problems])


def status(session: SessionEntry) -> str:
    """Return a session's state as people know it: `Pending`, `ContainerCreating`, `Running` ..."""
    return STATES.get(session["state"], session["state"].capitalize())


def _table(sessions: list[SessionEntry]) -> None:
    output.print_table(HEAD, [_row(session) for session in sessions], BELOW)
    for session in sessions:
        if session["reason"] and session["state"] == "PENDING":
            print(f"{session['name']} waits: {output.plain(session['reason'])}")


def _row(session: SessionEntry) -> tuple[str, ...]:
    return (
        session["name"],
        status(session),
        output.age(session["created_at"]),
        _place(session),
        session["image"],
        session["kind"].capitalize(),
        session["project"],
        session["user"],
        format_gpus(session["gpu_milli"] * session["replicas"]),
        "true" if session["created_by_cli"] else "false",
        output.listed(session["urls"]),
    )


def _place(session: SessionEntry) -> str:
    nodes = _nodes(session)
    return f"{nodes[0]} +{len(nodes) - 1}" if len(nodes) > 1 else output.listed(nodes)


def _nodes(session: SessionEntry) -> list[str]:
    return list(dict.fromkeys(container["node"] for container in session["containers"]))


def _sandbox(session: Session) -> str:
    if not session["denied"]:
        return session["sandbox"]
    which = f"managers of the project see which: penstock denied-calls {session['name']}"
    return f"{session['sandbox']}, which denied {session['denied']} system calls ({which})"


def _fields(session: Session) -> None:
    exit_code = session["exit_code"]
    containers = session["containers"]
    output.print_fields(
        (
            ("Name", session["name"]),
            ("Status", status(session)),
            ("Reason", session["reason"]),
            ("Queue position", str(session["position"] or "")),
            ("Attempt", str(session["attempt"] + 1) if session["attempt"] else ""),
            ("Interrupted", _interruption(session)),
            ("Does not grow", session["not_grown"]),
            ("Project", session["project"]),
            ("User", session["user"]),
            ("Access", session["access"]),
            ("Type", f"{session['kind']}, priority {session['priority']}"),
            ("Image", session["image"] + (", of the node" if session["local_image"] else "")),
            ("Command", shlex.join([*(session["command"] or []), *session["args"]])),
            ("Environment", ", ".join(session["environment"])),
            *(("Mount", _mount(mount)) for mount in session["mounts"]),
            ("Containers", _gang(session)),
            ("Asked for", _ways(session)),
            ("Preset", session["preset"]),
            ("Sandbox", _sandbox(session)),
            ("GPUs", _share(session)),
            ("Taken of GPUs", _taken(session)),
            ("Enforcement", _enforcement(session)),
            ("GPU models", ", ".join(session["gpu_models"])),
            ("CPUs", f"{session['cpu_milli'] / MILLI:g}" if session["cpu_milli"] else ""),
            ("Memory", output.gib(session["memory_mib"]) if session["memory_mib"] else ""),
            ("Shared memory", f"{session['shm_mib']} MiB"),
            ("Disk", output.gib(session["disk_mib"]) if session["disk_mib"] else ""),
            ("Resource group", session["group"]),
            ("Nodes" if len(_nodes(session)) > 1 else "Node", ", ".join(_nodes(session))),
            *(("On", _gpu_share(gpu)) for gpu in (containers[0]["gpus"] if len(containers) == 1 else ())),
            *(("Warning", container["warning"]) for container in containers),
            *nccl.fields(containers),
            *(("URL", url) for url in session["urls"]),
            ("Created", output.moment(session["created_at"])),
            ("Starts at", output.moment(session["starts_at"])),
            ("Started", output.moment(session["started_at"])),
            ("Time limit", _limit(session)),
            ("Finished", output.moment(session["finished_at"])),
            ("Exit code", "" if exit_code is None else str(exit_code)),
        )
    )
    if len(containers) > 1:
        print()
        head = ("CONTAINER", "NODE", "STATUS", "GPUS", "EXIT CODE", "ERROR")
        output.print_table(head, [_container(container) for container in containers], below=("ERROR",))


def _interruption(session: Session) -> str:
    """Return when and why it was put back into the queue the last time."""
    since = session["interrupted_at"]
    return f"{output.moment(since)}, {session['interrupted']}" if since else ""


def _mount(mount: Mount) -> str:
    what = f"volume {mount['volume']}" if mount["volume"] else f"{mount['source']} of the node"
    return f"{mount['target']}: {what}" + (", for reading only" if mount["read_only"] else "")


def _share(session: Session) -> str:
    """Return the GPUs of one container, and what they are being changed to."""
    changing = session["resize_milli"]
    following = "" if changing is None else f", changing to {format_gpus(changing)}"
    return format_gpus(session["gpu_milli"]) + following


def _taken(session: Session) -> str:
    """Return what the session takes of GPUs where that is not what it asks for: a MIG device counts whole."""
    taken = session["held_milli"]
    return "" if taken in (0, session["gpu_milli"] * session["replicas"]) else format_gpus(taken)


def _enforcement(session: Session) -> str:
    """Return how its shares are held, or how they have to be at least."""
    kinds = dict.fromkeys(container["enforcement"] or "" for container in session["containers"])
    found = ", ".join(kind for kind in kinds if kind)
    wanted = "" if session["enforcement"] == "none" else f"{session['enforcement']} or better"
    return f"{found}, asked for: {wanted}" if found and wanted else found or wanted


def _gang(session: Session) -> str:
    if session["replicas"] == 1 and not session["max_replicas"]:
        return ""
    where = "" if session["within"] == "anywhere" else f", within a {session['within']}"
    wish = " where it can be" if where and not session["within_required"] else ""
    elastic = f" of {session['min_replicas']} to {session['max_replicas']}" if session["max_replicas"] else ""
    return f"{session['replicas']}{elastic}{where}{wish}, each with:"


def _ways(session: Session) -> str:
    """Return the ways between GPUs that it asked for."""
    p2p = {True: "P2P by NVLink", False: "no P2P", None: ""}[session["p2p"]]
    return ", ".join(filter(None, (p2p, "RDMA" if session["rdma"] else "")))


def _limit(session: Session) -> str:
    if not session["expires_at"]:
        return f"{output.duration(session['limit_s'])} from its start" if session["limit_s"] else ""
    extended = f", extended by {output.duration(session['extended_s'])}" if session["extended_s"] else ""
    return output.moment(session["expires_at"]) + extended


def _container(container: Container) -> tuple[str, ...]:
    exit_code = container["exit_code"]
    return (
        str(container["rank"]),
        container["node"],
        (container["status"] or "waits").capitalize(),
        output.listed([f"{format_gpus(gpu['milli'])} of {gpu['uuid']}" for gpu in container["gpus"]]),
        "-" if exit_code is None else str(exit_code),
        container["error"],
    )


def _gpu_share(gpu: GpuShare) -> str:
    """Return a part of a GPU with what it is of, and how much memory that gives."""
    what = f"{gpu['model']} {gpu['profile']}".strip()
    memory = "" if gpu["memory_mib"] is None else f"{gpu['memory_mib']} MiB"
    more = ", ".join(part for part in (what, memory) if part)
    return f"{format_gpus(gpu['milli'])} of {gpu['uuid']}" + (f" ({more})" if more else "")
