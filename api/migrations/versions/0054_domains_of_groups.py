"""Groups of domains: what comes to one, or leaves it, is told in the audit log as of its domain"""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None

BEFORE, AFTER = "'group', name)", "'group', name, 'domain', domain)"
"""What the function of revision 0031 tells of a group that a row names."""


def upgrade() -> None:
    """Go forward."""
    _exchange(BEFORE, AFTER)


def downgrade() -> None:
    """Go back."""
    _exchange(AFTER, BEFORE)


def _exchange(old: str, new: str) -> None:
    op.execute(
        f"DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('note_audited_change'::regproc), $${old}$$, $${new}$$); "
        "END $do$"
    )
