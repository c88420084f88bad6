#!/usr/bin/python3
"""A dump of a database with the rows of each table, and its way back, first into a scratch database.

Nothing here changes the database itself but `swap`, which gives its name to one that was loaded and counted before.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: database_backup
short_description: Dump a database, load a dump into a database beside, and put that in its place
description: Every dump is loaded into a scratch database, and the rows of each table counted, before it counts.
author: Penstock
options:
  action: {type: str, required: true, choices: [make, check, protect, load, swap, drop], description: What to do.}
  database: {type: str, required: true, description: Name of the database.}
  owner: {type: str, required: true, description: "Role that owns it, and the user of the machine who has it."}
  beside: {type: str, required: true, description: Name of the database that a dump is loaded into.}
  dump: {type: path, default: "", description: The compressed dump.}
  left_out: {type: list, elements: str, default: [], description: Tables whose rows are not in a dump.}
  sha256: {type: str, default: "", description: Hash of the compressed dump as it was made.}
  tables: {type: dict, default: {}, description: Rows of each table as they were dumped.}
  kept: {type: str, default: "", description: Name that the database before is kept under, which says that it may go.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "action": {"type": "str", "required": True, "choices": ["make", "check", "protect", "load", "swap", "drop"]},
    "database": {"type": "str", "required": True},
    "owner": {"type": "str", "required": True},
    "beside": {"type": "str", "required": True},
    "dump": {"type": "path", "default": ""},
    "left_out": {"type": "list", "elements": "str", "default": []},
    "sha256": {"type": "str", "default": ""},
    "tables": {"type": "dict", "default": {}},
    "kept": {"type": "str", "default": ""},
}
PIECE = 1 << 20
WORK = ("sessions", "projects", "volumes")
"""Tables that are empty after a first deploy, and hold somebody's work later."""

TABLES = """SELECT coalesce(json_agg(format('%I', tablename) ORDER BY tablename), '[]') FROM pg_tables
WHERE schemaname = 'public'"""
# no aggregate of texts: the owner may have made the column a type, and a cast of it
SCHEMA = "SELECT array_to_string(ARRAY(SELECT version_num FROM public.alembic_version), ' ')"
EXTENSIONS = """SELECT coalesce(json_agg(format('%I', extname)), '[]') FROM pg_extension
JOIN pg_available_extension_versions ON name = extname AND version = extversion WHERE trusted OR NOT superuser"""
"""Those that the owner of a database may bring back."""
MOMENT = """SELECT to_char(now() AT TIME ZONE 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""
LET_GO = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()"


class FaultError(Exception):
    """What went wrong, with a hint."""


class Server:
    """PostgreSQL of this machine, by the user who may do everything there."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Take note of variables for each program."""
        self._environment = environment or {}

    def start(self, words: Sequence[str], user: str = "postgres", **streams: Any) -> subprocess.Popen[bytes]:
        """Start a program of PostgreSQL, as a user of the machine."""
        # whoever owns a database may set where names are looked up in it, and make a `count` there
        said = {**os.environ, **self._environment, "LC_ALL": "C.UTF-8", "PGOPTIONS": "-c search_path=pg_catalog"}
        words = ["runuser", f"--user={user}", "--", *words]
        return subprocess.Popen(words, env=said, cwd="/", stderr=subprocess.PIPE, **streams)

    def run(self, *words: str) -> str:
        """Run a program of PostgreSQL and return what it prints."""
        with self.start(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            out, error = process.communicate()
        if process.returncode:
            raise FaultError(_said(words[0], error))
        return out.decode().strip()

    def ask(self, database: str, *statements: str) -> str:
        """Return what statements answer, which are one transaction."""
        words = [word for statement in statements for word in ("--command", statement)]
        return self.run(*PSQL, "--single-transaction", "--dbname", database, *words)

    def databases(self) -> list[str]:
        """Return the names of the databases."""
        return self.ask("postgres", "SELECT datname FROM pg_database").splitlines()

    def drop(self, database: str) -> None:
        """Remove a database, where there is one."""
        self.run("dropdb", "--if-exists", "--force", database)


PSQL = ("psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")


def main() -> None:
    """Return what was done as `penstock_database`."""
    module = AnsibleModule(argument_spec=OPTIONS)
    try:
        done = act(module.params, Server())
    except (FaultError, OSError, EOFError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(done.pop("changed", False)), **({"penstock_database": done} if done else {}))


def act(options: Mapping[str, Any], server: Server) -> dict[str, Any]:
    """Do what is asked for."""
    action, database, beside = options["action"], options["database"], options["beside"]
    if action == "make" and not shutil.which("psql"):
        return {"present": False}
    present = database in server.databases()
    if action == "make":
        return make(server, options) if present else {"present": False}
    if action == "drop":
        server.drop(beside)
        return {}
    if action == "swap":
        return swap(server, options, present=present)
    if action == "protect":
        return {"present": present, "work": work_to_keep(server, options) if present else 0}
    seconds = load(server, options)
    if action == "check":
        server.drop(beside)
    return {"present": present, "seconds": seconds}


def make(server: Server, options: Mapping[str, Any]) -> dict[str, Any]:
    """Dump a database as it is at one moment, and count the same rows in it that a scratch database then has."""
    begin = time.monotonic()
    with snapshot(server, options["database"]) as (ask, held):
        tables = {name: _rows(ask, name) for name in json.loads(ask(" ".join(TABLES.split())))}
        moment = ask(MOMENT)
        schema = ask(SCHEMA) if "alembic_version" in tables else ""
        without = [f"--exclude-table-data=public.{name}" for name in options["left_out"]]
        known = [f"--extension={name}" for name in json.loads(ask(" ".join(EXTENSIONS.split())))]
        how = ["--no-owner", "--no-privileges", *without, *known]
        hashes = _dump(server, ["pg_dump", f"--snapshot={held}", *how, options["database"]], Path(options["dump"]))
    tables |= dict.fromkeys([name for name in options["left_out"] if name in tables], 0)
    dumped = round(time.monotonic() - begin, 2)
    loaded = load(server, {**options, "tables": tables, "sha256": hashes["sha256"]})
    server.drop(options["beside"])
    made = {"moment": moment, "schema": schema, "tables": tables, "seconds": {"dump": dumped, "restore": loaded}}
    return {"present": True, "changed": True, **made, **hashes}


def load(server: Server, options: Mapping[str, Any]) -> float:
    """Load a dump into a database beside, count its rows, and return the seconds; what fails leaves none."""
    beside, dump = options["beside"], Path(options["dump"])
    if (found := _hash(dump)) != options["sha256"]:
        raise FaultError(f"{dump.name} is not the dump that was made: its hash is {found}. Hint: take another backup.")
    begin = time.monotonic()
    server.drop(beside)
    made = f"--owner={options['owner']}", "--encoding=UTF8", "--locale=C.UTF-8", "--template=template0"
    server.run("createdb", *made, beside)
    try:
        _fill(server, beside, options["owner"], dump)
        _compare(_count(server, beside), options["tables"])
    except BaseException:
        server.drop(beside)
        raise
    return round(time.monotonic() - begin, 2)


def swap(server: Server, options: Mapping[str, Any], *, present: bool) -> dict[str, Any]:
    """Put the loaded database in the place of the other one, which is kept where there is work in it."""
    database, beside, kept = options["database"], options["beside"], options["kept"]
    work = work_to_keep(server, options) if present else 0
    old = kept or f"{beside}_old"
    server.ask("postgres", *(LET_GO.format(name) for name in (database, beside)))
    renamed = [f'ALTER DATABASE "{database}" RENAME TO "{old}"'] if present else []
    server.ask("postgres", *renamed, f'ALTER DATABASE "{beside}" RENAME TO "{database}"')
    if present and not work:
        server.drop(old)
    return {"present": True, "changed": True, "kept": old if work else ""}


def work_to_keep(server: Server, options: Mapping[str, Any]) -> int:
    """Return how much work there is in the database; raises FaultError where it may not be replaced."""
    database = options["database"]
    work = sum(count for name, count in _count(server, database).items() if name in WORK)
    if work and not options["kept"]:
        raise FaultError(
            f"the database {database} has sessions, projects or volumes. Hint: say --replace, and it is kept under"
            " another name."
        )
    return work


@contextmanager
def snapshot(server: Server, database: str) -> Iterator[tuple[Any, str]]:
    """Hold what a database is like at one moment; gives what asks for a line, and the name of the moment."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with server.start([*PSQL, "--dbname", database], **streams) as process:
        writing, reading, failing = _open(process.stdin), _open(process.stdout), _open(process.stderr)

        def ask(statement: str) -> str:
            try:
                writing.write(f"{statement};\n".encode())
                writing.flush()
            except BrokenPipeError:
                pass  # what it said before its end is told below
            line = reading.readline()
            if not line:
                raise FaultError(_said("psql", failing.read()))
            return line.decode().strip()

        try:
            writing.write(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\n")
            yield ask, ask("SELECT pg_export_snapshot()")
        finally:
            process.kill()


def _dump(server: Server, words: Sequence[str], path: Path) -> dict[str, Any]:
    """Write a compressed dump that is on the disk; one that fails leaves nothing."""
    plain, size = hashlib.sha256(), 0
    try:
        with path.open("wb") as file, server.start(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            try:
                # the same bytes for the same rows: no name and no time in the head
                with gzip.GzipFile("", "wb", 1, file, 0) as packed:
                    while piece := _open(process.stdout).read(PIECE):
                        plain.update(piece)
                        size += len(piece)
                        packed.write(piece)
            except BaseException:
                process.kill()
                raise
            error = _open(process.stderr).read()
            file.flush()
            os.fsync(file.fileno())
        if process.returncode:
            raise FaultError(_said("pg_dump", error))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return {"sha256": _hash(path), "size": path.stat().st_size, "plain_sha256": plain.hexdigest(), "plain_size": size}


def _fill(server: Server, database: str, owner: str, dump: Path) -> None:
    # a dump is a program of psql, which starts others: it may do what the owner of the database may, and no more
    words = [*PSQL, "--output=/dev/null", "--username", owner, "--dbname", database]
    with server.start(words, owner, stdin=subprocess.PIPE) as process:
        try:
            with gzip.open(dump) as packed, _open(process.stdin) as writing:
                while piece := packed.read(PIECE):
                    writing.write(piece)
                writing.write(b"\n;ANALYZE;\n")
        except BrokenPipeError:
            pass  # what it said before its end is told below
        except BaseException:
            process.kill()
            raise
        error = _open(process.stderr).read()
    if process.returncode:
        raise FaultError(_said("psql", error))


def _count(server: Server, database: str) -> dict[str, int]:
    """Return the rows of each table."""
    with snapshot(server, database) as (ask, _):
        return {name: _rows(ask, name) for name in json.loads(ask(" ".join(TABLES.split())))}


def _rows(ask: Any, table: str) -> int:
    return int(ask(f"SELECT count(*) FROM public.{table}"))  # noqa: S608 - quoted by PostgreSQL


def _compare(found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raise FaultError that names the tables whose rows are not those that were dumped."""
    names = sorted(found.keys() | expected.keys())
    wrong = [name for name in names if found.get(name) != expected.get(name)]
    if wrong:
        told = ", ".join(f"{name}: {found.get(name)} instead of {expected.get(name)}" for name in wrong)
        raise FaultError(f"the dump does not give back what was in the database: rows of {told}. Hint: make another.")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    """Return a stream of a program, which was started with it."""
    if stream is None:
        raise FaultError("a program was started without a stream")
    return stream


def _said(program: str, error: bytes) -> str:
    lines = error.decode(errors="replace").strip().splitlines()
    return f"{program}: {'; '.join(lines[-5:]) or 'it ended early'}. Hint: look at the log of PostgreSQL and its disk."


if __name__ == "__main__":
    main()
