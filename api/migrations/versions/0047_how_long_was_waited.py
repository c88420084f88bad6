"""Waits: how long each span was waited for, as far as sessions tell of those that there are"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.add_column("spans", sa.Column("waited_s", sa.Double(), nullable=True))
    op.execute("""
        UPDATE spans SET waited_s = GREATEST(0, EXTRACT(epoch FROM found.started_at - found.since))
        FROM (
            SELECT spans.id, spans.started_at, earlier.ended_at AS earlier,
                GREATEST(sessions.created_at, sessions.starts_at, earlier.ended_at) AS since
            FROM spans JOIN sessions ON sessions.id = spans.session_id
            LEFT JOIN (
                SELECT id, LAG(ended_at) OVER (PARTITION BY session_id ORDER BY started_at, ended_at) AS ended_at
                FROM spans
            ) earlier ON earlier.id = spans.id
        ) found
        WHERE spans.id = found.id AND (found.earlier IS NULL OR found.earlier < found.started_at)
    """)


def downgrade() -> None:
    """Go back."""
    op.drop_column("spans", "waited_s")
