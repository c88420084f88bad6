"""The filter of one container, or of one command in it, that asks the agent: it outlives an agent that is restarted.

Two descriptors are kept: that of the filter, and a file in memory with what is known of it. There the call stands, too,
that was taken and not answered yet: nobody is told of it again, and its thread would wait for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from appliance.agent.sandbox import seccomp_notify
from appliance.agent.sandbox.confinement import Confinement
from appliance.agent.sandbox.seccomp_notify import Call

_PREFIX = "sandbox-"
_MEMORY = "penstock-sandbox"
_TOKEN_BYTES = 8
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class AuditedFilter:
    """A filter, whose sandbox it is, and the file that has both; `name` is what it is kept by."""

    descriptor: int
    confinement: Confinement
    memory: int
    name: str = field(default_factory=lambda: f"{_PREFIX}{uuid.uuid4().hex}")

    @classmethod
    def new(cls, descriptor: int, confinement: Confinement) -> Self:
        """Return the filter that a runtime has handed over; raises OSError."""
        memory = os.memfd_create(_MEMORY, os.MFD_CLOEXEC)
        try:
            os.pwrite(memory, confinement.model_dump_json().encode(), _TOKEN_BYTES)
            os.pwrite(memory, bytes(_TOKEN_BYTES), 0)
        except OSError:
            os.close(memory)
            raise
        return cls(descriptor, confinement, memory)

    @classmethod
    def kept(cls, name: str, descriptors: Sequence[int]) -> Self:
        """Return what was kept by a name, after answering the call that an agent before has left.

        Raises ValueError and OSError where it is no filter any more; the descriptors are left to the caller.
        """
        memories = [each for each in descriptors if _MEMORY in str(Path(f"/proc/self/fd/{each}").readlink())]
        filters = [each for each in descriptors if each not in memories]
        if not name.startswith(_PREFIX) or len(memories) != 1 or len(filters) != 1:
            raise ValueError("its processes have ended")
        confinement = Confinement.model_validate_json(os.pread(memories[0], _MOST_BYTES, _TOKEN_BYTES))
        found = cls(filters[0], confinement, memories[0], name)
        if token := int.from_bytes(os.pread(memories[0], _TOKEN_BYTES, 0), "little"):
            found.refuse(Call(token, 0, 0, 0, ()), errno.ENOSYS)
        return found

    @property
    def descriptors(self) -> tuple[int, int]:
        """What is to be kept."""
        return self.descriptor, self.memory

    def receive(self) -> Call | None:
        """Return the next call; None where its process has ended meanwhile. Raises OSError."""
        call = seccomp_notify.receive(self.descriptor)
        if call:
            os.pwrite(self.memory, call.token.to_bytes(_TOKEN_BYTES, "little"), 0)
        return call

    def refuse(self, call: Call, number: int) -> None:
        """Let a call end with the errno `number`; raises OSError."""
        seccomp_notify.refuse(self.descriptor, call, number)
        os.pwrite(self.memory, bytes(_TOKEN_BYTES), 0)

    def close(self) -> None:
        """Close both descriptors of this process."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
