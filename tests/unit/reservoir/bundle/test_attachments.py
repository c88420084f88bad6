from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from common.errors import ForbiddenError
from reservoir.bundle import attachments, sbom
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import Cache
from reservoir.manifest.model import Security
from tests.unit.reservoir.parts import artifact, wheel
from tests.unit.reservoir.scan.advisories import URLLIB3, bundle, write

SECURITY = Security(advisories="advisories", policy="policy.yml")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def made(tmp_path: Path, cache: Cache) -> Bundle:
    """A bundle of one wheel with known faults, of which there are advisories of today."""
    path = wheel(tmp_path, "urllib3", "1.24.3")
    described = artifact(path, PythonArtifact, "urllib3", "1.24.3")
    path.rename(cache.path(described.sha256))
    today = datetime.now(UTC).isoformat()
    write(tmp_path / "advisories", *({**entry, "modified": today} for entry in URLLIB3))
    return bundle(described)


def test_without_a_checker_there_is_a_bill_of_materials(tmp_path: Path, made: Bundle, cache: Cache) -> None:
    assert attachments.make(made, [], cache, None, tmp_path).keys() == {"sbom.cdx.json"}


def test_the_same_bill_is_written_once(
    tmp_path: Path, made: Bundle, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = attachments.make(made, [], cache, None, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sbom, "make", lambda *_: pytest.fail("written again"))
        assert attachments.make(made, [], cache, None, tmp_path) == first
    other = made.model_copy(update={"version": "2.0"})
    assert attachments.make(other, [], cache, None, tmp_path) != first


def test_the_policy_refuses_a_bundle_or_its_reports_go_with_it(tmp_path: Path, made: Bundle, cache: Cache) -> None:
    (tmp_path / "policy.yml").write_text("schema: 1\n")
    with pytest.raises(ForbiddenError, match="CVE-2021-33503"):
        attachments.make(made, [], cache, SECURITY, tmp_path)
    (tmp_path / "policy.yml").write_text("schema: 1\nblock: {severity: critical}\n")
    texts = attachments.make(made, [], cache, SECURITY, tmp_path)
    assert texts.keys() == {"sbom.cdx.json", "scan.json", "scan.html"}
    assert attachments.make(made, [], cache, SECURITY, tmp_path) == texts


def test_without_a_policy_the_default_one_counts(tmp_path: Path, made: Bundle, cache: Cache) -> None:
    with pytest.raises(ForbiddenError, match="CVE-2021-33503"):
        attachments.make(made, [], cache, Security(advisories="advisories"), tmp_path)
