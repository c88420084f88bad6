"""Health: checks as they are, how they changed, alerts that wait, and what closes a node"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_BEFORE = (
    "name, state, mode, unknown_containers, clock_offset_s, cpu_milli, memory_mib, switch, region, fractions, apart, "
    "missing_storages, protocol"
)
_AUDITED = "name, thing, state, acknowledged_until, acknowledged_by, comment, cleared_at"
_WHEN = "pg_trigger_depth() = 0 AND current_setting('penstock.audit', true) = 'on'"


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "health_checks",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("node_id", sa.Uuid(), sa.ForeignKey("nodes.id", ondelete="CASCADE")),
        _text("check_id", 255),
        _text("thing", 255, server_default=sa.text("''")),
        _text("source", 16),
        sa.Column("name", sa.Text(), nullable=False),
        _text("state", 16),
        sa.Column("evidence", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("hint", sa.Text(), nullable=False, server_default=sa.text("''")),
        _text("repair", 255, server_default=sa.text("''")),
        _moment("since", nullable=False),
        _moment("occurred_at"),
        _moment("cleared_at"),
        _moment("acknowledged_until"),
        _text("acknowledged_by", 64, server_default=sa.text("''")),
        sa.Column("comment", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.UniqueConstraint("node_id", "check_id", "thing", postgresql_nulls_not_distinct=True),
    )
    op.create_table(
        "health_changes",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        _moment("at", nullable=False, index=True),
        _text("node", 63, index=True),
        _text("check_id", 255),
        _text("thing", 255),
        sa.Column("before", sa.String(16)),
        _text("after", 16),
        sa.Column("evidence", sa.Text(), nullable=False),
    )
    op.create_table(
        "health_alerts",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        _moment("at", nullable=False),
        _text("channel", 16),
        sa.Column("told", JSONB(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        _moment("due_at", nullable=False, index=True),
    )
    op.add_column("nodes", sa.Column("unhealthy", sa.Text(), nullable=False, server_default=sa.text("''")))
    _count_changes(f"{_BEFORE}, unhealthy")
    names = ", ".join(f"'{name}'" for name in _AUDITED.split(", "))
    op.execute(
        f"CREATE TRIGGER note_audited_change AFTER INSERT OR DELETE OR UPDATE OF {_AUDITED} ON health_checks "
        f"FOR EACH ROW WHEN ({_WHEN}) EXECUTE FUNCTION note_audited_change({names})"
    )


def downgrade() -> None:
    """Go back."""
    _count_changes(_BEFORE)
    op.drop_column("nodes", "unhealthy")
    for table in ("health_alerts", "health_changes", "health_checks"):
        op.drop_table(table)


def _text(name: str, length: int, **more: object) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False, **more)  # type: ignore[arg-type]


def _moment(name: str, *, nullable: bool = True, index: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, index=index)


def _count_changes(columns: str) -> None:
    """Count the changes of these columns of nodes, which matter to the scheduler."""
    op.execute("DROP TRIGGER count_change ON nodes")
    op.execute(
        f"CREATE TRIGGER count_change BEFORE UPDATE OF {columns} ON nodes "
        "FOR EACH ROW EXECUTE FUNCTION count_change_of_node()"
    )
