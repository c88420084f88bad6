"""Tables of the audit log before it is in its files: what people did, and what that changed.

Triggers note changes, so that nothing that writes to a table can leave its line out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Identity, String, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.clock import now
from api.tables.base import Base

AUDITED: dict[str, tuple[str, ...]] = {
    "api_keys": ("name", "prefix", "scope", "expires_at", "user_id"),
    "backup_orders": ("action", "backup", "user_name"),
    "domains": (
        *("name", "description", "quota_milli", "policy", "shares", "over_quota_weight", "limit_milli"),
        "claims_spare",
    ),
    "health_checks": (
        "node_name",
        "name",
        "thing",
        "state",
        "acknowledged_until",
        "acknowledged_by",
        "comment",
        "cleared_at",
    ),
    "resource_group_nodes": ("group_id", "node_id"),
    "resource_group_projects": ("group_id", "project_id"),
    "resource_group_users": ("group_id", "user_id"),
    "image_projects": ("image_id", "project_id"),
    "images": ("name", "tag", "reference", "description", "visibility", "user_name"),
    "logins": ("user_id", "expires_at", "address"),
    "memberships": ("project_id", "user_id", "role"),
    "nodes": ("name", "mode", "drain_until", "interface"),
    "notices": ("level", "text", "texts", "starts_at", "ends_at", "user_name"),
    "presets": ("name", "description", "cpu_milli", "memory_mib", "shm_mib", "gpu_milli", "enforcement"),
    "projects": (
        *("name", "description", "domain", "quota_milli", "over_quota", "over_quota_weight", "starts_at", "ends_at"),
        *("on_expiry", "training_group", "interactive_group", "interactive_limit_s", "interactive_extension_s"),
        *("session_access", "min_runtime_s", "limit_milli"),
        *("cpu_quota_milli", "cpu_limit_milli", "memory_quota_mib", "memory_limit_mib"),
        "claims_spare",
    ),
    "repair_runs": ("name", "node", "dry_run", "agreed", "user_name"),
    "resource_groups": ("name", "description", "purpose", "domain", "gpu_model", "switch", "region", "open"),
    "sandbox_images": ("sandbox_id", "image_id"),
    "sandbox_projects": ("sandbox_id", "project_id"),
    "sandboxes": ("name", "description", "rules", "site_wide"),
    "sessions": (
        *("name", "project_id", "user_name", "access", "image", "reference", "kind", "priority", "preemptible"),
        *("replicas", "gpu_milli", "cpu_milli", "memory_mib", "shm_mib", "disk_mib", "enforcement", "resize_milli"),
        *("preset", "resource_group", "sandbox", "local_image", "state", "expires_at", "starts_at"),
    ),
    "user_policies": ("name", "description", "max_sessions", "max_gpu_milli", "max_cpu_milli", "max_memory_mib"),
    "users": (
        *("name", "role", "source", "role_source", "domain", "policy", "email", "disabled"),
        *("must_change_password", "language"),
    ),
    "volumes": ("name", "project_id", "former_project", "domain", "storage", "state", "limit_mib"),
}
"""The columns of each table whose values stand in the audit log."""

LEFT_OUT: dict[str, frozenset[str]] = {
    "secret": frozenset({"password_hash", "fingerprint", "environment", "command", "args"}),
    "known by another column": frozenset(
        {
            "id",
            "user_id",
            "node_id",
            "revision",
            "changed_in",
            "heard",
            "named_folders",
            "directory_id",
            "protocol",
            "limit_s",
            "request_id",
        }
    ),
    "observed, not chosen": frozenset(
        {
            *("created_at", "used_at", "since", "status", "error", "digest", "size", "agent", "made_by"),
            *("held_milli", "before_milli", "network", "denied", "cause", "position", "final_state"),
            *("reason", "reason_parts", "not_grown", "not_grown_parts"),
            *("attempt", "scheduled_at", "started_at", "extended_s", "warned_at", "finished_at", "exit_code"),
            *("refusals", "tries_at", "reserved_on", "moves", "moved_at"),
            *("folder", "used_mib", "measured_at", "created_by", "created_by_cli", "sandbox_rules"),
            *(
                "interrupted",
                "interrupted_at",
                "record",
                "machine",
                "replicas_at",
                "reach",
                "interfaces",
                "had_milli",
                "had_at",
            ),
            *("check_id", "source", "evidence", "hint", "repair", "occurred_at"),
        }
    ),
    "of the request, and large": frozenset(
        {
            *("mounts", "gpu_models", "ports", "within", "within_required", "p2p", "rdma"),
            *("min_replicas", "max_replicas"),
        }
    ),
}
"""The columns of audited tables whose values do not, by the reason why; those of nodes are what agents report."""


NOT_AUDITED: dict[str, frozenset[str]] = {
    "the log itself": frozenset({"audit_changes", "audit_events", "audit_head", "audit_sent"}),
    "goes with a login": frozenset({"app_logins"}),
    "goes with a session": frozenset(
        {
            *("containers", "gang_networks", "gang_nodes", "gpu_shares", "services", "session_events"),
            "session_volumes",
        }
    ),
    "observed, not chosen": frozenset(
        {
            *("accounting_days", "backups", "busy_hours", "denied_calls", "gpu_hours", "gpu_samples", "gpus"),
            *("health_alerts", "health_changes", "installation", "login_tries", "rank_logs", "session_logs"),
            *("site_hours", "spans"),
        }
    ),
}
"""The tables that are not audited, by the reason why."""


class AuditEvent(Base):
    """What somebody did or tried: `entry` is its line in the log, without what the database changed by it.

    It stays until it is in a file. `transaction` finds the changes, which were made together with it.
    """

    __tablename__ = "audit_events"

    number: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    id: Mapped[str] = mapped_column(String(32), unique=True)
    at: Mapped[datetime] = mapped_column(default=now)
    transaction: Mapped[int | None] = mapped_column(BigInteger)
    entry: Mapped[dict[str, Any]] = mapped_column(JSONB)


class AuditChange(Base):
    """What one statement changed in one row: the values of the audited columns before and after, null where none was.

    `subject` names the row for people.
    """

    __tablename__ = "audit_changes"

    number: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    transaction: Mapped[int] = mapped_column(BigInteger, index=True)
    kind: Mapped[str] = mapped_column(String(63))
    subject: Mapped[dict[str, Any]] = mapped_column(JSONB)
    before: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    after: Mapped[dict[str, Any] | None] = mapped_column(JSONB)


class AuditHead(Base):
    """How far the files of the log go, kept apart from them: the last line's number and code. There is one row.

    `fault` is what the leader found last that is not as it was written, and `fault_at` when.
    """

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInteger)
    mac: Mapped[str] = mapped_column(String(64))
    at: Mapped[datetime] = mapped_column(default=now)
    fault: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    fault_at: Mapped[datetime | None]


class AuditSent(Base):
    """How far a syslog server has the log, kept where one is to have it. There is one row.

    While it does not take what follows, `reason` says why, since `behind_since`.
    """

    __tablename__ = "audit_sent"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(Text, server_default=text("''"))
    behind_since: Mapped[datetime | None]
