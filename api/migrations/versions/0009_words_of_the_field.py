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
    "sessions": {"size": "replicas", "models": "gpu_models", "ending": "final_state"},
}
_TABLES = {"denials": "denied_calls", "grants": "gpu_shares"}
_CONSTRAINTS = {
    "denied_calls": {
        "pk_denials": "pk_denied_calls",
        "fk_denials_session_id_sessions": "fk_denied_calls_session_id_sessions",
    },
    "gpu_shares": {
        "pk_grants": "pk_gpu_shares",
        "fk_grants_session_id_rank_containers": "fk_gpu_shares_session_id_rank_containers",
    },
}
_INDEX = ("ix_denials_last_at", "ix_denied_calls_last_at")


def upgrade() -> None:
    """Go forward."""
    for old, new in _TABLES.items():
        op.rename_table(old, new)
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.alter_column(table, old, new_column_name=new)
    for table, constraints in _CONSTRAINTS.items():
        for old, new in constraints.items():
            op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {old} TO {new}")
    old, new = _INDEX
    op.execute(f"ALTER INDEX {old} RENAME TO {new}")


def downgrade() -> None:
    """Go back."""
    old, new = _INDEX
    op.execute(f"ALTER INDEX {new} RENAME TO {old}")
    for table, constraints in _CONSTRAINTS.items():
        for old, new in constraints.items():
            op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {new} TO {old}")
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.alter_column(table, new, new_column_name=old)
    for old, new in _TABLES.items():
        op.rename_table(new, old)
