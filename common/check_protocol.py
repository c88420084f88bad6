"""The protocol of API and node agent: checks of a node, as they are told. Pure."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, field_validator

from common.checks import Check, CheckState
from common.messages import MAX_REASON, Brief, Report, Why

MAX_CHECKS = 500
"""Most checks of a node: eight of each GPU and link, and those of the machine."""


def _in_one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class CheckReport(Report):
    """A check of a node, as `common.checks.Check` says; `thing` is what of the node it is about.

    `since` is when what it tells of occurred, where its look knows that, as by a log.
    """

    id: Brief = Field(min_length=1)
    name: Brief
    state: CheckState
    thing: Brief = ""
    evidence: Why = ""
    hint: Why = ""
    repair: Brief = ""
    since: datetime | None = None

    @classmethod
    def of(cls, check: Check) -> CheckReport:
        """Return a check as it is reported, its texts in one line: a program's words may have anything in them."""
        return cls(
            id=check.id,
            name=check.name,
            state=check.state,
            thing=check.subject,
            evidence=_in_one_line(check.evidence),
            hint=_in_one_line(check.hint),
            repair=check.repair,
            since=datetime.fromisoformat(check.since) if check.since else None,
        )

    @field_validator("state", mode="before")
    @classmethod
    def _lenient(cls, value: object) -> object:
        """Take a state that only a later release knows for one that is not known."""
        return value if value in list(CheckState) else CheckState.UNKNOWN

    @field_validator("id", "name", "thing", "evidence", "hint", "repair")
    @classmethod
    def _text(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("a NUL character is not text")
        return value

    @field_validator("evidence", "hint", mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return value[:MAX_REASON] if isinstance(value, str) else value
