"""Advisories in the OSV format, and bundles that they speak of."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reservoir.contents.artifact import Artifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord
from tests.unit.reservoir.parts import ARTIFACT

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = "2026-03-10T06:00:00Z"
HIGH = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"
MEDIUM = "CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N"
TARGETS = [
    TargetRecord(name="debian12", os="debian", release="bookworm", arch="amd64", python="3.11"),
    TargetRecord(name="debian13", os="debian", release="trixie", arch="amd64", python="3.13"),
    TargetRecord(name="rocky9", os="rpm", release="9", arch="amd64", osv="Rocky Linux:9"),
]


def advisory(
    name_of_fault: str,
    ecosystem: str,
    name: str,
    *events: dict[str, str],
    versions: tuple[str, ...] = (),
    modified: str = TODAY,
    kind: str = "ECOSYSTEM",
    **more: Any,
) -> dict[str, Any]:
    """An advisory on one package; `events` make its one range."""
    affected: dict[str, Any] = {"package": {"ecosystem": ecosystem, "name": name}}
    if events:
        affected["ranges"] = [{"type": kind, "events": list(events)}]
    if versions:
        affected["versions"] = list(versions)
    return {"schema_version": "1.6.0", "id": name_of_fault, "modified": modified, "affected": [affected], **more}


def cvss(vector: str) -> list[dict[str, str]]:
    return [{"type": "CVSS_V4" if vector.startswith("CVSS:4") else "CVSS_V3", "score": vector}]


# facts of the real advisories on urllib3: where each fault came and where it went
URLLIB3 = [
    advisory(
        "GHSA-wqvq-5m8c-6g24",
        "PyPI",
        "urllib3",
        {"introduced": "0"},
        {"fixed": "1.25.9"},
        aliases=["CVE-2020-26137", "PYSEC-2020-148"],
        severity=cvss("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:L/I:L/A:N"),
        summary="Injection of line breaks through the method of a request",
    ),
    advisory(
        "PYSEC-2020-148",
        "PyPI",
        "urllib3",
        {"introduced": "0"},
        {"fixed": "1.25.9"},
        aliases=["CVE-2020-26137", "GHSA-wqvq-5m8c-6g24"],
    ),
    advisory(
        "GHSA-q2q7-5pp4-w6pg",
        "PyPI",
        "urllib3",
        {"introduced": "0"},
        {"fixed": "1.26.5"},
        aliases=["CVE-2021-33503"],
        severity=cvss("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"),
        summary="An address with many signs of @ makes the parser slow",
    ),
]


def write(folder: Path, *advisories: dict[str, Any]) -> Path:
    """Write advisories as OSV publishes them: one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in advisories:
        (folder / f"{entry['id']}.json").write_text(json.dumps(entry))
    return folder


def package(kind: str, name: str, version: str, *targets: str, **metadata: Any) -> Artifact:
    """An artifact without contents."""
    number = abs(hash((kind, name, version))) % 16**12
    suffix = {"python": "whl", "debian": "deb", "rpm": "rpm"}.get(kind, "bin")
    return ARTIFACT.validate_python(
        {
            "kind": kind,
            "name": name,
            "version": version,
            "filename": f"{name.replace('/', '_')}-{version.replace(':', '_')}.{suffix}",
            "sha256": f"{number:064x}",
            "size": 1,
            "origin": "made for a test",
            "targets": list(targets) or ["debian12"],
            "metadata": metadata,
        }
    )


def deb(name: str, version: str, *targets: str, source: str = "") -> Artifact:
    stanza = f"Package: {name}\nVersion: {version}\n" + (f"Source: {source}\n" if source else "")
    return package("debian", name, version, *targets, stanza=stanza)


def bundle(*artifacts: Artifact) -> Bundle:
    return Bundle(
        name="small", version="1.0", created="2026-03-01T00:00:00Z", targets=TARGETS, artifacts=list(artifacts)
    )
