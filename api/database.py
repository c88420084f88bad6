"""The database: one engine, its transactions, and the locks that are held in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, LiteralString, TypeVar, cast
from uuid import uuid4

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.pq import Escaping, ExecStatus
from psycopg.pq.abc import PGconn
from sqlalchemy import (
    ARRAY,
    BindParameter,
    ColumnElement,
    TableValuedAlias,
    Text,
    any_,
    bindparam,
    column,
    func,
    literal,
    select,
    text,
)
from sqlalchemy import cast as cast_to
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.pool import QueuePool
from sqlalchemy.types import TypeEngine

from common.errors import InputError, UnavailableError

V = TypeVar("V")

CHANNEL = "penstock"
"""On which triggers give notice of what was committed: `user ID`, whose rights have changed, and `session ID`."""

LEADER_LOCK = 0x50454E53
"""Key of the advisory lock that the process with the reconcilers holds."""
IMAGES_LOCK = 0x50454E55
"""Key of the advisory lock that a transaction holds while it gives an image its name."""
CAPACITY_LOCK = 0x50454E54
"""Key of the advisory lock that a transaction holds while it decides what projects may claim of the cluster."""

SERVICES_LOCK = 0x50454E56
"""Key of the advisory lock that a transaction holds while it gives a session its addresses at the edge."""
NETWORKS_LOCK = 0x50454E57
"""Key of the advisory lock that a transaction holds while it gives sessions the numbers of their networks."""
VOLUMES_LOCK = 0x50454E58
"""Key of the advisory lock that a transaction holds while it gives volumes their names and folders."""
ORDERS_LOCK = 0x50454E59
"""Key of the advisory lock that a transaction holds while it orders something of the controller."""


SILENT_S = 15.0
"""So long a process may say nothing in a transaction, or while it leads: then the database ends the connection.

A process that stands still keeps its connections, and with them what it has locked.
"""
STAY_S = SILENT_S / 5
"""So often is seen whether the leader has used its connection, and something is said there where it has not."""
CONNECTIONS = 15
"""So many connections a process has at most, beside that of the notices."""

WHICH = """SELECT concat_ws('/', system_identifier, timeline_id, pg_database.oid)
FROM pg_control_system(), pg_control_checkpoint(), pg_database WHERE datname = current_database()"""

Begin = Callable[[], AbstractAsyncContextManager[AsyncSession]]
"""What gives a transaction: `Database.transaction`, or the leader's."""


def among(column: InstrumentedAttribute[V], values: Iterable[V]) -> ColumnElement[bool]:
    """Return the condition that a column has one of many values.

    They go as one array: a parameter for each would make another statement of every number of them, and to take such a
    one apart costs more than to run it.
    """
    return column == any_(literal(list(values), ARRAY(column.type)))


