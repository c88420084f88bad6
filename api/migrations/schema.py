"""The schema of the database and its migrations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

# Every table has to be known before Base.metadata is complete.
import api.tables.accounting
import api.tables.api_keys
import api.tables.audit
import api.tables.denied_calls
import api.tables.domains
import api.tables.groups
import api.tables.images
import api.tables.logins
import api.tables.metrics
import api.tables.nodes
import api.tables.presets
import api.tables.projects
import api.tables.sandboxes
import api.tables.sessions
import api.tables.user_policies
import api.tables.users
import api.tables.volumes  # noqa: F401
from api.database import Database
from api.tables.base import Base
from common.errors import UnavailableError

metadata = Base.metadata
MIGRATIONS = Path(__file__).parent
LOCK_TIMEOUT_S = 5.0
"""So long a step waits for a table that somebody uses."""


async def migrate(database: Database) -> bool:
    """Bring the schema to the newest step; returns whether anything changed."""
    async with _reaching(), database.engine.begin() as connection:
        # whoever waits for a table makes all others wait behind
        await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S:g}s'"))
        return await connection.run_sync(_upgrade)


async def is_current(database: Database) -> bool:
    """Return whether the schema is that of this version."""
    async with _reaching(), database.engine.connect() as connection:
        return await connection.run_sync(_is_current)


async def check(database: Database) -> None:
    """Raise UnavailableError where the schema is not that of this version, or where the database cannot be reached."""
    if not await is_current(database):
        raise UnavailableError(
            "the database schema is not that of this version",
            where="PENSTOCK_API_DATABASE_URL",
            hint="run `python -m api migrate`",
        )


def config(connection: Connection) -> Config:
    """Return what Alembic's commands take to work on a connection."""
    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(MIGRATIONS))
    return made


@asynccontextmanager
async def _reaching() -> AsyncIterator[None]:
    try:
        yield
    except OperationalError as error:
        if isinstance(error.orig, LockNotAvailable):
            raise UnavailableError(
                f"a table is in use for longer than {LOCK_TIMEOUT_S:g} s, and nothing was changed",
                where="PENSTOCK_API_DATABASE_URL",
                hint="try again; what holds it stands in pg_stat_activity",
            ) from error
        raise _unreachable(error) from error
    except OSError as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> UnavailableError:
    return UnavailableError(
        f"the database cannot be reached: {getattr(error, 'orig', error)}",
        where="PENSTOCK_API_DATABASE_URL",
        hint="start the database, or correct the URL",
    )


def _upgrade(connection: Connection) -> bool:
    if _is_current(connection):
        return False
    command.upgrade(config(connection), "head")
    return True


def _is_current(connection: Connection) -> bool:
    heads = set(MigrationContext.configure(connection).get_current_heads())
    return heads == set(ScriptDirectory.from_config(config(connection)).get_heads())
