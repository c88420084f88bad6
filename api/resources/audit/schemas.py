"""Answers about the audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.resources.schemas import View


class AuditChangeView(View):
    """What changed in one row: of a table `kind`, named by `subject`; the audited values before and after."""

    kind: str
    subject: dict[str, str]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class AuditEntryView(View):
    """A line of the audit log: who did what, from where, on what, with what result.

    `credential` is the key or login used, `domains` are those that it concerns, `nodes` those that it touched, where
    its session runs, too. `left_out` counts the attempts like this one that are not told, and `objects` are what these
    were about, as far as they are named. `previous` and `mac` are the codes of the line before and of this one.
    """

    seq: int
    time: str
    user: str
    role: str
    domain: str | None
    credential: str
    address: str
    action: str
    method: str
    object: str
    project: str | None
    result: str
    status: int
    reason: str
    request: str
    domains: list[str]
    nodes: list[str] = Field(default=[])
    changes: list[AuditChangeView]
    more_changes: bool = False
    left_out: int = 0
    objects: list[str] = Field(default=[])
    deleted: dict[str, Any] | None = None
    previous: str
    mac: str


class AuditFileView(View):
    """A file of the audit log: its day in UTC, and its size in bytes."""

    day: str
    size: int


class AuditFindingView(View):
    """Something that is not as it was written: in the file of a day, a line of it; 0 is the file as a whole."""

    day: str
    line: int
    what: str


class AuditVerificationView(View):
    """What the whole log comes to: how many lines are as they were written, the last number, and what is wrong.

    It was held against what the nodes have seen of it, but for those that are `unheard`.
    """

    ok: bool
    lines: int
    last: int
    findings: list[AuditFindingView]
    more_findings: int = 0
    deleted: list[dict[str, Any]]
    unheard: list[str] = Field(default=[])
