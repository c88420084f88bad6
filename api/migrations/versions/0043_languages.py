"""Languages: that of each user, and what reasons of sessions are made of"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

_NOTE = """
CREATE OR REPLACE FUNCTION note_session_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_events (session_id, at, state, reason, {column}cause, attempt, exit_code)
    VALUES (NEW.id, NEW.since, NEW.state, NEW.reason, {value}NEW.cause, NEW.attempt, NEW.exit_code);
    RETURN NULL;
END
$$
"""
_RESIZED = """
CREATE OR REPLACE FUNCTION note_replicas_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_events (session_id, at, state, reason, {column}cause, attempt, exit_code)
    VALUES (NEW.id, COALESCE(NEW.replicas_at, now()), NEW.state,
            format('%s containers, before %s', NEW.replicas, OLD.replicas), {value}'', NEW.attempt, NULL);
    RETURN NULL;
END
$$
"""
_RESIZED_PARTS = """jsonb_build_object(
                'text', '{count} containers, before {before}',
                'values', jsonb_build_object('count', NEW.replicas, 'before', OLD.replicas)
            ), """
_AUDITED = "name, role, source, role_source, domain, policy, email, disabled, must_change_password"
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    for table in ("sessions", "session_events"):
        column = sa.Column("reason_parts", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb"))
        op.add_column(table, column)
    op.execute(_NOTE.format(column="reason_parts, ", value="NEW.reason_parts, "))
    op.execute(_RESIZED.format(column="reason_parts, ", value=_RESIZED_PARTS))
    op.add_column("users", sa.Column("language", sa.String(8), nullable=True))
    _note_changes(f"{_AUDITED}, language")


def downgrade() -> None:
    """Go back."""
    _note_changes(_AUDITED)
    op.drop_column("users", "language")
    op.execute(_RESIZED.format(column="", value=""))
    op.execute(_NOTE.format(column="", value=""))
    for table in ("session_events", "sessions"):
        op.drop_column(table, "reason_parts")


def _note_changes(columns: str) -> None:
    """Note the changes of these columns of users in the audit log."""
    names = ", ".join(f"'{name}'" for name in columns.split(", "))
    op.execute("DROP TRIGGER note_audited_change ON users")
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {columns} ON users "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )
