"""Costs and busy hours: what spans held beside GPUs, how busy these were, and how many the site had"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None

_MODELS = ("gpu_models", postgresql.JSONB(none_as_null=True))
_ADDED: dict[str, tuple[tuple[str, Any], ...]] = {
    "spans": (_MODELS, ("cpu_milli", sa.BigInteger()), ("memory_mib", sa.BigInteger())),
    "accounting_days": (_MODELS, ("cpu_milli_seconds", sa.Numeric()), ("memory_mib_seconds", sa.Numeric())),
}


def upgrade() -> None:
    """Go forward."""
    for table, columns in _ADDED.items():
        for name, type_ in columns:
            op.add_column(table, sa.Column(name, type_, nullable=True))
    op.create_table(
        "busy_hours",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("busy_permille", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "hour", name=op.f("pk_busy_hours")),
    )
    op.create_index("ix_busy_hours_hour", "busy_hours", ["hour"], postgresql_using="brin")
    op.create_table(
        "site_hours",
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gpu_milli", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hour", name=op.f("pk_site_hours")),
    )


def downgrade() -> None:
    """Go back."""
    op.drop_table("site_hours")
    op.drop_table("busy_hours")
    for table, columns in _ADDED.items():
        for name, _ in columns:
            op.drop_column(table, name)
