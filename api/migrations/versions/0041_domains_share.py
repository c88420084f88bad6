"""Domains whose projects share inside of them, by a weight and up to a limit, which the audit log tells"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

_BEFORE = "name, description, quota_milli, policy"
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.add_column("domains", sa.Column("shares", sa.Boolean(), nullable=False, server_default="0"))
    op.add_column("domains", sa.Column("over_quota_weight", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("domains", sa.Column("limit_milli", sa.Integer(), nullable=True))
    _note_changes(f"{_BEFORE}, shares, over_quota_weight, limit_milli")


def downgrade() -> None:
    """Go back."""
    _note_changes(_BEFORE)
    for name in ("limit_milli", "over_quota_weight", "shares"):
        op.drop_column("domains", name)


def _note_changes(columns: str) -> None:
    """Note the changes of these columns in the audit log."""
    names = ", ".join(f"'{name}'" for name in columns.split(", "))
    op.execute("DROP TRIGGER note_audited_change ON domains")
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON domains "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )
