"""Bundles whose maker answers for them until a day."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.bundle import bundles, expiry
from reservoir.contents.bundle import Bundle
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import TARGET, take
from tests.unit.reservoir.test_command_line import call

CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def listed(days: int | None) -> Bundle:
    return Bundle(
        name="small",
        version="1.0",
        created=f"{CREATED:%FT%TZ}",
        expires=expiry.end(CREATED, days),
        targets=[TARGET],
        artifacts=[],
        installer={},
    )


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ("2026-03-01", ""),
        ("2026-03-10", "the time of small 1.0 ends on 2026-04-02; ask its maker for a newer one"),
        ("2026-04-03", "the time of small 1.0 is over since 2026-04-02; ask its maker for a newer one"),
    ],
)
def test_a_site_warns_of_a_bundle_whose_time_ends(now: str, said: str) -> None:
    assert expiry.warning(listed(90), datetime.fromisoformat(now).replace(tzinfo=UTC)) == said


def test_a_bundle_without_an_end_reads_as_one_of_earlier_releases() -> None:
    assert "expires" not in json.loads(bundles.encode(listed(None)))
    assert not expiry.warning(listed(None), CREATED)
    assert bundles.decode(bundles.encode(listed(90)), "x") == listed(90)


def test_import_and_status_say_so(
    tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bundles.assemble(listed(1), [], key, tmp_path, {})
    (folder / "bundle.json.sig").write_bytes(ed25519.sign(key, (folder / "bundle.json").read_bytes()))
    for name in bundles.INSTALLER:
        (folder / name).unlink()
    over = "the time of small 1.0 is over since 2026-01-03"
    assert over in take(folder, tmp_path / "other").warning
    assert call(monkeypatch, "import", folder, "--trust-first", "--root", tmp_path / "site") == 0
    assert f"warning: {over}" in capsys.readouterr().err
    assert call(monkeypatch, "status", "--root", tmp_path / "site") == 0
    assert over in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, "status", "--root", tmp_path / "site", "--json") == 0
    (held,) = json.loads(capsys.readouterr().out)["bundles"]
    assert held["expires"] == "2026-01-03T03:04:05Z"
