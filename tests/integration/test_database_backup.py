"""Dumps of a real PostgreSQL: what comes back is what was there, and what is damaged does not come back."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from api.database import Database
from api.migrations import schema
from tests import postgresql
from tests.role_modules import role_module

backup = role_module("database_backup/library/database_backup.py")


class Databases:
    """A database with the tables of this version, and what the module does with it."""

    def __init__(self, socket: Path, template: str, folder: Path) -> None:
        """Work on a copy, which may be dropped and renamed."""
        self.socket = socket
        self.name = str(make_url(postgresql.new_database(socket, template)).database)
        self.dump = folder / "one.sql.gz"
        self.server = backup.Server({"PGHOST": str(self.socket), "PGUSER": "tests"})
        self.beside = f"scratch_{uuid4().hex}"

    def sql(self, statement: str, database: str = "") -> list[Any]:
        with psycopg.connect(f"host={self.socket} user=tests dbname={database or self.name}", autocommit=True) as open_:
            cursor = open_.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def fill(self, presets: int) -> None:
        self.sql(
            "INSERT INTO presets (name, description, cpu_milli, memory_mib, shm_mib, gpu_milli)"
            f" SELECT 'p' || n, '', 1000, 1024, 64, 500 FROM generate_series(1, {presets}) n"
        )

    def act(self, action: str, **options: Any) -> dict[str, Any]:
        given = {
            "database": self.name,
            "owner": postgresql.OWNER,
            "beside": self.beside,
            "dump": str(self.dump),
            "kept": "",
        }
        done: dict[str, Any] = backup.act({"action": action, "left_out": [], **given, **options}, self.server)
        return done

    def made(self) -> dict[str, Any]:
        done = self.act("make")
        return {name: done[name] for name in ("sha256", "tables")}


@pytest.fixture(scope="module")
def installed(postgresql_server: Path) -> str:
    """The name of a database with all tables, to which nobody is connected."""
    url = postgresql.new_database(postgresql_server)
    asyncio.run(migrated(url))
    postgresql.let_owner_in(postgresql_server)
    return str(make_url(url).database)


async def migrated(url: str) -> None:
    database = Database(url)
    await schema.migrate(database)
    await database.close()


@pytest.fixture
def databases(postgresql_server: Path, installed: str, tmp_path: Path) -> Iterator[Databases]:
    found = Databases(postgresql_server, installed, tmp_path)
    found.sql("DELETE FROM presets")
    yield found
    for name in (found.name, found.beside, f"{found.name}_before"):
        found.server.drop(name)


def test_a_dump_is_loaded_and_counted_before_it_counts(databases: Databases) -> None:
    databases.fill(1000)
    done = databases.act("make", left_out=["gpu_samples"])
    assert done["tables"]["presets"] == 1000
    assert done["schema"] == databases.sql("SELECT version_num FROM alembic_version")[0][0]
    assert done["moment"].endswith("Z")
    assert done["size"] == databases.dump.stat().st_size
    assert "presets" in gzip.decompress(databases.dump.read_bytes()).decode()
    assert databases.beside not in databases.server.databases()


def test_rows_of_samples_are_left_out_and_their_table_is_not(databases: Databases) -> None:
    databases.fill(5)
    assert databases.act("make", left_out=["presets", "no_such_table"])["tables"]["presets"] == 0


def test_what_is_written_while_a_dump_is_made_is_not_in_it(databases: Databases, monkeypatch: Any) -> None:
    databases.fill(10)
    counted = backup._rows

    def counted_then_written(ask: Any, table: str) -> int:
        rows: int = counted(ask, table)
        if table == "presets" and rows == 10:
            databases.sql("DELETE FROM presets WHERE name <> 'p1'")
        return rows

    monkeypatch.setattr(backup, "_rows", counted_then_written)
    assert databases.act("make")["tables"]["presets"] == 10


def test_a_dump_that_gives_back_less_is_refused_and_leaves_no_scratch(databases: Databases) -> None:
    databases.fill(10)
    made = databases.made()
    made["tables"]["presets"] = 11
    with pytest.raises(backup.FaultError, match="presets: 10 instead of 11"):
        databases.act("check", **made)
    assert databases.beside not in databases.server.databases()


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_dump_is_refused(databases: Databases, damage: str) -> None:
    made = databases.made()
    content = bytearray(databases.dump.read_bytes())
    content[len(content) // 2] ^= 1
    databases.dump.write_bytes(bytes(content) if damage == "altered" else content[:-100])
    with pytest.raises(backup.FaultError, match="not the dump that was made"):
        databases.act("check", **made)


def test_a_dump_that_was_cut_off_while_it_was_packed_is_refused(databases: Databases) -> None:
    """Its hash is right, because nobody had more of it."""
    databases.fill(1000)
    made = databases.made()
    plain = gzip.decompress(databases.dump.read_bytes())
    databases.dump.write_bytes(gzip.compress(plain[: plain.index(b"p500")]))
    with pytest.raises(backup.FaultError):
        databases.act("check", tables=made["tables"], sha256=backup._hash(databases.dump))
    assert databases.beside not in databases.server.databases()


@pytest.mark.parametrize(
    "forged",
    [
        "SET ROLE NONE; CREATE ROLE evil SUPERUSER;",
        "SET SESSION AUTHORIZATION tests; CREATE ROLE evil SUPERUSER;",
        "SET ROLE NONE; COPY alembic_version FROM PROGRAM 'echo 1';",
    ],
)
def test_a_dump_may_do_what_the_owner_of_the_database_may(databases: Databases, forged: str) -> None:
    made = databases.made()
    plain = gzip.decompress(databases.dump.read_bytes())
    databases.dump.write_bytes(gzip.compress(plain + forged.encode() + b"\n"))
    with pytest.raises(backup.FaultError, match=r"psql: .*(permission denied|must be)"):
        databases.act("check", tables=made["tables"], sha256=backup._hash(databases.dump))
    assert databases.sql("SELECT rolname FROM pg_roles WHERE rolname = 'evil'") == []


def test_what_a_dump_starts_is_the_owners(databases: Databases) -> None:
    made = databases.made()
    plain = gzip.decompress(databases.dump.read_bytes())
    # others may come into none of pytest's folders
    with TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o777)
        databases.dump.write_bytes(gzip.compress(plain + f"\\! id --user --name > {open_to_all}/who\n".encode()))
        databases.act("check", tables=made["tables"], sha256=backup._hash(databases.dump))
        assert Path(open_to_all, "who").read_text().strip() == postgresql.OWNER


NAMED = (
    "ALTER DATABASE {} SET search_path = public, pg_catalog",
    (
        "CREATE FUNCTION public.plus(bigint) RETURNS bigint LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE EXCEPTION 'it is run by %', current_user; END $$"
    ),
    "CREATE AGGREGATE public.count(*) (SFUNC = public.plus, STYPE = bigint, INITCOND = 0)",
)
CAST = (
    "CREATE TYPE public.word AS (letters text)",
    (
        "CREATE FUNCTION public.letters_of(public.word) RETURNS text LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE EXCEPTION 'it is run by %', current_user; END $$"
    ),
    "CREATE CAST (public.word AS text) WITH FUNCTION public.letters_of AS IMPLICIT",
    (
        "ALTER TABLE public.alembic_version DROP CONSTRAINT alembic_version_pkc, ALTER version_num TYPE public.word"
        " USING ROW(version_num)::public.word"
    ),
)


@pytest.mark.parametrize("made", [NAMED, CAST], ids=["names", "casts"])
def test_the_servers_user_runs_nothing_that_the_owner_of_the_database_made(
    databases: Databases, made: tuple[str, ...]
) -> None:
    """Whoever may do what the API may would be the server's user with the next backup."""
    databases.fill(10)
    own = f"ALTER DATABASE {databases.name} OWNER TO {postgresql.OWNER}"
    databases.sql(f"{own}; ALTER TABLE alembic_version OWNER TO {postgresql.OWNER}")
    for statement in made:
        databases.sql(f"SET ROLE {postgresql.OWNER}; {statement.format(databases.name)}")
    assert databases.made()["tables"]["presets"] == 10


