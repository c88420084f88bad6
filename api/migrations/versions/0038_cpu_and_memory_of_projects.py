"""Quotas of CPU and memory of projects, and limits above them, which the audit log tells"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, description, domain, quota_milli, over_quota, over_quota_weight, starts_at, ends_at, on_expiry, "
    "training_group, interactive_group, interactive_limit_s, interactive_extension_s, session_access, min_runtime_s, "
    "limit_milli"
)
_COLUMNS = ("cpu_quota_milli", "cpu_limit_milli", "memory_quota_mib", "memory_limit_mib")
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    for name in _COLUMNS:
        op.add_column("projects", sa.Column(name, sa.BigInteger(), nullable=True))
    _note_changes(", ".join([_BEFORE, *_COLUMNS]))


def downgrade() -> None:
    """Go back."""
    _note_changes(_BEFORE)
    for name in _COLUMNS:
        op.drop_column("projects", name)


def _note_changes(columns: str) -> None:
    """Note the changes of these columns in the audit log."""
    names = ", ".join(f"'{name}'" for name in columns.split(", "))
    op.execute("DROP TRIGGER note_audited_change ON projects")
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON projects "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )
