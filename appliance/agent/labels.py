"""Labels of a session's container, which every runtime writes. Pure.

They are the only memory of the agent: whatever it must know after a restart stands in them.
"""

from __future__ import annotations

import hashlib

from common.protocol import ContainerSpec

LABEL_ID = "io.penstock.id"
LABEL_SESSION = "io.penstock.session"
LABEL_SESSION_NAME = "io.penstock.session-name"
LABEL_PROJECT = "io.penstock.project"
LABEL_USER = "io.penstock.user"
LABEL_GPUS = "io.penstock.gpus"
LABEL_PORTS = "io.penstock.ports"
LABEL_DIGEST = "io.penstock.spec"


def name_of(identity: str) -> str:
    """Return the name that a runtime knows the container of one id by."""
    return f"penstock-{identity}"


def digest_of(spec: ContainerSpec) -> str:
    """Return a hash of a spec; fields at their default do not count, so that new ones may be added."""
    return hashlib.sha256(spec.model_dump_json(exclude_defaults=True).encode()).hexdigest()