def test_the_servers_user_counts_by_nothing_that_a_dump_made(databases: Databases) -> None:
    made = databases.made()
    forged = ";\n".join((*NAMED, "")).format(databases.beside)
    databases.dump.write_bytes(gzip.compress(gzip.decompress(databases.dump.read_bytes()) + forged.encode()))
    databases.act("check", tables=made["tables"], sha256=backup._hash(databases.dump))


@pytest.mark.parametrize("extension", ["pg_stat_statements", "citext"])
def test_what_an_administrator_has_extended_the_database_by_keeps_no_backup_away(
    databases: Databases, extension: str
) -> None:
    """The owner may not bring back those that a superuser alone may make; nothing of the API needs one."""
    databases.fill(10)
    databases.sql(f"CREATE EXTENSION {extension} SCHEMA public")
    if extension == "citext":
        databases.sql("CREATE TABLE notes AS SELECT 'a'::citext AS note")
    databases.act("check", **databases.made())


def test_large_objects_comments_sequences_and_rights_hinder_no_backup(databases: Databases) -> None:
    for statement in (
        "SELECT lo_from_bytea(0, 'x')",
        "COMMENT ON SCHEMA public IS 'of the site'",
        "CREATE SEQUENCE public.places",
        "SELECT setval('public.places', 7)",
        "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC",
        "CREATE PUBLICATION changes",
    ):
        databases.sql(statement)
    databases.act("check", **databases.made())


def test_a_database_that_is_lost_comes_back_with_its_owner(databases: Databases) -> None:
    databases.fill(1000)
    made = databases.made()
    databases.server.drop(databases.name)
    assert databases.act("load", **made)["present"] is False
    assert databases.act("swap") == {"present": True, "changed": True, "kept": ""}
    assert databases.sql("SELECT count(*) FROM presets") == [(1000,)]
    owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'presets'"
    assert databases.sql(owner) == [(postgresql.OWNER,)]


def test_a_database_with_work_is_replaced_only_by_name_and_kept(databases: Databases) -> None:
    made = databases.made()
    databases.act("load", **made)
    databases.sql("ALTER TABLE projects RENAME TO projects_away; CREATE TABLE projects AS SELECT 1 AS id")
    for action in ("protect", "swap"):
        with pytest.raises(backup.FaultError, match="--replace"):
            databases.act(action, **made)
    kept = f"{databases.name}_before"
    databases.act("load", **made, kept=kept)
    with postgresql.connect(databases.socket, databases.name):  # an API that was not stopped
        assert databases.act("swap", kept=kept)["kept"] == kept
    assert databases.sql("SELECT count(*) FROM projects") == [(0,)]
    assert databases.sql("SELECT count(*) FROM projects", kept) == [(1,)]


def test_a_database_that_is_not_there_has_no_dump(databases: Databases) -> None:
    assert databases.act("make", database="nobody") == {"present": False}
    assert not databases.dump.exists()


def test_a_full_disk_ends_a_dump_and_leaves_nothing_of_it(databases: Databases, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        databases.fill(100_000)
        with pytest.raises(OSError, match="No space left"):
            databases.act("make", dump=str(small / "one.sql.gz"))
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)
