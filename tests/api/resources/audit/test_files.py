"""Files of the audit log: verified, deleted and copied, and never taken for whole where they are not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.control.audit_writer import RETRY_S
from api.resources.audit import repository, service
from api.resources.audit.log_files import LogFiles
from common.errors import UnavailableError
from tests.api.cluster import V1, Cluster, ok, refused
from tests.api.resources.audit.log import file_of, last, lines
from tests.api.steps import once

pytestmark = pytest.mark.anyio


async def test_the_log_is_verified(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    await audited.settle()
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert (verdict["ok"], verdict["findings"]) == (True, [])
    path = file_of(audited)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"quota_milli":1000', b'"quota_milli":9000'))
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert not verdict["ok"]
    assert "not as it was written" in verdict["findings"][-1]["what"]
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert "this site's database has seen" in verdict["findings"][0]["what"]


async def test_what_was_cut_off_stays_missing_when_the_log_goes_on(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    await audited.add_project("sound", 1000)
    await audited.settle()
    path = file_of(audited)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    await audited.add_project("smell", 1000)
    await audited.settle()
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert [one["what"] for one in verdict["findings"]] == ["line 2 of the log before this one are missing"]


async def test_a_writer_that_dies_between_file_and_database_writes_no_line_twice(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = asyncio.Event()

    async def die(*_: Any) -> None:
        died.set()
        raise OSError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(repository, "written", die)
        await audited.add_project("vision", 1000)
        await audited.manager.reconcile()
        await died.wait()
    await audited.manager.operations["audit"]
    path = file_of(audited)
    assert len(path.read_bytes().splitlines()) == 1
    with path.open("ab") as file:
        file.write(b'{"seq":2,"torn')
    await audited.add_project("sound", 1000)
    assert [line["object"] for line in await lines(audited)] == ["projects/sound", "projects/vision"]
    assert (await ok(audited.admin.get(f"{V1}/audit/verification")))["ok"]


async def test_the_file_of_a_day_that_is_over_can_be_deleted_and_leaves_a_line(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    await audited.settle()
    path = file_of(audited)
    await refused(audited.admin.delete(f"{V1}/audit/files/{path.stem}"), 409)
    log = service.log_of(audited.settings)
    assert log
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    log.append([("later", {"time": "", "action": "none"})], tomorrow)
    await ok(audited.admin.delete(f"{V1}/audit/files/{path.stem}"))
    await audited.settle()
    assert not path.exists()
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert verdict["ok"], verdict
    assert [one["day"] for one in verdict["deleted"]] == [path.stem]
    await refused(audited.admin.delete(f"{V1}/audit/files/{path.stem}"), 404)
    files = await ok(audited.admin.get(f"{V1}/audit/files"))
    assert [one["day"] for one in files] == [f"{tomorrow:%Y%m%d}"]


async def deletable(cluster: Cluster) -> Path:
    """A file whose day is over."""
    await cluster.add_project("vision", 1000)
    await cluster.settle()
    path = file_of(cluster)
    log = service.log_of(cluster.settings)
    assert log
    log.append([("later", {"time": "", "action": "none"})], datetime.now(UTC) + timedelta(days=1))
    return path


async def test_the_log_verifies_at_each_step_of_a_deletion_and_a_crash_leaves_no_file(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await deletable(audited)
    await ok(audited.admin.delete(f"{V1}/audit/files/{path.stem}"))
    assert (await ok(audited.admin.get(f"{V1}/audit/verification")))["ok"], "its line is not in the files yet"

    def die(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(LogFiles, "delete", die)
        await once(audited)
    assert path.exists()
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert verdict["ok"], verdict
    await audited.settle()
    assert not path.exists()
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert (verdict["ok"], [one["day"] for one in verdict["deleted"]]) == (True, [path.stem])


async def test_a_file_that_did_not_verify_when_it_went_is_told_by_verify_and_by_health(audited: Cluster) -> None:
    path = await deletable(audited)
    path.write_bytes(path.read_bytes().replace(b'"quota_milli":1000', b'"quota_milli":9000'))
    await ok(audited.admin.delete(f"{V1}/audit/files/{path.stem}"))
    await audited.settle()
    what = (
        f"it did not verify when it was deleted: 1 found, first {path.stem}.log:1: this line is not as it was written"
    )
    verdict = await ok(audited.admin.get(f"{V1}/audit/verification"))
    assert {"day": path.stem, "line": 0, "what": what} in verdict["findings"]
    for _ in range(3):
        audited.clock.passed += audited.settings.health_interval_s
        await audited.settle()
    (one,) = [one for one in await ok(audited.admin.get(f"{V1}/health/checks")) if one["check"] == "audit.log"]
    assert (one["state"], one["evidence"]) == ("fail", f"{path.stem}.log: {what}")


async def test_a_file_is_copied_as_it_is(audited: Cluster) -> None:
    await audited.add_project("vision", 1000)
    await audited.settle()
    path = file_of(audited)
    answer = await audited.admin.get(f"{V1}/audit/files/{path.stem}")
    assert answer.content == path.read_bytes()


def move(folder: Path, name: str) -> Path:
    return folder.rename(folder.with_name(name))


async def test_a_log_that_cannot_be_read_is_none_that_is_empty_or_was_changed(audited: Cluster) -> None:
    folder = Path(str(audited.settings.audit_folder))
    await audited.add_project("vision", 1000)
    assert await lines(audited)
    away = move(folder, "away")
    for path in ("audit", "audit/verification", "audit/files"):
        told = await refused(audited.admin.get(f"{V1}/{path}"), 503)
        assert told["reason"] == "the audit log cannot be read: No such file or directory", path
        assert "folder belongs to the API's user" in told["hint"]
    move(away, folder.name)
    audited.clock.passed += RETRY_S
    assert (await last(audited, project="vision"))["action"] == "project_create"


async def test_a_log_that_cannot_be_written_is_tried_again_after_a_while(
    audited: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    async def fail(*_: Any) -> bool:
        tries.append(1)
        raise UnavailableError("the audit log cannot be written: Permission denied")

    await audited.add_project("vision", 1000)
    with monkeypatch.context() as patch:
        patch.setattr(service, "write", fail)
        for _ in range(5):
            await once(audited)
        assert len(tries) == 1
        audited.clock.passed += RETRY_S
        await once(audited)
        assert len(tries) == 2
    audited.clock.passed += RETRY_S
    assert (await last(audited, project="vision"))["action"] == "project_create"
