"""Sessions: the ports that they were submitted with, and the ends of the logs of all containers of one"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward; which ports sessions had that have ended is not known any more."""
    op.add_column("sessions", sa.Column("ports", JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb")))
    op.execute(
        "UPDATE sessions SET ports = found.ports FROM (SELECT session_id, jsonb_agg(port ORDER BY port) AS ports"
        " FROM services GROUP BY session_id) AS found WHERE sessions.id = found.session_id"
    )
    op.create_table(
        "rank_logs",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("tail", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_rank_logs_session_id_sessions", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "rank", name="pk_rank_logs"),
    )


def downgrade() -> None:
    """Go back."""
    op.drop_table("rank_logs")
    op.drop_column("sessions", "ports")
