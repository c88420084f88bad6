"""Deletions of old files of the audit log, one after the other: the log stays well, and names all who deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.resources.audit import service
from api.resources.audit.chain import GENESIS, Head, Verification
from api.resources.audit.log_files import LogFiles

pytestmark = pytest.mark.anyio


class Log:
    """A log that is written for some days; old files are deleted as an administrator does."""

    def __init__(self, folder: Path) -> None:
        self.files = LogFiles(folder, b"a key of this test")
        self.head = GENESIS

    def add(self, day: int, user: str = "alice", **more: object) -> Head:
        entry = {"user": user, "time": f"2026-11-{day:02}T10:00:00Z", **more}
        self.head = self.files.append([(f"{self.head.seq}", entry)], datetime(2026, 11, day, tzinfo=UTC), self.head)
        return self.head

    async def delete(self, day: int, on: int, user: str) -> None:
        sealed = await service.seal_deletion(self.files, f"202611{day:02}")
        self.add(on, user, **sealed)
        self.files.delete(f"202611{day:02}")

    def verified(self, **heads: Head) -> Verification:
        return self.files.verify({who: [head] for who, head in {"database": self.head, **heads}.items()})


async def test_who_deletes_the_record_of_a_deletion_takes_it_along(tmp_path: Path) -> None:
    log = Log(tmp_path)
    seen = log.add(1)
    for day in (1, 2, 3):
        log.add(day)
    await log.delete(1, 3, "root")
    log.add(4)
    await log.delete(2, 4, "mally")
    await log.delete(3, 4, "root")
    log.add(5)
    await log.delete(4, 5, "alice")
    done = log.verified(worker1=seen)
    assert done.ok, done.findings
    told = [(one["day"], one["user"], one["time"][8:10]) for one in done.deleted]
    assert sorted(told) == [
        ("20261101", "root", "03"),
        ("20261102", "mally", "04"),
        ("20261103", "root", "04"),
        ("20261104", "alice", "05"),
    ]


async def test_a_record_that_is_there_and_taken_along_is_told_once(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.add(1)
    log.add(2)
    await log.delete(1, 2, "root")
    log.add(3)
    log.add(3, "root", **await service.seal_deletion(log.files, "20261102"))
    done = log.verified()
    assert done.ok, done.findings
    assert [one["day"] for one in done.deleted] == ["20261101", "20261102"]


async def test_what_was_taken_along_excuses_no_other_line(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for day in (1, 2, 3):
        log.add(day)
    await log.delete(1, 3, "root")
    log.add(4)
    await log.delete(3, 4, "root")
    (tmp_path / "20261102.log").unlink()
    assert not log.verified().ok


@pytest.mark.parametrize("user", ["root", ""], ids=["administrator", "clock"])
async def test_a_file_that_was_altered_before_it_was_deleted_is_named(tmp_path: Path, user: str) -> None:
    log = Log(tmp_path)
    for _ in range(3):
        log.add(1)
    for day in (2, 3):
        log.add(day)
    path = tmp_path / "20261101.log"
    path.write_bytes(path.read_bytes().replace(b'"alice"', b'"mally"', 2))
    await log.delete(1, 3, user)
    await log.delete(2, 3, user)
    log.add(4)
    await log.delete(3, 4, user)
    said = [(one.day, one.what) for one in log.verified().findings]
    what = "it did not verify when it was deleted: 3 found, first 20261101.log:1: this line is not as it was written"
    assert ("20261101", what) in said
