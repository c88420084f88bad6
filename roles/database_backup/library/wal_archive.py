#!/usr/bin/python3
"""The archive of a database's log (WAL) by pgBackRest: full backups, its window, and the way back to a moment.

What comes back is recovered and counted in a server beside, which nobody else reaches, before anything is stopped.
"""

from __future__ import annotations

import configparser
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: wal_archive
short_description: Back up a cluster of PostgreSQL beside the archive of its log, and bring it back as at a moment
description: A cluster that comes back is recovered and counted beside the present one, and takes its place by name.
author: Penstock
options:
  action: {type: str, required: true, choices: [backup, window, recover, swap, promote, drop], description: What to do.}
  configuration: {type: path, required: true, description: Configuration of pgBackRest.}
  database: {type: str, default: "", description: Name of the database whose rows are counted.}
  to: {type: str, default: "", description: Moment to come back to; empty for the end of the archive.}
  kept: {type: str, default: "", description: Ending of the name that the cluster before is kept under.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "action": {
        "type": "str",
        "required": True,
        "choices": ["backup", "window", "recover", "swap", "promote", "drop"],
    },
    "configuration": {"type": "path", "required": True},
    "database": {"type": "str", "default": ""},
    "to": {"type": "str", "default": ""},
    "kept": {"type": "str", "default": ""},
}
STANZA = "penstock"
AS_POSTGRES = ("runuser", "--user=postgres", "--")
PSQL = ("psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")
SEGMENT = 16 << 20
"""Bytes of a segment of the log, as Debian makes clusters."""
SETTLED_S = 20.0
"""A standby asks the archive every 5 s; where nothing more came for so long, it has no more."""
STARTS_S = 120.0
LOOK_S, HUNG_S = 30.0, 60.0
"""How often the archive's folder is asked whether it answers while pgBackRest runs, and for how long it may not."""
END_S = 10.0
"""What does not end in so long is left: what waits for a file system that hangs may not be ended at all."""

WHERE = """SELECT pg_get_wal_replay_pause_state() = 'paused', pg_last_wal_replay_lsn() - '0/0'::pg_lsn,
extract(epoch FROM pg_last_xact_replay_timestamp())"""
TABLES = "SELECT coalesce(json_agg(format('%I', tablename)), '[]') FROM pg_tables WHERE schemaname = 'public'"
FORGOTTEN = ("recovery_target_time", "recovery_target_action", "recovery_target_timeline", "restore_command")


class FaultError(Exception):
    """What went wrong, with a hint."""


class Archive:
    """The archive of a cluster, as the configuration of pgBackRest names both."""

    def __init__(self, configuration: Path) -> None:
        """Read where cluster and archive are."""
        parser = configparser.ConfigParser(interpolation=None)
        if not parser.read(configuration):
            raise FaultError("there is no archive of the log. Hint: name a folder as `backup.wal_to`, and deploy.")
        self._configuration = configuration
        self.data = Path(parser[STANZA]["pg1-path"])
        self.folder = Path(parser["global"]["repo1-path"])
        self.beside = self.data.with_name(f"{self.data.name}.restored")

    def call(self, *words: str) -> str:
        """Run pgBackRest, for as long as the folder of the archive answers."""
        program = ("pgbackrest", f"--config={self._configuration}", f"--stanza={STANZA}")
        return run(*program, *words, folder=self.folder)

    def known(self) -> tuple[list[dict[str, Any]], str]:
        """Return the full backups, the oldest first, and the last segment that is archived."""
        told = json.loads(self.call("info", "--output=json"))
        backups = [each for stanza in told for each in stanza["backup"] if not each["error"]]
        archived = [each["max"] for stanza in told for each in stanza["archive"] if each["max"]]
        if not backups or not archived:
            raise FaultError(f"{self.folder} has no backup of the database yet. Hint: run `penstock backup now`.")
        return sorted(backups, key=_stop), max(archived)

    def timeline_at(self, moment: float | None, backups: list[dict[str, Any]]) -> int:
        """Return the timeline that the cluster was on at a moment, or is on now.

        Each way back begins one, and what it has undone is found on the one before alone.
        """
        begun = {1: 0.0}
        for path in self.folder.glob(f"archive/{STANZA}/*/*.history*"):
            begun[int(path.name[:8], 16)] = path.stat().st_mtime
        for each in backups:
            begun.setdefault(_timeline(each), _stop(each))
        return max(number for number, since in begun.items() if moment is None or since <= moment)

    def left(self, timeline: int) -> dict[int, int]:
        """Return the timelines before one, and where in the log each was left for the next."""
        if timeline == 1:
            return {}
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            shutil.chown(folder, "postgres")
            self.call("archive-get", f"{timeline:08X}.history", f"{folder}/history")
            lines = [line.split() for line in Path(folder, "history").read_text().splitlines()]
        return {int(words[0]): _place(words[1]) for words in lines if words and words[0].isdigit()}

    def last_of(self, timeline: int, left: Mapping[int, int]) -> str:
        """Return the last segment of a timeline that is archived whole; the one that it begins in, if there is none."""
        begins = max(left.values(), default=0)
        first = f"{timeline:08X}{begins >> 32:08X}{(begins & 0xFFFFFFFF) // SEGMENT:08X}"
        found = self.folder.glob(f"archive/{STANZA}/*/{timeline:08X}*/{timeline:08X}*")
        return max((path.name[:24] for path in found if ".partial" not in path.name), default=first)

    def archived_at(self, segment: str) -> float:
        """Return when a segment came into the archive."""
        found = self.folder.glob(f"archive/{STANZA}/*/{segment[:16]}/{segment}-*")
        moments = [path.stat().st_mtime for path in found]
        if not moments:
            # folders that a server shows postgres alone look empty to root, and so would all timelines
            said = f"pgBackRest knows {segment}, and root finds no such file in {self.folder}."
            raise FaultError(f"{said} Hint: export it to the master with `no_root_squash`, where it is NFS.")
        return max(moments)


def main() -> None:
    """Return what was done as `penstock_archive`, and what is kept as `penstock_kept`."""
    module = AnsibleModule(argument_spec=OPTIONS)
    try:
        done = act(module.params)
    except (FaultError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=module.params["action"] != "window", **done)


def act(options: Mapping[str, Any]) -> dict[str, Any]:
    """Do what is asked for."""
    archive, action = Archive(Path(options["configuration"])), options["action"]
    if action == "backup":
        # says why where no segment comes into the archive, instead of waiting for one
        archive.call("check")
        archive.call("--type=full", "backup")
    if action in ("backup", "window"):
        return {"penstock_archive": window(archive)}
    if action == "recover":
        return {"penstock_archive": recover(archive, options)}
    if action == "swap":
        return {"penstock_kept": swap(archive, options["kept"])}
    if action == "promote":
        promote(archive)
    shutil.rmtree(archive.beside, ignore_errors=True)
    return {}


def window(archive: Archive) -> dict[str, Any]:
    """Return from when to when the archive brings the database back."""
    backups, last = archive.known()
    return {
        "backup": backups[-1]["label"],
        "begins": _moment(_stop(backups[0])),
        "ends": _moment(archive.archived_at(last)),
    }


def recover(archive: Archive, options: Mapping[str, Any]) -> dict[str, Any]:
    """Recover the cluster beside the present one up to a moment, count its rows, and stop it; a fault leaves none."""
    backups, last = archive.known()
    to = datetime.fromisoformat(options["to"]).timestamp() if options["to"] else None
    if to and to < _stop(backups[0]):
        raise FaultError(f"the archive begins at {_moment(_stop(backups[0]))}. Hint: name a later moment.")
    # also for the end of the archive: nothing else tells that root sees none of its files
    ended = archive.archived_at(last)
    if to and ended < to:
        raise FaultError(f"the archive ends at {_moment(ended)}. Hint: name an earlier moment, or its end.")
    timeline = archive.timeline_at(to, backups)
    left = archive.left(timeline)
    last = archive.last_of(timeline, left)
    chosen = [each for each in backups if (to is None or _stop(each) <= to) and _leads_to(each, timeline, left)]
    if not chosen:
        raise FaultError("no backup is older than what a way back has undone. Hint: run `penstock backup now`.")
    target = [f"recovery_target_timeline={timeline}"]
    target += [f"recovery_target_time={_moment(to, '%FT%T.%f+00')}", "recovery_target_action=pause"] if to else []
    shutil.rmtree(archive.beside, ignore_errors=True)
    begin = time.monotonic()
    try:
        words = [f"--set={chosen[-1]['label']}", f"--pg1-path={archive.beside}", "--type=standby"]
        archive.call(*words, *(f"--recovery-option={each}" for each in target), "restore")
        with server(archive) as ask:
            last_change = replayed(ask, last)
            tables = count(ask, options["database"])
        settings = archive.beside / "postgresql.auto.conf"
        settings.write_text(settings.read_text().replace(str(archive.beside), str(archive.data)))
    except BaseException:
        shutil.rmtree(archive.beside, ignore_errors=True)
        raise
    seconds = round(time.monotonic() - begin, 2)
    point = last_change or _stop(chosen[-1])
    return {"backup": chosen[-1]["label"], "moment": _moment(point), "tables": tables, "seconds": seconds}


def swap(archive: Archive, kept: str) -> str:
    """Put the recovered cluster in the place of the other one, which is stopped; returns where that is kept."""
    before = archive.data.with_name(f"{archive.data.name}.{kept}")
    there = archive.data.is_dir()
    if there:
        archive.data.rename(before)
    archive.beside.rename(archive.data)
    return str(before) if there else ""


def promote(archive: Archive) -> None:
    """Let the cluster that took the place take changes, on a timeline of its own, and archive them."""
    deadline = time.monotonic() + STARTS_S
    while True:
        try:
            asked("", "postgres", "SELECT pg_promote(true, 60) WHERE pg_is_in_recovery()")
            break
        except FaultError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    for name in FORGOTTEN:
        asked("", "postgres", f"ALTER SYSTEM RESET {name}")
    asked("", "postgres", "SELECT pg_reload_conf()")
    archive.call("stanza-upgrade")


@contextmanager
def server(archive: Archive) -> Iterator[Any]:
    """Run the cluster that was brought back where nobody else reaches it; gives what asks one of its databases."""
    version = (archive.beside / "PG_VERSION").read_text().strip()
    control = f"/usr/lib/postgresql/{version}/bin/pg_ctl"
    # Debian has them apart from the cluster
    settings = archive.beside / "postgresql.conf"
    if not settings.is_file():
        settings = Path(str(archive.data).replace("/var/lib/", "/etc/", 1)) / "postgresql.conf"
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        shutil.chown(folder, "postgres")
        said = {
            "config_file": settings,
            "data_directory": archive.beside,
            "archive_mode": "off",
            "listen_addresses": "",
            "unix_socket_directories": folder,
            "external_pid_file": f"{folder}/pid",
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in said.items())
        log = f"{folder}/log"
        try:
            run(control, "-D", str(archive.beside), "-w", "-t", "3600", "-l", log, "-o", options, "start")
            yield lambda database, statement: asked(folder, database, statement)
        except FaultError as error:
            tail = Path(log).read_text(errors="replace").splitlines()[-5:] if Path(log).exists() else []
            raise FaultError(" ".join([str(error), *tail])) from error
        finally:
            if (archive.beside / "postmaster.pid").exists():
                run(control, "-D", str(archive.beside), "-w", "-m", "fast", "stop")


def replayed(ask: Any, last: str) -> float:
    """Wait until a server has come to its moment, or to the end of what is archived.

    Returns when the last change was made that it has; 0 where there was none.
    """
    end = (int(last[8:16], 16) << 32) + (int(last[16:], 16) + 1) * SEGMENT
    seen, since = -1, time.monotonic()
    while True:
        paused, at, changed = ask("postgres", WHERE).split("|")
        if paused == "t" or int(at or 0) >= end:
            return float(changed or 0)
        if int(at or 0) != seen:
            seen, since = int(at or 0), time.monotonic()
        elif time.monotonic() - since > SETTLED_S:
            if seen >= end - 2 * SEGMENT:  # the last record goes on in a segment that is not archived
                return float(changed or 0)
            raise FaultError(f"the archive has a gap before {last}. Hint: name a moment before it, or use a dump.")
        time.sleep(0.2)


def count(ask: Any, database: str) -> dict[str, int]:
    """Return the rows of each table."""
    names = json.loads(ask(database, TABLES))
    parts = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS rows FROM public.{name}" for name in names)  # noqa: S608 - quoted by PostgreSQL
    return dict(json.loads(ask(database, f"SELECT json_object_agg(name, rows) FROM ({parts}) t"))) if parts else {}  # noqa: S608


def asked(folder: str, database: str, statement: str) -> str:
    """Return what a server answers whose socket is in a folder; the one of the machine without a folder."""
    host = ["--host", folder] if folder else []
    return run(*PSQL, *host, "--dbname", database, "--command", " ".join(statement.split()))


def run(*words: str, folder: Path | None = None) -> str:
    """Run a program as the user of PostgreSQL and return what it prints; it is ended where a folder hangs."""
    if folder:
        require_answer(folder)
    # a server that it starts would keep a pipe open
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        said = {**os.environ, "LC_ALL": "C.UTF-8"}
        group = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": error, "start_new_session": True}
        done = subprocess.Popen([*AS_POSTGRES, *words], env=said, cwd="/", **group)
        try:
            while not ended(done, LOOK_S if folder else None):
                if folder:
                    require_answer(folder)
        except BaseException:
            end(done)
            raise
        told = [_read(out), _read(error)]
    if done.returncode:
        lines = "; ".join((told[1] or told[0]).splitlines()[-5:])
        raise FaultError(
            f"{Path(words[0]).name}: {lines}. Hint: look at the log of PostgreSQL and at the archive's disk."
        )
    return told[0]


def require_answer(folder: Path) -> None:
    """Raise FaultError where the file system of a folder hangs, as that of an NFS server that is gone does for ever.

    What it answers is of no interest here: a folder that is not there yet answers, too.
    """
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # the file system itself is asked: of a file the kernel may remember what it was
    look = subprocess.Popen(["stat", "--file-system", str(folder)], start_new_session=True, **quiet)
    if not ended(look, HUNG_S):
        end(look)
        said = f"{folder} does not answer: nothing came of it in {HUNG_S:g} s."
        raise FaultError(f"{said} Hint: look at its mount and at the server behind it, then try again.")


def ended(process: subprocess.Popen[bytes], patience_s: float | None) -> bool:
    """Return whether a program ends within so many seconds."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started; it is not waited for longer than a moment."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, how)
        ended(process, END_S)


def _read(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace")).strip()


def _stop(backup: Mapping[str, Any]) -> float:
    return float(backup["timestamp"]["stop"])


def _timeline(backup: Mapping[str, Any]) -> int:
    return int(backup["archive"]["stop"][:8], 16)


def _leads_to(backup: Mapping[str, Any], timeline: int, left: Mapping[int, int]) -> bool:
    """Return whether a backup is of a timeline, or of one before it from the time before that was left."""
    own = _timeline(backup)
    return own == timeline or _place(backup["lsn"]["stop"]) <= left.get(own, -1)


def _place(said: str) -> int:
    """Return a place in the log, as PostgreSQL writes it, in bytes."""
    high, _, low = said.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _moment(seconds: float, form: str = "%FT%TZ") -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


if __name__ == "__main__":
    main()
