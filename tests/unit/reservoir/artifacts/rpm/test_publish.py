from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from common.progress import silent
from reservoir.artifacts.kind import Staging
from reservoir.artifacts.rpm import repository
from reservoir.artifacts.rpm.publish import publish
from reservoir.contents.artifact import RpmArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import SetVersions, TargetRecord
from reservoir.signing import openpgp

CREATED = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_package_of_a_version_set_is_published_in_that_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(repository, "write", lambda _, rpms, *__, **___: written.extend(rpm.filename for rpm in rpms))
    names = {"driver-1.rpm": "1", "driver-2.rpm": "2"}
    found = [
        RpmArtifact(
            name="driver",
            version=version,
            filename=filename,
            sha256=version * 64,
            size=1,
            origin="made for a test",
            targets=["el9"],
        )
        for filename, version in names.items()
    ]
    bundle = Bundle(
        name="a",
        version="1",
        created="2026-01-02T00:00:00Z",
        targets=[TargetRecord(name="el9", os="rpm", release="9", arch="amd64")],
        artifacts=[*found],
        version_sets=[SetVersions(name="gpu", target="el9", packages={"driver": "1"})],
    )
    publish(Staging([bundle], tmp_path, tmp_path, lambda _, __: None, openpgp.new_key(), CREATED, silent))
    assert written == ["driver-1.rpm"]
