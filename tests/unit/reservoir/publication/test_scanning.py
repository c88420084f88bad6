from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.contents.artifact import PythonArtifact
from tests.unit.reservoir.parts import artifact, make_bundle, wheel
from tests.unit.reservoir.scan.advisories import URLLIB3, write
from tests.unit.reservoir.test_command_line import call


@pytest.fixture
def vulnerable(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    """A bundle with a wheel that has known faults."""
    (tmp_path / "made").mkdir()
    path = wheel(tmp_path, "urllib3", "1.24.3")
    return make_bundle(tmp_path / "made", key, made=[(artifact(path, PythonArtifact, "urllib3", "1.24.3"), path)])


@pytest.fixture
def advisories(tmp_path: Path) -> Path:
    today = datetime.now(UTC).isoformat()
    return write(tmp_path / "advisories", *({**entry, "modified": today} for entry in URLLIB3))


def test_a_refusal_prints_the_report_and_ends_with_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    vulnerable: Path,
    advisories: Path,
    tmp_path: Path,
) -> None:
    report, page, policy = tmp_path / "report.json", tmp_path / "report.html", tmp_path / "policy.yml"
    words = ("scan", vulnerable, "--advisories", advisories, "--json", report, "--html", page)
    assert call(monkeypatch, *words) == 8
    said = capsys.readouterr()
    assert "known faults: 1 high, 1 medium; 0 excepted" in said.out
    assert "urllib3 1.24.3: CVE-2021-33503 (high)" in said.err
    assert len(json.loads(report.read_text())["findings"]) == 2
    assert "Refused by the policy" in page.read_text()
    policy.write_text("schema: 1\nblock: {severity: critical}\n")
    assert call(monkeypatch, *words, "--policy", policy, "--key", vulnerable / "penstock.pub") == 0
    assert "passed the policy" in capsys.readouterr().out
    assert "Passed by the policy" in page.read_text()


def test_a_site_remembers_how_many_advisories_there_were(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    vulnerable: Path,
    advisories: Path,
    tmp_path: Path,
) -> None:
    root, policy = tmp_path / "site", tmp_path / "policy.yml"
    assert call(monkeypatch, "import", vulnerable, "--trust-first", "--root", root) == 0
    policy.write_text("schema: 1\nblock: {severity: critical}\n")
    words = ("scan", "--root", root, "--advisories", advisories, "--policy", policy)
    assert call(monkeypatch, *words) == 0
    (advisories / f"{URLLIB3[0]['id']}.json").unlink()
    assert call(monkeypatch, *words) == 2
    assert "PyPI: there are 2 advisories; there were 3 before" in capsys.readouterr().err
    policy.write_text("schema: 1\nblock: {severity: critical}\nleast: {PyPI: 2}\n")
    assert call(monkeypatch, *words) == 0
    policy.write_text("schema: 1\nblock: {severity: critical}\n")
    assert call(monkeypatch, *words) == 0


def test_what_is_older_is_scanned_as_well_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    vulnerable: Path,
    advisories: Path,
    tmp_path: Path,
    key: Ed25519PrivateKey,
) -> None:
    root, path = tmp_path / "site", wheel(tmp_path, "urllib3", "1.26.5")
    made = [(artifact(path, PythonArtifact, "urllib3", "1.26.5"), path)]
    newer = make_bundle(tmp_path / "made", key, version="2.0", made=made)
    for folder in (vulnerable, newer):
        assert call(monkeypatch, "import", folder, "--trust-first", "--root", root) == 0
    capsys.readouterr()
    assert call(monkeypatch, "scan", "--root", root, "--advisories", advisories) == 0
    first, second = capsys.readouterr().out.split("only after a rollback, or in place of another:\n")
    assert first.startswith("small-2.0-")
    assert re.match(r"small-1\.0-\w+: refused by the policy", second)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give either a bundle or --root"),
        (["BUNDLE", "--root", "site"], "give either a bundle or --root"),
        (["--root", "site", "--json", "report.json"], "the reports of a site are kept in its folder"),
        (["BUNDLE"], "no advisories were given"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    vulnerable: Path,
    words: list[str],
    reason: str,
) -> None:
    given = [vulnerable if word == "BUNDLE" else word for word in words]
    assert call(monkeypatch, "scan", *given) == 2
    assert reason in capsys.readouterr().err
