from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from common import process
from common.errors import InputError
from reservoir.scan.clamav import Clamav
from reservoir.scan.report import Malware
from tests.unit.reservoir.scan.advisories import NOW, bundle, package

OLD = NOW - timedelta(days=30)


def dated(path: Path, made: datetime) -> None:
    """Signatures as ClamAV gives them out: they say of when they are."""
    path.write_bytes(f"ClamAV-VDB:{made:%d %b %Y %H-%M %z}:1:1:90:x:x:x:0".encode().ljust(512))


def own(path: Path, made: datetime) -> None:
    path.write_text("Mine:0:*:00")
    os.utime(path, (made.timestamp(), made.timestamp()))


def found(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str = "") -> Malware:
    """What a search with these signatures says of a bundle of one file."""
    monkeypatch.setattr(process, "require", lambda *_: "clamscan")
    monkeypatch.setattr(process, "run", lambda *_, **__: said)
    file = package("file", "driver.run", "1")
    blobs = folder / "blobs"
    blobs.mkdir()
    (blobs / file.sha256).touch()
    return Clamav(folder).search(bundle(file), blobs, NOW, 14)


def test_the_daily_signatures_say_of_when_they_all_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dated(tmp_path / "daily.cvd", NOW)
    dated(tmp_path / "main.cvd", NOW - timedelta(days=900))
    assert found(tmp_path, monkeypatch).signatures == NOW


@pytest.mark.parametrize("fresh", ["own.ndb", "bytecode.cvd", "own.yar"])
def test_what_lies_beside_old_signatures_does_not_make_them_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: str
) -> None:
    dated(tmp_path / "daily.cld", OLD)
    (dated if fresh.endswith("cvd") else own)(tmp_path / fresh, NOW)
    with pytest.raises(InputError, match="the signatures are of 2026-02-08; 14 days are allowed"):
        found(tmp_path, monkeypatch)


def test_of_signatures_of_ones_own_the_oldest_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path / "one.ndb", NOW)
    assert found(tmp_path, monkeypatch).signatures == NOW
    own(tmp_path / "other.ndb", OLD)
    (tmp_path / "blobs").rename(tmp_path / "gone")
    with pytest.raises(InputError, match="2026-02-08"):
        found(tmp_path, monkeypatch)


@pytest.mark.parametrize(("signature", "place"), [
    ("Eicar", "found"), ("Heuristics.Limits.Exceeded.MaxScanSize", "partly"), ("Heuristics.Encrypted.Zip", "encrypted"),
])  # fmt: skip
def test_what_could_not_be_searched_is_told_apart_from_malware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signature: str, place: str
) -> None:
    own(tmp_path / "own.ndb", NOW)
    file = package("file", "driver.run", "1")
    malware = found(tmp_path, monkeypatch, f"{tmp_path}/blobs/{file.sha256}: {signature} FOUND\n")
    assert [name for name in ("found", "partly", "encrypted") if getattr(malware, name)] == [place]
