"""PostgreSQL servers of Debian's package, each in a folder and reached by a socket: one for all tests, and more.

What is in them is lost with the machine's power, so that nothing waits for a disk.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import psycopg

OF_TESTS = {
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "jit": "off",
}
"""Settings of a server that many tests use for a short time. It is never killed, and nobody measures it."""
OWNER = "nobody"
"""A user of the machine, and a role, who may do nothing but own a database."""
WATCH = """(
while [ -d "/proc/$1" ]; do sleep 5; done
[ ! -d "$3" ] || "$2/pg_ctl" -D "$3/data" -m immediate stop
rm -rf "$3"
) > /dev/null 2>&1 &"""
"""Stops the server of a folder when a process has ended that cannot do so any more."""


def programs() -> Path:
    """Return the folder of the newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, "PostgreSQL is missing: install the Debian package postgresql"
    return found[-1].parent


def as_server_user(*words: str | Path) -> None:
    """Run a program as a user who may run the server, which root may not."""
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    subprocess.run(
        [str(word) for word in words],
        check=True,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def new_folder() -> Path:
    """Return a folder for a server; its path is short, for a socket's may have 107 characters."""
    return Path(tempfile.mkdtemp(prefix="penstock-postgresql-"))


def start(folder: Path, settings: Mapping[str, str], owner: int) -> None:
    """Make a server in a folder and start it; it does not outlive the process that is its owner, however that ends."""
    data, programs_ = folder / "data", programs()
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    as_server_user(
        programs_ / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-n"
    )
    settings = {"listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off", **settings}
    options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
    as_server_user(programs_ / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    as_server_user("sh", "-c", WATCH, "sh", str(owner), programs_, folder)


def open_to_owner(folder: Path) -> None:
    """Let the owner of databases come to the socket of a server, and nobody else but the server's user."""
    os.chown(folder, -1, pwd.getpwnam(OWNER).pw_gid)
    folder.chmod(0o710)


def let_owner_in(folder: Path) -> None:
    """Let the owner of databases come to a server, and know who that is."""
    open_to_owner(folder)
    with closing(connect(folder, "postgres")) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (OWNER,)).fetchall():
            connection.execute(f"CREATE ROLE {OWNER} LOGIN")


def stop(folder: Path) -> None:
    """Stop a server, where there is one, and remove what it has left."""
    data = folder / "data"
    if (data / "postmaster.pid").exists():
        as_server_user(programs() / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_server(settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Path]:
    """Run a server and give the folder of its socket."""
    folder = new_folder()
    try:
        start(folder, settings, os.getpid())
        yield folder
    finally:
        stop(folder)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let no other process be here that uses the server of this folder, too."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shared_server(folder: Path, owner: int) -> None:
    """Start the server that several processes have in a folder, if none of them has done so."""
    with alone(folder):
        if not (folder / "data").exists():
            start(folder, OF_TESTS, owner)


def new_database(folder: Path, template: str = "template0") -> str:
    """Make a database, empty or as another one is, and return its URL."""
    name = f"tests_{uuid4().hex}"
    with closing(connect(folder, "postgres")) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return url_of(folder, name)


def connect(folder: Path, name: str) -> psycopg.Connection:
    """Connect to a database; each statement is a transaction."""
    return psycopg.connect(f"host={folder} user=tests dbname={name}", autocommit=True)


def url_of(folder: Path, name: str) -> str:
    """Return the URL of a database as the API takes it."""
    return f"postgresql+psycopg://tests@/{name}?host={folder}"
