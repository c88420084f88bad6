"""Requests like the one that another session was submitted with, changed by options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from appliance.client.views import Session
from common.again import AMOUNTS, request_like
from common.errors import InputError

_GO_WITH = {
    "image": ("local_image",),
    "kind": ("priority", "preemptible"),
    "interactive": ("kind", "priority", "preemptible"),
    "preset": AMOUNTS,
    "large_shm": ("shm_mib",),
    "replicas": ("max_replicas",),
    "command": ("args",),
    "within": ("within_required",),
}
"""What is of no use any more where an option says something else of this field."""


def changed(session: Session, options: Mapping[str, Any], image: str | None) -> dict[str, Any]:
    """Return the request for a session like one, but for what options say.

    Raises InputError for variables that the options leave out: nobody is told their values.
    """
    said = dict(options) | ({} if image is None else {"image": image})
    _check_variables(session, said.get("environment", {}))
    dropped = {field for option in said for field in _GO_WITH.get(option, ())}
    like = {field: value for field, value in request_like(session, datetime.now(UTC)).items() if field not in dropped}
    return like | said


def _check_variables(session: Session, said: Collection[str]) -> None:
    if missing := [name for name in session["environment"] if name not in said]:
        raise InputError(
            f"{session['name']} was submitted with {', '.join(missing)}, and values of variables are told to nobody",
            where="--env",
            hint=" ".join(["write", *(f"-e {name}=VALUE" for name in missing)]),
        )
