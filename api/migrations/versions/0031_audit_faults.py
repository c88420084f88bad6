"""Changes noted in a fraction of the time; what was wrong with the audit log; and whose machine a node is"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


class _Parent(NamedTuple):
    """What a row names by a column: its table, and what of it is told under which key of the subject."""

    column: str
    table: str
    told: str


_PARENTS = (
    _Parent("project_id", "projects", "'project', name, 'domain', domain"),
    _Parent("user_id", "users", "'user', name, 'domain', domain"),
    _Parent("node_id", "nodes", "'node', name"),
    _Parent("group_id", "resource_groups", "'group', name"),
    _Parent("image_id", "images", "'image', name || ':' || tag"),
    _Parent("sandbox_id", "sandboxes", "'sandbox', name"),
)
# a row's own domain before its project's, and that one's before its user's
_LOOK = """
    IF whole ->> '{column}' IS NOT NULL THEN
        SELECT jsonb_strip_nulls(jsonb_build_object({told})) || subject INTO parent
        FROM {table} WHERE id = (whole ->> '{column}')::uuid;
        subject := COALESCE(parent, subject);
    END IF;
"""
# Most rows have none of the columns by which rows name others, and most changes are of few columns.
_NOTE = """
CREATE OR REPLACE FUNCTION note_audited_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_row jsonb := to_jsonb(OLD);
    new_row jsonb := to_jsonb(NEW);
    whole jsonb := COALESCE(new_row, old_row);
    before_values jsonb := CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE '{{}}'::jsonb END;
    after_values jsonb := CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE '{{}}'::jsonb END;
    subject jsonb;
    parent jsonb;
    field text;
BEGIN
    FOREACH field IN ARRAY TG_ARGV LOOP
        IF TG_OP <> 'UPDATE' OR old_row -> field IS DISTINCT FROM new_row -> field THEN
            before_values := before_values || jsonb_build_object(field, old_row -> field);
            after_values := after_values || jsonb_build_object(field, new_row -> field);
        END IF;
    END LOOP;
    IF TG_OP = 'UPDATE' AND after_values = '{{}}' THEN
        RETURN NULL;
    END IF;
    subject := jsonb_strip_nulls(
        jsonb_build_object('name', whole -> 'name', 'tag', whole -> 'tag', 'domain', whole -> 'domain')
    );
    {look}
    IF TG_TABLE_NAME = 'sessions' THEN
        subject := subject || jsonb_strip_nulls(jsonb_build_object('nodes', (
            SELECT string_agg(DISTINCT nodes.name, ' ') FROM containers JOIN nodes ON nodes.id = containers.node_id
            WHERE containers.session_id = (whole ->> 'id')::uuid
        )));
    END IF;
    INSERT INTO audit_changes (transaction, kind, subject, before, after)
    VALUES (pg_current_xact_id()::text::bigint, TG_TABLE_NAME, subject, before_values, after_values);
    RETURN NULL;
END
$$
"""
_NOTE_BEFORE = """
CREATE OR REPLACE FUNCTION note_audited_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_values jsonb := audited_values(to_jsonb(OLD), TG_ARGV);
    new_values jsonb := audited_values(to_jsonb(NEW), TG_ARGV);
    subject jsonb;
    same text[];
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT array_agg(key) INTO same FROM jsonb_each(old_values) WHERE value IS NOT DISTINCT FROM new_values -> key;
        old_values := old_values - COALESCE(same, '{}');
        new_values := new_values - COALESCE(same, '{}');
        IF old_values = '{}'::jsonb THEN
            RETURN NULL;
        END IF;
    END IF;
    subject := audited_subject(to_jsonb(COALESCE(NEW, OLD)));
    IF TG_TABLE_NAME = 'sessions' THEN
        subject := subject || jsonb_strip_nulls(jsonb_build_object('nodes', (
            SELECT string_agg(DISTINCT nodes.name, ' ') FROM containers JOIN nodes ON nodes.id = containers.node_id
            WHERE containers.session_id = (to_jsonb(COALESCE(NEW, OLD)) ->> 'id')::uuid
        )));
    END IF;
    INSERT INTO audit_changes (transaction, kind, subject, before, after)
    VALUES (pg_current_xact_id()::text::bigint, TG_TABLE_NAME, subject, old_values, new_values);
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    """Go forward."""
    look = "".join(_LOOK.format(**parent._asdict()) for parent in _PARENTS)
    op.execute(_NOTE.format(look=look))
    # lines are found by their numbers, and their changes by the transaction
    op.drop_index("ix_audit_events_transaction", "audit_events")
    nothing = sa.text("''")
    op.add_column("audit_head", sa.Column("fault", sa.Text(), nullable=False, server_default=nothing))
    op.add_column("audit_head", sa.Column("fault_at", sa.DateTime(timezone=True)))
    op.add_column("nodes", sa.Column("machine", sa.Text(), nullable=False, server_default=nothing))


def downgrade() -> None:
    """Go back."""
    op.drop_column("nodes", "machine")
    op.drop_column("audit_head", "fault_at")
    op.drop_column("audit_head", "fault")
    op.create_index("ix_audit_events_transaction", "audit_events", ["transaction"])
    op.execute(_NOTE_BEFORE)
