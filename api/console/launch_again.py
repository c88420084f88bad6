"""Forms that are filled in as another session was submitted, with what cannot be taken over of it any more."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from api.clock import now
from api.console.launch_form import GIB, HOUR_S, OTHERS
from api.resources.sessions import defaults
from api.resources.sessions.service import PRIORITY
from api.resources.sessions.views import SessionView
from api.settings import Settings
from api.tables.sessions import ENDED, Kind
from common.again import AMOUNTS, request_like
from common.gpu.share import format_gpus
from common.protocol import DEFAULT_SHM_MIB
from common.sentence import Sentence

EMPTY: Mapping[str, Any] = {
    **dict.fromkeys(("name", "project", "image", "preset", "command", "args", "environment", "ports", "start"), ""),
    **dict.fromkeys(("group", "access", "others"), ""),
    **dict.fromkeys(("kind", "cpu", "memory", "shm", "max_replicas", "hours", "p2p", "template")),
    **dict.fromkeys(("gpu_models", "volumes"), ()),
    "replicas": 1,
    "rdma": False,
    "rest": {},
    "notes": {},
}
"""What a form shows that nothing is known for."""

SELDOM = ("args", "max_replicas", "start", "memory", "shm", "group", "gpu_models", "access", "environment", "others")
"""Fields that few need, which are folded up while there is nothing in them."""


def is_unfolded(filled: Mapping[str, Any]) -> bool:
    """Return whether there is something in a field that few need, or to be said of it."""
    about = {*SELDOM, "p2p", "rdma"}
    return (
        any(filled[field] for field in SELDOM)
        or filled["p2p"] is not None
        or filled["rdma"]
        or bool(about & filled["notes"].keys())
    )


def filled(
    session: SessionView, choices: Mapping[str, Any], settings: Settings, usual_memory_mib: int
) -> dict[str, Any]:
    """Return what the form shows so that a session like this one is launched, and `notes` beside its fields."""
    asked = request_like(session.model_dump(mode="json"), now())
    notes: dict[str, Sentence] = {}
    values = {**EMPTY, "kind": Kind(asked["kind"]), "notes": notes}
    if session.state in ENDED:
        values["name"] = session.name
    _take_choices(values, asked, choices, notes)
    _take_amounts(values, asked, choices, {"shm_mib": DEFAULT_SHM_MIB, "memory_mib": usual_memory_mib})
    if asked.get("disk_mib") == defaults.disk_mib(session.gpu_milli, session.cpu_milli, settings):
        del asked["disk_mib"]
    values |= {field: asked.get(field) for field in ("replicas", "max_replicas")}
    values |= {field: shlex.join(asked.get(field) or []) for field in ("command", "args")}
    values["ports"] = ", ".join(map(str, asked.get("ports", [])))
    if "limit_s" in asked:
        values["hours"] = _number(asked["limit_s"] / HOUR_S)
    if "starts_at" in asked:
        values["start"] = datetime.fromisoformat(asked["starts_at"]).strftime("%Y-%m-%dT%H:%M")
    if session.environment:
        values["environment"] = "\n".join(session.environment)
        notes["environment"] = Sentence("values are shown to nobody: write them again, as NAME=VALUE")
    _take_volumes(values, asked, choices)
    rest = _rest(asked)
    return values | {"rest": rest, "others": json.dumps(rest) if rest else ""}


def note_share(values: Mapping[str, Any], milli: int, shares: Collection[int]) -> None:
    """Note the share of a session that the slider does not have."""
    if milli and milli not in shares:
        values["notes"]["share"] = Sentence("it had {gpus} GPU, which is not offered", gpus=format_gpus(milli))


def _take_choices(
    values: dict[str, Any], asked: Mapping[str, Any], choices: Mapping[str, Any], notes: dict[str, Sentence]
) -> None:
    """Take over what is still there to be chosen, and note the rest."""
    there = {
        "project": [project.name for project in choices["projects"]],
        "image": [] if asked.get("local_image") else choices["images"],
        "preset": choices["presets"],
        "group": choices["groups"],
    }
    for field, offered in there.items():
        if not (wanted := asked.get(field)):
            continue
        if wanted in offered:
            values[field] = wanted
        else:
            notes[field] = Sentence("{name} is not offered any more", name=wanted)
    usual = {project.name: project.session_access for project in choices["projects"]}
    if asked["access"] != usual.get(asked["project"]):
        values["access"] = asked["access"]
    wanted_models = asked.get("gpu_models", [])
    values["gpu_models"] = [model for model in wanted_models if model in choices["models"]]
    for model in wanted_models:
        if model not in choices["models"]:
            notes["gpu_models"] = Sentence("{name} is not offered any more", name=model)
    for field in ("p2p", "rdma"):
        if field in choices["ways"]:
            values[field] = asked.get(field, values[field])
        elif asked.get(field):
            notes[field] = Sentence("{name} is not offered any more", name=field.upper())


def _take_amounts(
    values: dict[str, Any], asked: dict[str, Any], choices: Mapping[str, Any], usual: Mapping[str, int]
) -> None:
    """Take over amounts, without those that a preset or the site says as well."""
    said: dict[str, Any] = dict(usual)
    if values["preset"]:
        preset = choices["presets"][values["preset"]][0]
        if preset.gpu_milli and not asked["gpu_milli"]:
            # none at the slider is what the preset says
            values["preset"] = ""
        else:
            said |= {field: amount for field in AMOUNTS if (amount := getattr(preset, field))}
    for field, name, parts in (("cpu_milli", "cpu", 1000), ("memory_mib", "memory", GIB), ("shm_mib", "shm", GIB)):
        if asked.get(field) and asked[field] != said.get(field):
            values[name] = _number(asked[field] / parts)
    values["gpu_milli"] = 0 if asked["gpu_milli"] == said.get("gpu_milli") else asked["gpu_milli"]
    if asked.get("enforcement") == said.get("enforcement"):
        asked.pop("enforcement", None)


def _take_volumes(values: dict[str, Any], asked: Mapping[str, Any], choices: Mapping[str, Any]) -> None:
    there = choices["volumes"].get(asked["project"], [])
    values["volumes"] = [
        {
            "name": pvc["name"],
            "target": pvc["target"] + (":ro" if pvc["read_only"] else ""),
            "note": None if pvc["name"] in there else Sentence("{name} is not there any more", name=pvc["name"]),
        }
        for pvc in asked.get("pvcs", [])
    ]


def _rest(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the form has no field for and is not as usual."""
    kind = Kind(asked["kind"])
    usual = {"priority": PRIORITY[kind], "preemptible": kind is Kind.TRAINING}
    return {field: asked[field] for field in OTHERS if field in asked and asked[field] != usual.get(field)}


def _number(value: float) -> str:
    return f"{value:.15g}"
