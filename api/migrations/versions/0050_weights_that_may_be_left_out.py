"""Weights that may be left out: without one a project or domain shares by its quota, as it did with 0 before"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0046"
branch_labels = None
depends_on = None

_TABLES = "projects", "domains"


def upgrade() -> None:
    """Go forward."""
    for table in _TABLES:
        op.alter_column(table, "over_quota_weight", existing_type=sa.BigInteger(), nullable=True, server_default=None)
        rows = _rows(table)
        op.execute(rows.update().where(rows.c.over_quota_weight == 0).values(over_quota_weight=None))


def downgrade() -> None:
    """Go back."""
    for table in _TABLES:
        rows = _rows(table)
        op.execute(rows.update().where(rows.c.over_quota_weight.is_(None)).values(over_quota_weight=0))
        op.alter_column(table, "over_quota_weight", existing_type=sa.BigInteger(), nullable=False, server_default="0")


def _rows(table: str) -> sa.TableClause:
    return sa.table(table, sa.column("over_quota_weight", sa.BigInteger()))
