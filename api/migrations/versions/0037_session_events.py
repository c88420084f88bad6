"""Events of sessions: each state that one came to, and why"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_FUNCTION = """
CREATE FUNCTION note_session_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_events (session_id, at, state, reason, cause, attempt, exit_code)
    VALUES (NEW.id, NEW.since, NEW.state, NEW.reason, NEW.cause, NEW.attempt, NEW.exit_code);
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "session_events",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        sa.Column("session_id", sa.Uuid(), sa.ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
    )
    op.create_index("ix_session_events_session_id_number", "session_events", ["session_id", "number"])
    op.execute(_FUNCTION)
    op.execute(
        "CREATE TRIGGER note_first_event AFTER INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION note_session_event()"
    )
    op.execute(
        "CREATE TRIGGER note_event AFTER UPDATE OF state ON sessions "
        "FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION note_session_event()"
    )


def downgrade() -> None:
    """Go back."""
    op.execute("DROP TRIGGER note_event ON sessions")
    op.execute("DROP TRIGGER note_first_event ON sessions")
    op.execute("DROP FUNCTION note_session_event()")
    op.drop_table("session_events")
