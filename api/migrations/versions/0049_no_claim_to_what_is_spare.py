"""Projects and domains without a part of what is spare, which the audit log tells; those that are there have one"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

_BEFORE = {
    "projects": "name, description, domain, quota_milli, over_quota, over_quota_weight, starts_at, ends_at, on_expiry, "
    "training_group, interactive_group, interactive_limit_s, interactive_extension_s, session_access, min_runtime_s, "
    "limit_milli, cpu_quota_milli, cpu_limit_milli, memory_quota_mib, memory_limit_mib",
    "domains": "name, description, quota_milli, policy, shares, over_quota_weight, limit_milli",
}
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    for table, columns in _BEFORE.items():
        op.add_column(table, sa.Column("claims_spare", sa.Boolean(), nullable=False, server_default="1"))
        _note_changes(table, f"{columns}, claims_spare")


def downgrade() -> None:
    """Go back."""
    for table, columns in _BEFORE.items():
        _note_changes(table, columns)
        op.drop_column(table, "claims_spare")


def _note_changes(table: str, columns: str) -> None:
    """Note the changes of these columns in the audit log."""
    names = ", ".join(f"'{name}'" for name in columns.split(", "))
    op.execute(f"DROP TRIGGER note_audited_change ON {table}")
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON {table} "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )
