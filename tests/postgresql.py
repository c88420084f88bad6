"""A PostgreSQL server of a test run's own: started from Debian's package in a temporary folder, reached by a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


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
    )


@contextmanager
def running_server() -> Iterator[Path]:
    """Run a server and give the folder of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data, programs_ = folder / "data", programs()
    try:
        as_server_user(
            programs_ / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-n"
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        as_server_user(programs_ / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield folder
        finally:
            as_server_user(programs_ / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def new_database(folder: Path) -> str:
    """Make an empty database and return its URL."""
    name = f"tests_{uuid4().hex}"
    subprocess.run([programs() / "createdb", "-h", str(folder), "-U", "tests", name], check=True)
    return f"postgresql+psycopg://tests@/{name}?host={folder}"
