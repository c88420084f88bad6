"""GPU shares"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_CONSTRAINTS = ("pk_{}", "fk_{}_session_id_rank_containers")


def upgrade() -> None:
    """Go forward."""
    _rename("grants", "gpu_shares")


def downgrade() -> None:
    """Go back."""
    _rename("gpu_shares", "grants")


def _rename(before: str, after: str) -> None:
    op.rename_table(before, after)
    for name in _CONSTRAINTS:
        op.execute(f"ALTER TABLE {after} RENAME CONSTRAINT {name.format(before)} TO {name.format(after)}")
