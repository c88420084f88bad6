"""The database of an API as it is after an installation, as new for each test of a process."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from api.auth import passwords
from api.auth.policy import UserRole
from api.database import Database
from api.migrations import schema
from api.resources.users import service as users
from api.resources.users.schemas import UserRequest
from api.tables.api_keys import ApiKey
from tests.postgresql import alone, connect, new_database, url_of

PASSWORD = "Correct1horse!"
ADMIN_KEY = "psk_of-the-administrator-of-the-tests"
TEMPLATE = "installed"
KEPT = "kept"
"""The schema of the template that has the rows once more which a database begins with."""
STAYING = "staying"
"""The name of an application whose connections stay for the next test."""

_lasting: set[str] = set()


def lasts(url: str) -> bool:
    """Return whether this is the URL of a database that the next tests have, too."""
    return url in _lasting


def kept(url: str) -> str:
    """Return the URL of such a database for those whose connections stay for the next test, where they do nothing.

    What the server has to find out anew on each connection takes it longer than most tests.
    """
    return f"{url}{'&' if '?' in url else '?'}application_name={STAYING}"


@dataclass
class InstalledDatabase:
    """A database as it is after an installation, with an administrator: one for all tests of a process, in turn.

    A clone for each test takes longer than most tests do. Deleting what a test has written takes a millisecond.
    """

    folder: Path
    url: str = ""
    _connection: psycopg.Connection = field(init=False)
    _reset: str = field(init=False)

    def fresh(self) -> str:
        """Return its URL when nothing is in it that a test has written, and nobody at work there who has."""
        if not self.url:
            with alone(self.folder):
                _make_template(self.folder)
            self.url = new_database(self.folder, TEMPLATE)
            self._connection = connect(self.folder, self.url.partition("@/")[2].partition("?")[0])
            self._reset = _reset(self._connection)
            _lasting.add(self.url)
        self._connection.execute(self._reset)
        return self.url

    def close(self) -> None:
        """Let the database be."""
        if self.url:
            self._connection.close()


def _make_template(folder: Path) -> None:
    with closing(connect(folder, "postgres")) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchone():
            return
        connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
    asyncio.run(_install(url_of(folder, TEMPLATE)))
    with closing(connect(folder, TEMPLATE)) as connection:
        connection.execute(f"CREATE SCHEMA {KEPT}")
        for table in _tables(connection, "public"):
            if connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone():
                connection.execute(f'CREATE TABLE {KEPT}."{table}" AS TABLE public."{table}"')


async def _install(url: str) -> None:
    database = Database(url)
    await schema.migrate(database)
    async with database.transaction() as db:
        admin = await users.create(db, UserRequest(name="admin", password=PASSWORD, role=UserRole.ADMIN))
        fingerprint = passwords.fingerprint(ADMIN_KEY)
        db.add(ApiKey(user_id=admin.id, name="tests", prefix=ADMIN_KEY[:10], fingerprint=fingerprint))
    await database.close()


def _reset(connection: psycopg.Connection) -> str:
    """Return the statements that bring a clone of the template back to what that was."""
    others = f"""datname = current_database() AND pid <> pg_backend_pid() AND (
        application_name <> '{STAYING}' OR state <> 'idle'
        OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')
    )"""
    return ";".join(
        [
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}",
            # rows are put in their old places one table after the other: no key is looked at meanwhile
            "SET session_replication_role = replica",
            *(f'DELETE FROM public."{table}"' for table in _tables(connection, "public")),
            *(f'INSERT INTO public."{table}" SELECT * FROM {KEPT}."{table}"' for table in _tables(connection, KEPT)),
        ]
    )


def _tables(connection: psycopg.Connection, where: str) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename"
    return [name for (name,) in connection.execute(query, [where])]
