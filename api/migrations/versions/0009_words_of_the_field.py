"""Words of the field: tables and columns are called as in the glossary"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_COLUMNS = {
    "images": {"scope": "visibility"},
    "memberships": {"part": "role"},
    "sessions": {"size": "replicas", "models": "gpu_models"},
}
_CONSTRAINTS = {
    "pk_denials": "pk_denied_calls",
    "fk_denials_session_id_sessions": "fk_denied_calls_session_id_sessions",
}


def upgrade() -> None:
    """Go forward."""
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.alter_column(table, old, new_column_name=new)
    op.rename_table("denials", "denied_calls")
    for old, new in _CONSTRAINTS.items():
        op.execute(f"ALTER TABLE denied_calls RENAME CONSTRAINT {old} TO {new}")
    op.execute("ALTER INDEX ix_denials_last_at RENAME TO ix_denied_calls_last_at")


def downgrade() -> None:
    """Go back."""
    op.execute("ALTER INDEX ix_denied_calls_last_at RENAME TO ix_denials_last_at")
    for old, new in _CONSTRAINTS.items():
        op.execute(f"ALTER TABLE denied_calls RENAME CONSTRAINT {new} TO {old}")
    op.rename_table("denied_calls", "denials")
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.alter_column(table, new, new_column_name=old)
