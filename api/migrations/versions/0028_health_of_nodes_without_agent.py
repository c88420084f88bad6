"""Checks of nodes that have no agent, by their names"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_BEFORE = ("node_id", "check_id", "thing")
_AFTER = ("node_id", "node_name", "check_id", "thing")
_TOLD = ("name", "thing", "state", "acknowledged_until", "acknowledged_by", "comment", "cleared_at")
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.add_column("health_checks", sa.Column("node_name", sa.String(63), nullable=False, server_default=sa.text("''")))
    _make_unique(_AFTER, _BEFORE)
    _tell(("node_name", *_TOLD))


def downgrade() -> None:
    """Go back."""
    op.execute("DELETE FROM health_checks WHERE node_name <> ''")
    _make_unique(_BEFORE, _AFTER)
    _tell(_TOLD)
    op.drop_column("health_checks", "node_name")


def _make_unique(columns: tuple[str, ...], instead_of: tuple[str, ...]) -> None:
    """Let a check be known by other columns."""
    op.drop_constraint(_name(instead_of), "health_checks", type_="unique")
    op.create_unique_constraint(_name(columns), "health_checks", columns, postgresql_nulls_not_distinct=True)


def _tell(columns: tuple[str, ...]) -> None:
    """Let the audit log tell what these columns become."""
    names = ", ".join(f"'{name}'" for name in columns)
    op.execute("DROP TRIGGER note_audited_change ON health_checks")
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {', '.join(columns)} "
        f"ON health_checks FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )


def _name(columns: tuple[str, ...]) -> str:
    return op.f(f"uq_health_checks_{'_'.join(columns)}")
