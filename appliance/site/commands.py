"""Commands that root runs on the controller: each leaves a record, of which the audit log of the API is told.

The API may be away meanwhile, or be what a command brings back, so the record is a file of the state, and stays until
the API has heard of it. A command whose record cannot be written is not run.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from appliance.site import inventory, settings
from common import files
from common.errors import PenstockError, UnavailableError
from common.repair_protocol import MAX_COMMANDS, CommandReport

STATE = Path(inventory.STATE)
FOLDER = "commands"
BROKEN_OFF = "it was broken off: its process was ended, or the machine went down"


class Told:
    """A command that runs, and its record."""

    def __init__(self, folder: Path, command: str, subject: str) -> None:
        """Take note of what is done by whom."""
        self._path = folder / f"{uuid4()}.json"
        self._said = {"id": self._path.stem, "command": command, "object": subject, "by": settings.caller()}
        self._said["began_at"] = _moment()
        self._changes = True

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write the record, and hold it: one that nobody holds is over."""
        beside = self._path.with_suffix(files.BESIDE)
        try:
            for folder in (self._path.parent.parent, self._path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = beside.open("w", encoding="utf-8")
        except OSError as error:
            raise _refused(self._path, error) from error
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                json.dump(self._said, handle)
                handle.flush()
                os.fsync(handle.fileno())
                beside.rename(self._path)
            except OSError as error:
                beside.unlink(missing_ok=True)
                raise _refused(self._path, error) from error
            yield

    def changed_nothing(self) -> None:
        """Leave no record."""
        self._changes = False

    def ends(self, reason: str) -> None:
        """Write what came of it; the reason is empty where all went well."""
        if not self._changes and not reason:
            self._path.unlink(missing_ok=True)
            return
        end = {"ended_at": _moment(), "ok": not reason, "reason": reason}
        # a full disk changes nothing of what was done; without this it is told as broken off
        with suppress(OSError):
            files.write(self._path, json.dumps(self._said | end), 0o600)


@contextmanager
def told(command: str, subject: str, state: Path | None = None) -> Iterator[Told]:
    """Run a command, such as `backup restore`, on an object, such as `backups/NAME`, with its record.

    Raises UnavailableError where that cannot be written.
    """
    record = Told((state or STATE) / FOLDER, command, subject)
    with record.running():
        reason = "it was ended"
        try:
            yield record
            reason = ""
        except PenstockError as error:
            reason = "; ".join(str(problem) for problem in error.problems)
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.ends(reason)


def over(state: Path) -> list[CommandReport]:
    """Return the commands that are over and of which nobody has been told, the oldest first; no more than a message
    takes.
    """
    found = [report for path in (state / FOLDER).glob("*.json") if (report := _read(path))]
    return sorted(found, key=lambda report: report.began_at)[:MAX_COMMANDS]


def forget(state: Path, heard: Iterable[CommandReport]) -> None:
    """Remove the records of which the API has heard."""
    for report in heard:
        (state / FOLDER / f"{report.id}.json").unlink(missing_ok=True)


def _read(path: Path) -> CommandReport | None:
    """Return what a record says; None for one whose command runs, or that a power cut has damaged."""
    try:
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            said = json.load(file)
        return CommandReport.model_validate({"reason": BROKEN_OFF} | said)
    except (OSError, ValueError, TypeError):
        return None


def _refused(path: Path, error: OSError) -> UnavailableError:
    reason = f"the command cannot be noted for the audit log, and is not run: {error.strerror}"
    return UnavailableError(reason, where=str(path.parent), hint="run it as root, and look at the disk")


def _moment() -> str:
    return f"{datetime.now(UTC).isoformat(timespec='microseconds')}"
