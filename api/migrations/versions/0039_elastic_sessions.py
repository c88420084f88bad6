"""Elastic sessions: how many containers they have at least and at most, and which are being given up"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_RESIZED = """
CREATE FUNCTION note_replicas_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_events (session_id, at, state, reason, cause, attempt, exit_code)
    VALUES (NEW.id, COALESCE(NEW.replicas_at, now()), NEW.state,
            format('%s containers, before %s', NEW.replicas, OLD.replicas), '', NEW.attempt, NULL);
    RETURN NULL;
END
$$
"""
_GROWING = "state = 'RUNNING' AND replicas < max_replicas"


def upgrade() -> None:
    """Go forward."""
    for name in ("min_replicas", "max_replicas"):
        op.add_column("sessions", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("replicas_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("sessions", sa.Column("reach", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")))
    op.add_column("containers", sa.Column("leaving", sa.Boolean(), nullable=False, server_default="false"))
    op.create_index("ix_sessions_growing", "sessions", ["id"], postgresql_where=sa.text(_GROWING))
    op.create_index("ix_containers_leaving", "containers", ["session_id"], postgresql_where=sa.text("leaving"))
    op.execute(_RESIZED)
    op.execute(
        "CREATE TRIGGER note_replicas AFTER UPDATE OF replicas ON sessions FOR EACH ROW "
        "WHEN (OLD.replicas <> NEW.replicas AND NEW.state = 'RUNNING' AND OLD.state = 'RUNNING') "
        "EXECUTE FUNCTION note_replicas_event()"
    )


def downgrade() -> None:
    """Go back."""
    op.execute("DROP TRIGGER note_replicas ON sessions")
    op.execute("DROP FUNCTION note_replicas_event()")
    op.drop_index("ix_containers_leaving", "containers")
    op.drop_index("ix_sessions_growing", "sessions")
    op.drop_column("containers", "leaving")
    for name in ("reach", "replicas_at", "max_replicas", "min_replicas"):
        op.drop_column("sessions", name)
