"""Settings of the audit log that a site chooses: the part `audit` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.settings.options import AbsolutePath
from common.strict import StrictModel

Protocol = Literal["tls", "tcp", "udp"]


class AuditSettings(StrictModel):
    """For how long the audit log is kept, and which syslog server has it, too."""

    audit_keep_days: int = Field(
        default=730, ge=1, description="files of more days ago are deleted, and the log says which lines they had"
    )
    audit_keep_mib: int = Field(
        default=0,
        ge=0,
        description="likewise the oldest ones where all files are larger, but for the last; 0: any size",
    )
    audit_syslog: str | None = Field(
        default=None,
        pattern=r"^[^\s:/]+(:[0-9]+)?$",
        description="`HOST` or `HOST:PORT` of a syslog server that gets each line (RFC 5424)",
    )
    audit_syslog_protocol: Protocol = Field(
        default="tls",
        description="how it is sent: `tls` (RFC 5425, port 6514), `tcp` (RFC 6587, octet counting, port 601), in "
        "clear; or `udp` (RFC 5426, port 514), by which lines get lost unseen",
    )
    audit_syslog_ca: AbsolutePath | None = Field(
        default=None, description="file of the master with the authority of its certificate, PEM"
    )
    audit_syslog_certificate: bool = Field(
        default=False,
        description="whether the server is shown the master's own certificate, which the site's authority has signed",
    )
