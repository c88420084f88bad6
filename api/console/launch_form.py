"""The form that launches sessions: what a browser sends of it, and the request of the API that this is."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, Json

from api.console import forms, shares
from api.resources.sessions.schemas import MAX_BATCH
from api.settings import Settings
from api.tables.sessions import Kind
from common.errors import InputError
from common.hints import hinted
from common.sentence import Sentence

HOUR_S = 3600
GIB = 1024
"""MiB."""
VOLUMES = 32
"""Most volumes of a session, as the API says."""
MAX_COMMAND = 1 << 14
"""Most characters of a command: taking it apart costs the square of its length."""
MAX_ENVIRONMENT = 1 << 17
MAX_SHARES = 1 << 13
"""Most characters of a list of shares: of the finest granularity."""
OTHERS = ("disk_mib", "priority", "preemptible", "within", "within_required", "enforcement", "volumes")
"""Fields of a request that the form says only together, as another session had them."""

_SHARES = hinted(Sentence("load the page again"), Sentence("is no list of shares"))
Line = Annotated[str, Field(max_length=1024)]
Command = Annotated[str, Field(max_length=MAX_COMMAND)]
Amount = Annotated[float, Field(ge=0, le=1 << 20)]


class Offered(BaseModel):
    """A place of the slider in the list of shares that its page offered, 0 none."""

    share: int = Field(default=0, ge=0)
    shares: Annotated[str, Field(max_length=MAX_SHARES, pattern=r"^(\d{1,5}(,\d{1,5})*)?$"), _SHARES] = ""


class LaunchForm(Offered):
    """The form as a browser sends it.

    `cpu` are cores, `memory` and `shm` GiB, `max_replicas` is empty where the number of containers stays, and `start`
    is UTC. `environment` has a variable a line. `others` is what the form has no field for.
    """

    name: Line = ""
    project: Line = ""
    image: Line = ""
    preset: Line = ""
    kind: Kind = Kind.INTERACTIVE
    cpu: float | None = Field(default=None, ge=0, le=4096)
    memory: Amount | None = None
    shm: Amount | None = None
    replicas: int = 1
    max_replicas: int | None = None
    count: int = Field(default=1, ge=1, le=MAX_BATCH)
    command: Command = ""
    args: Command = ""
    environment: Annotated[str, Field(max_length=MAX_ENVIRONMENT)] = ""
    ports: Line = ""
    hours: float | None = Field(default=None, gt=0, le=8784)
    start: datetime | None = None
    volume: list[Line] = Field(default=[], max_length=VOLUMES)
    target: list[Line] = Field(default=[], max_length=VOLUMES)
    group: Line = ""
    gpu_models: list[Line] = Field(default=[], max_length=VOLUMES)
    access: Literal["", "project", "private"] = ""
    p2p: bool | None = None
    rdma: bool = False
    others: Json[dict[str, Any]] | None = None


def body(form: LaunchForm, settings: Settings) -> dict[str, Any]:
    """Return the body of the API's request; what was left empty is left out. Raises InputError."""
    asked: dict[str, Any] = {field: (form.others or {})[field] for field in OTHERS if field in (form.others or {})}
    asked |= {name: getattr(form, name) for name in ("name", "project", "image", "kind", "replicas", "gpu_models")}
    asked |= {name: value for name in ("preset", "group", "access") if (value := getattr(form, name))}
    asked |= {name: value for name in ("max_replicas", "p2p") if (value := getattr(form, name)) is not None}
    if form.rdma:
        asked["rdma"] = True
    if form.share or not form.preset:
        asked["gpu_milli"] = milli(form, settings)
    for field, amount, parts in (
        ("cpu_milli", form.cpu, 1000),
        ("memory_mib", form.memory, GIB),
        ("shm_mib", form.shm, GIB),
    ):
        if amount is not None:
            asked[field] = forms.whole(field, amount, parts)
    if form.hours is not None:
        asked["limit_s"] = round(form.hours * HOUR_S)
    if form.start is not None:
        asked["starts_at"] = form.start if form.start.tzinfo else form.start.replace(tzinfo=UTC)
    for field in ("command", "args"):
        if words := _words(field, getattr(form, field)):
            asked[field] = words
    asked["environment"] = _environment(form.environment)
    asked["ports"] = [_port(word) for word in forms.names(form.ports)]
    pairs = zip(form.volume, form.target, strict=False)
    asked["pvcs"] = [_pvc(name, target) for name, target in pairs if name or target]
    return asked


def milli(chosen: Offered, settings: Settings) -> int:
    """Return the milli-GPU that the slider stands on; raises InputError."""
    # a page of an earlier release says nothing of its list, which had all steps
    offered = [int(milli) for milli in chosen.shares.split(",")] if chosen.shares else shares.steps(settings)
    if chosen.share > len(offered):
        raise InputError(Sentence("there is no such share"), where="gpu_milli", hint=Sentence("choose one of the list"))
    return offered[chosen.share - 1] if chosen.share else 0


def _words(field: str, command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        raise InputError(
            Sentence("a quotation mark has no other end"),
            where=field,
            hint=Sentence('close it, as in sh -c "echo hello"'),
        ) from None


def _environment(lines: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines.split("\n"), 1):
        name, said, value = line.removesuffix("\r").partition("=")
        if not said and not name.strip():
            continue
        if not said:
            # what stands there may be a value without its name, which nobody is told
            raise InputError(
                Sentence("line {number} has no value", number=number),
                where="environment",
                hint=Sentence("write NAME=VALUE, or take the line out"),
            )
        if name in found:
            raise InputError(
                Sentence("{name} has two values", name=name),
                where="environment",
                hint=Sentence("take one of the lines out"),
            )
        found[name] = value
    return found


def _pvc(name: str, target: str) -> dict[str, Any]:
    folder = target.removesuffix(":ro")
    return {"name": name, "target": folder, "read_only": folder != target}


def _port(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 5):
        raise InputError(
            Sentence("{word} is no port", word=word), where="ports", hint=Sentence("write numbers such as 8888, 6006")
        )
    return int(word)
