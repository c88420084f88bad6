"""Labels of a session's container. Pure.

They are the only memory of the agent: whatever it must know after a restart stands in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from common.errors import InputError
from common.protocol import ContainerSpec

PREFIX = "io.penstock."
"""Where the names of all our labels begin. Nobody else writes such ones, images least of all."""
LABEL_ID = f"{PREFIX}id"
LABEL_SESSION = f"{PREFIX}session"
LABEL_SESSION_NAME = f"{PREFIX}session-name"
LABEL_PROJECT = f"{PREFIX}project"
LABEL_USER = f"{PREFIX}user"
LABEL_GPUS = f"{PREFIX}gpus"
LABEL_PORTS = f"{PREFIX}ports"
LABEL_DIGEST = f"{PREFIX}spec"
LABEL_ENFORCEMENT = f"{PREFIX}enforcement"
LABEL_CORES = f"{PREFIX}cores"
LABEL_CPU_MILLI = f"{PREFIX}cpu-milli"
LABEL_DISK_MIB = f"{PREFIX}disk-mib"
LABEL_NETWORK = f"{PREFIX}network"
LABEL_BOOT = f"{PREFIX}boot"
LABEL_LEASE = f"{PREFIX}lease"

_NAME_PREFIX = "penstock-"


def name_of(identity: str) -> str:
    """Return the name that a runtime knows the container of one id by."""
    return f"{_NAME_PREFIX}{identity}"


def id_of(name: str) -> str:
    """Return the id of the container that a runtime knows by a name of ours."""
    return name.removeprefix(_NAME_PREFIX)


def digest_of(spec: ContainerSpec) -> str:
    """Return a hash of a spec; fields at their default do not count, so that new ones may be added."""
    return hashlib.sha256(spec.written().encode()).hexdigest()


def check_image(image: str, labels: Iterable[str]) -> None:
    """Refuse an image that has labels of ours, for its containers would have them too; raises InputError."""
    if forged := sorted(label for label in labels if label.startswith(PREFIX)):
        raise InputError(
            f"the image {image} has labels that Penstock alone may write: {', '.join(forged)}",
            where="image",
            hint=f"build it without labels that begin with {PREFIX}",
        )
