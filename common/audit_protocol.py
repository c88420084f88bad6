"""The protocol of API and node agent: how far nodes have seen the audit log go. Pure."""

from __future__ import annotations

from pydantic import Field

from common.messages import Report

AUDIT_HEADS_PATH = "/v1/audit-heads"
"""GET → AuditHeads: how far this node has seen the site's audit log go."""
AUDIT_HEAD_HEADER = "X-Penstock-Audit-Head"
"""With each answer to a heartbeat: `SEQ:CODE` of the audit log's last line; nothing where none is kept. It is no key of
the reply, for agents of the last release refuse keys that they do not know, and a repeated heartbeat has no reply."""


class AuditHead(Report):
    """A line of the audit log by its number and its code."""

    seq: int = Field(ge=0)
    mac: str = Field(pattern=r"^[0-9a-f]{64}$")


class AuditHeads(Report):
    """Lines of the audit log that a node was told of as the last ones, oldest first."""

    heads: list[AuditHead] = Field(default_factory=list, max_length=1000)
