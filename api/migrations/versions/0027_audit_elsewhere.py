"""The audit log elsewhere: how far a syslog server has it; and which nodes a change of a session touches"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_NOTE = """
CREATE OR REPLACE FUNCTION note_audited_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_values jsonb := audited_values(to_jsonb(OLD), TG_ARGV);
    new_values jsonb := audited_values(to_jsonb(NEW), TG_ARGV);
    subject jsonb;
    same text[];
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT array_agg(key) INTO same FROM jsonb_each(old_values) WHERE value IS NOT DISTINCT FROM new_values -> key;
        old_values := old_values - COALESCE(same, '{{}}');
        new_values := new_values - COALESCE(same, '{{}}');
        IF old_values = '{{}}'::jsonb THEN
            RETURN NULL;
        END IF;
    END IF;
    subject := audited_subject(to_jsonb(COALESCE(NEW, OLD)));
    {nodes}
    INSERT INTO audit_changes (transaction, kind, subject, before, after)
    VALUES (pg_current_xact_id()::text::bigint, TG_TABLE_NAME, subject, old_values, new_values);
    RETURN NULL;
END
$$
"""
_NODES = """
    IF TG_TABLE_NAME = 'sessions' THEN
        subject := subject || jsonb_strip_nulls(jsonb_build_object('nodes', (
            SELECT string_agg(DISTINCT nodes.name, ' ') FROM containers JOIN nodes ON nodes.id = containers.node_id
            WHERE containers.session_id = (to_jsonb(COALESCE(NEW, OLD)) ->> 'id')::uuid
        )));
    END IF;
"""


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "audit_sent",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("behind_since", sa.DateTime(timezone=True)),
    )
    op.execute(_NOTE.format(nodes=_NODES))


def downgrade() -> None:
    """Go back."""
    op.execute(_NOTE.format(nodes=""))
    op.drop_table("audit_sent")
