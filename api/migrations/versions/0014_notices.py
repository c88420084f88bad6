"""Notices of what streams wait for: rights that somebody loses, and sessions that come to another state"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_FUNCTION = """
CREATE FUNCTION give_notice() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    id uuid;
BEGIN
    IF TG_ARGV[1] = 'user_id' THEN
        id := OLD.user_id;
    ELSE
        id := OLD.id;
    END IF;
    PERFORM pg_notify('penstock', TG_ARGV[0] || ' ' || id);
    RETURN NULL;
END
$$
"""
_TRIGGERS = {
    "users": ("UPDATE OF role, disabled, domain, must_change_password OR DELETE", "user", "id"),
    "memberships": ("UPDATE OR DELETE", "user", "user_id"),
    "logins": ("DELETE", "user", "user_id"),
    "api_keys": ("DELETE", "user", "user_id"),
    "sessions": ("UPDATE OF state, access OR DELETE", "session", "id"),
}
"""By table: what gives a notice, whom or what that is of, and the column with the id."""


def upgrade() -> None:
    """Go forward."""
    op.execute(_FUNCTION)
    for table, (event, kind, column) in _TRIGGERS.items():
        op.execute(
            f"CREATE TRIGGER give_notice AFTER {event} ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION give_notice('{kind}', '{column}')"
        )


def downgrade() -> None:
    """Go back."""
    for table in _TRIGGERS:
        op.execute(f"DROP TRIGGER give_notice ON {table}")
    op.execute("DROP FUNCTION give_notice()")
