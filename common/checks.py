"""Checks: things that were looked at, of one form for preflight, a site's verification and its health. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    """What a check came to. `unknown` means that it could not be looked at, which is not good either."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


GOOD = (CheckState.OK, CheckState.WARN)
"""States that a site may be handed over with."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    `id` is what programs know it by, `name` what it claims, `subject` what it is about: a node, or a thing of one.
    `evidence` is what was seen, `hint` what to do about it, `repair` the id of the repair for it, if there is one.
    `since` is the first moment at which it was known to have this state.
    """

    id: str
    name: str
    state: CheckState
    evidence: str
    hint: str = ""
    subject: str = ""
    repair: str = ""
    since: str = ""

    @classmethod
    def of(
        cls, identity: str, name: str, *, ok: bool, evidence: str, hint: str = "", subject: str = "", repair: str = ""
    ) -> Check:
        """Return a check that holds or fails; hint and repair are for one that fails."""
        if ok:
            return cls(identity, name, CheckState.OK, evidence, subject=subject)
        return cls(identity, name, CheckState.FAIL, evidence, hint, subject, repair)

    @property
    def ok(self) -> bool:
        """Say whether it is as it should be, or near enough."""
        return self.state in GOOD

    @property
    def key(self) -> str:
        """What tells it from the others of its node."""
        return f"{self.id} {self.subject}"
