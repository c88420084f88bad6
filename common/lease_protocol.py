"""Leases as API, Slurm's steps and agents name them to each other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from uuid import UUID

KIND = "penstock"
LEASE_ENDED = "its lease has ended"
"""Why containers are `lost` whose place was withdrawn: the `error` begins so."""
HOLDER = "/usr/lib/penstock/hold-lease"
"""What the step of a job runs on each node: it holds the job's lease at the node's agent."""


@dataclass(frozen=True, order=True)
class Lease:
    """The right to the places of one attempt of a session."""

    session_id: UUID
    attempt: int

    def __str__(self) -> str:
        """Return what jobs are found again by, and containers and steps name their lease by."""
        return f"{KIND}:{self.session_id}:{self.attempt}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the lease that a text names; None where it names none."""
        kind, _, rest = text.partition(":")
        session_id, _, attempt = rest.partition(":")
        if kind != KIND or not (attempt.isascii() and attempt.isdecimal()):
            return None
        try:
            return cls(UUID(session_id), int(attempt))
        except ValueError:
            return None