def among_told(column: InstrumentedAttribute[Any] | ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the same for a statement that is built once: the values come as the parameter of a name."""
    return column == any_(bindparam(name, type_=ARRAY(column.type)))


def fingerprint(*columns: ColumnElement[Any] | InstrumentedAttribute[Any]) -> ColumnElement[Any]:
    """Return a number that another set of rows does not have: the sum of the hashes of these columns of every row.

    PostgreSQL's hash of a row is a sum over its columns, which stays the same in all where two rows change a value with
    each other; so that is hashed once more.
    """
    of_rows: ColumnElement[Any] = func.hash_record_extended(func.row(*columns), 0)
    hashes: ColumnElement[Any] = func.hashtextextended(cast_to(of_rows, Text), 0)
    return select(func.sum(hashes)).scalar_subquery()


def rows_of(values: Mapping[str, tuple[TypeEngine[Any], Iterable[Any]]], name: str = "given") -> TableValuedAlias:
    """Return a table of values by column: one array each, so that any number of rows is one statement."""
    arrays = [literal(list(column_values), ARRAY(type_, dimensions=1)) for type_, column_values in values.values()]
    return _unnested(arrays, {key: type_ for key, (type_, _) in values.items()}, name)


def rows_told(types: Mapping[str, TypeEngine[Any]]) -> TableValuedAlias:
    """Return the same for a statement that is built once: the columns' values come as parameters, by `parameters`."""
    arrays = [bindparam(f"given_{key}", type_=ARRAY(type_, dimensions=1)) for key, type_ in types.items()]
    return _unnested(arrays, types, "given")


def parameters(values: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Return the parameters of a statement with `rows_told`."""
    return {f"given_{key}": list(column_values) for key, column_values in values.items()}


def _unnested(
    arrays: Iterable[BindParameter[Any]], types: Mapping[str, TypeEngine[Any]], name: str
) -> TableValuedAlias:
    columns = [column(key, type_) for key, type_ in types.items()]
    return func.unnest(*arrays).table_valued(*columns, name=name).render_derived()


class Database:
    """A database of PostgreSQL by its URL (`postgresql+psycopg://`)."""

    def __init__(self, url: str) -> None:
        """Prepare the engine; nothing is connected yet. Raises InputError for any other kind of URL."""
        if not url.startswith("postgresql+psycopg://"):
            raise InputError(
                f"{url.partition(':')[0]} is not a kind of database that the API can use",
                where="PENSTOCK_API_DATABASE_URL",
                hint="write postgresql+psycopg://USER@HOST/NAME, or postgresql+psycopg:///NAME?host=FOLDER",
            )
        # Errors go into the log, and what they would quote may be a user's secret: an environment, a password's hash.
        # Connections stay, with the statements that are prepared on them: to open one costs more than a request.
        # PostgreSQL would compile a report for a second before it reads the first row, in each of its processes.
        self.engine = create_async_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=True,
            pool_size=CONNECTIONS,
            max_overflow=0,
            connect_args={"options": f"-c idle_in_transaction_session_timeout={SILENT_S:g}s -c jit=off"},
        )
        self._writers = async_sessionmaker(self.engine, expire_on_commit=False)
        # Every statement has a view of its own anyway; without transactions two messages fewer are sent.
        readers = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._readers = async_sessionmaker(readers, expire_on_commit=False)

    def connections(self) -> tuple[int, int]:
        """Return how many connections of this process are at work, and how many may be."""
        return cast("QueuePool", self.engine.pool).checkedout(), CONNECTIONS

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """Give a transaction that is committed at the end, or rolled back when anything is raised."""
        async with self._writers.begin() as db:
            yield db

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Give a session for reading; nothing is written.

        Each statement sees what is committed by then: what must fit together is read by one statement, or checked when
        it is used.
        """
        async with self._readers() as db:
            yield db

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[AsyncSession]:
        """Give a session in which every statement is a transaction of its own: for a write that is a single one."""
        async with self._readers() as db:
            yield db

    @asynccontextmanager
    async def leadership(self) -> AsyncIterator[Leadership]:
        """Give the means to become the one process that runs the reconcilers."""
        async with self.engine.connect() as connection:
            await connection.execute(text(f"SET idle_session_timeout = '{SILENT_S:g}s'"))
            await connection.commit()
            leadership = Leadership(connection)
            beside = asyncio.create_task(leadership.stay())
            try:
                yield leadership
            finally:
                # one time may be too few: the driver's `asyncio.wait_for` can lose a cancellation before Python 3.12
                while not beside.done():
                    beside.cancel()
                    await asyncio.wait([beside], timeout=1)
                # The lock ends with the connection only if that is closed, not given back to the pool.
                await connection.invalidate()

    async def which(self) -> str:
        """Return what another database has another text of, of the same name too; it outlives starts of the server."""
        async with self.reading() as db:
            return str((await db.execute(text(WHICH))).scalar_one())

    async def notices(self) -> AsyncGenerator[str]:
        """Yield the notices of other transactions as they come, after an empty one: from then on none is missed.

        That takes a connection of its own. Raises UnavailableError when it is lost.
        """
        url = self.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                yield ""
                async for notice in connection.notifies():
                    yield notice.payload
        except psycopg.OperationalError as error:
            raise UnavailableError(f"the database gives no notices: {error}", hint="start PostgreSQL") from error

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


class Leadership:
    """A lock in the database that one process holds as long as its connection lives, and it is not silent there."""

    def __init__(self, connection: AsyncConnection) -> None:
        """Use a connection of its own."""
        self._connection = connection
        self._held = self._was_used = False
        self._in_use = asyncio.Lock()

    async def stay(self) -> None:
        """Say something on the connection for as long as this process goes on, whatever its work waits for."""
        while True:
            self._was_used = False
            await asyncio.sleep(STAY_S)
            if self._held and not self._was_used and not self._in_use.locked():
                try:
                    await self.renew()
                except (UnavailableError, DBAPIError):
                    return  # whoever uses the connection finds that out

    @property
    def held(self) -> bool:
        """Whether this process was the leader when it last asked; what it does is refused where it is not any more."""
        return self._held

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Give a session for reading on the connection that holds the lock: it fails where that has ended."""
        try:
            async with self._in_use:
                self._use()
                await self._connection.execution_options(isolation_level="AUTOCOMMIT")
                try:
                    async with AsyncSession(self._connection) as db:
                        yield db
                finally:
                    # where the connection was lost, that would take another one, without the lock
                    if not self._connection.invalidated:
                        await self._connection.execution_options(isolation_level="READ COMMITTED")
        except OperationalError as error:
            raise UnavailableError("the database cannot be reached", hint="start PostgreSQL") from error

    async def renew(self) -> bool:
        """Return whether this process is the leader now; raises UnavailableError when the connection is lost."""
        try:
            async with self._in_use:
                self._use()
                await self._ask()
        except OperationalError as error:
            raise UnavailableError("the database cannot be reached", hint="start PostgreSQL") from error
        return self._held

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """Give a transaction that cannot be committed by a process that is the leader no more.

        It runs on the connection that holds the lock. Where that has ended, and another process may be the leader,
        PostgreSQL has undone the transaction before; a new leader finds what was committed.
        """
        async with self._in_use:
            self._use()
            async with AsyncSession(self._connection, expire_on_commit=False) as db, db.begin():
                yield db

    async def _ask(self) -> None:
        if self._held:
            await self._connection.execute(text("SELECT 1"))
        else:
            result = await self._connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": LEADER_LOCK})
            self._held = bool(result.scalar_one())
        await self._connection.commit()

    def _use(self) -> None:
        """Note that the connection is used.

        Raises OperationalError where it was lost: SQLAlchemy would take another one, without the lock.
        """
        self._was_used = True
        if self._connection.invalidated:
            self._held = False
            lost = psycopg.OperationalError("the connection that held the leader's lock is lost")
            raise OperationalError(None, None, lost)


async def open_with(db: AsyncSession, statement: LiteralString, parameters: Sequence[str]) -> None:
    """Let a statement, with texts for its `$1`, `$2` and so on, open the transaction of a session that has none yet.

    It goes to the database in one message with `BEGIN`, by the name under which each connection has prepared it: a way
    there and back takes this process longer than the database takes for the statement (`tests/bench/audit.py`).
    """
    connection = await db.run_sync(Session.connection)
    driver = cast("psycopg.AsyncConnection", connection.connection.driver_connection)
    quote = Escaping(driver.pgconn).escape_literal
    values = ", ".join(bytes(quote(value.encode())).decode() for value in parameters)
    try:
        if name := connection.info.get(statement):
            try:
                await driver.wait(_answered(driver.pgconn, f"BEGIN; EXECUTE {name} ({values})"))
                return
            except psycopg.errors.InvalidSqlStatementName:
                # the driver lets go of all that is prepared when it has undone a transaction
                await driver.wait(_answered(driver.pgconn, "ROLLBACK"))
        # another name each time: whoever is cancelled here knows not whether the database has taken it
        name, types = f"open_{uuid4().hex}", ", ".join("text" for _ in parameters)
        prepare = f"PREPARE {name} ({types}) AS {statement}"
        await driver.wait(_answered(driver.pgconn, f"{prepare}; BEGIN; EXECUTE {name} ({values})"))
        connection.info[statement] = name
    except psycopg.Error as error:
        raise DBAPIError.instance(
            None, None, error, psycopg.Error, hide_parameters=True, dialect=db.get_bind().dialect
        ) from error


def _answered(pgconn: PGconn, commands: str) -> PQGen[None]:
    """Send commands in one message, and wait until each is done; raises the driver's error for one that fails."""
    pgconn.send_query(commands.encode())
    for result in (yield from generators.execute(pgconn)):
        if result.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)


async def exclusively(db: AsyncSession, key: int) -> None:
    """Go on only while no other transaction holds this key; it is let go when the transaction ends.

    What was read before may be old by then.
    """
    await db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
