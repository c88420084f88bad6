"""Checks of what a container mounts, before it is made: whether it may, and whether the storage is there.

Storage that does not answer holds up the sessions that want it, and nothing else of this node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from anyio import CapacityLimiter, to_thread

from appliance.agent import admission
from appliance.agent.docker import mount_sources
from appliance.agent.storages import MissingStorageError, Storages
from common.errors import InputError, Problem
from common.protocol import ContainerSpec

AT_ONCE = 4


class MountChecks:
    """What containers of this node may mount."""

    def __init__(self, roots: Sequence[Path], storages: Storages) -> None:
        """Prepare: mounts lie below `roots`, in `storages` or not."""
        self._roots = roots
        self._storages = storages
        self._threads = CapacityLimiter(AT_ONCE)

    async def admit(self, spec: ContainerSpec) -> None:
        """Refuse mounts that no session may have here; raises InputError.

        Of storage that is not there nothing is known, and the launch ends by that.
        """
        if spec.mounts:
            with contextlib.suppress(MissingStorageError):
                await self.require_storages(spec)
                await to_thread.run_sync(check, spec, self._roots, self._storages, limiter=self._threads)

    async def require_storages(self, spec: ContainerSpec) -> None:
        """Refuse what mounts storage that is not there now; raises MissingStorageError."""
        await self._storages.check(Path(mount.source) for mount in spec.mounts)


def check(spec: ContainerSpec, roots: Sequence[Path], storages: Storages) -> None:
    """Refuse mounts that lie outside of the roots, are a storage as a whole, or hide the system; raises InputError."""
    problems = [*_forbidden(spec, roots, storages)]
    if problems:
        raise InputError.of(problems)


def _forbidden(spec: ContainerSpec, roots: Sequence[Path], storages: Storages) -> Iterable[Problem]:
    for position, mount in enumerate(spec.mounts):
        where, what = f"mounts.{position}.source", f"what it mounts at {mount.target}"
        source = mount_sources.real(Path(mount.source))
        # a link inside of a volume must not lead out of it
        if mount_sources.root_of(source, roots) is None:
            yield Problem(where, f"{what} is outside of the folders that may be mounted", "mount a folder below one")
        elif storages.is_root(source):
            # it could write the marker, and has the volumes of every project
            yield Problem(where, f"{what} is a storage as a whole", "mount a folder in it")
        yield from admission.hidden_system(position, mount)
