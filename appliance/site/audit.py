"""Audit log of a site: the part `audit` of `site.yml`. Pure: no file, no network."""

from __future__ import annotations

from common.settings.audit import AuditSettings
from common.settings.options import keys_without


class Audit(AuditSettings):
    """For how long the audit log is kept, and which syslog server has it, too."""

    model_config = keys_without("audit_")
