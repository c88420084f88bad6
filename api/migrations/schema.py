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
import api.tables.backups
import api.tables.denied_calls
import api.tables.domains
import api.tables.groups
import api.tables.health
import api.tables.images
import api.tables.installation
import api.tables.logins
import api.tables.metrics
import api.tables.nodes
import api.tables.notices
import api.tables.presets
import api.tables.projects
import api.tables.repairs
import api.tables.sandboxes
import api.tables.session_events
import api.tables.sessions
import api.tables.user_policies
import api.tables.users
import api.tables.volumes  # noqa: F401
from api.database import Database
from api.tables.base import Base
from common.errors import UnavailableError

metadata = Base.metadata
MIGRATIONS = Path(__file__).parent
SERVES = "0024"
"""The earliest step whose API works on the newest schema: all that came later only added what it need not know."""
_SERVES = "serves "
LOCK_TIMEOUT_S = 5.0
"""So long a step waits for a table that somebody uses."""


async def migrate(database: Database) -> bool:
    """Bring the schema to the newest step; returns whether anything changed."""
    async with _reaching(), database.engine.begin() as connection:
        # whoever waits for a table makes all others wait behind
        await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S:g}s'"))
        return await connection.run_sync(_upgrade)


async def is_current(database: Database) -> bool:
    """Return whether the schema is that of this version, or a later one on which this version works."""
    async with _reaching(), database.engine.connect() as connection:
        return await connection.run_sync(_is_current) or await connection.run_sync(_is_later)


async def check(database: Database) -> None:
    """Raise UnavailableError where this version does not work on the schema, or the database cannot be reached."""
    async with _reaching(), database.engine.connect() as connection:
        if await connection.run_sync(_is_current) or await connection.run_sync(_is_later):
            return
        unknown = await connection.run_sync(_unknown)
    raise UnavailableError(
        f"the database schema is of a later version ({unknown}), on which this one does not work"
        if unknown
        else "the database schema is of an earlier version",
        where="PENSTOCK_API_DATABASE_URL",
        hint="deploy the later release again, or restore a backup from before it"
        if unknown
        else "run `python -m api migrate`",
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
    if _is_current(connection) or _is_later(connection):
        return False
    command.upgrade(config(connection), "head")
    connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{_SERVES}{SERVES}'"))
    return True


def _is_current(connection: Connection) -> bool:
    return _found(connection) == _own(connection)


def _is_later(connection: Connection) -> bool:
    """Return whether the schema is of a later version that says that it serves this one."""
    served = _serves(connection)
    return bool(_unknown(connection) and served) and served <= max(_own(connection))


def _unknown(connection: Connection) -> str:
    """Return the steps of a schema that this version does not know, which only a later one has."""
    known = {script.revision for script in ScriptDirectory.from_config(config(connection)).walk_revisions()}
    return ", ".join(sorted(_found(connection) - known))


def _serves(connection: Connection) -> str:
    """Return the earliest step that the version serves which has changed the schema last; empty if it does not say."""
    found = connection.scalar(text("SELECT obj_description(to_regclass('alembic_version'), 'pg_class')"))
    return str(found).removeprefix(_SERVES) if str(found).startswith(_SERVES) else ""


def _found(connection: Connection) -> set[str]:
    return set(MigrationContext.configure(connection).get_current_heads())


def _own(connection: Connection) -> set[str]:
    return set(ScriptDirectory.from_config(config(connection)).get_heads())
