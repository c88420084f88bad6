"""The steps, run on the connection that `api.migrations.schema` hands over."""

from __future__ import annotations

from alembic import context

from api.migrations.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
