"""Indexes for what has ended, and sums of accounting by day"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.create_index("ix_sessions_project_id_name_created_at", "sessions", ["project_id", "name", "created_at"])
    op.create_index(
        *("ix_sessions_failed_name", "sessions", ["project_id", "name", "created_at"]),
        postgresql_where=sa.text("state = 'FAILED'"),
    )
    op.create_index(
        *("ix_sessions_holding", "sessions", ["id"]),
        postgresql_where=sa.text("state IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING')"),
    )
    op.create_index(
        *("ix_sessions_finished_at", "sessions", ["finished_at"]), postgresql_where=sa.text("finished_at IS NOT NULL")
    )
    op.create_index(*("ix_spans_ended_at", "spans", ["ended_at"]), postgresql_where=sa.text("ended_at IS NOT NULL"))
    op.create_table(
        "accounting_days",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("day", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("user_name", sa.String(20), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("project_name", sa.String(20), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=True),
        sa.Column("domain", sa.String(20), nullable=True),
        sa.Column("sessions", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("gpu_milli_seconds", sa.Double(), nullable=False),
    )
    op.create_index("ix_accounting_days_day", "accounting_days", ["day"])


def downgrade() -> None:
    """Go back."""
    op.drop_table("accounting_days")
    op.drop_index("ix_spans_ended_at", "spans")
    for name in ("finished_at", "holding", "failed_name", "project_id_name_created_at"):
        op.drop_index(f"ix_sessions_{name}", "sessions")
