from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, ForbiddenError, InputError, IntegrityError, NotFoundError
from reservoir.download import cache
from reservoir.download.cache import digest
from reservoir.intake.receipt import write
from reservoir.intake.store import Store
from reservoir.media import receipt
from reservoir.media.known_sites import KnownSites
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import flip_bit

NOW = 1_767_323_045


@pytest.fixture
def sites(tmp_path: Path) -> KnownSites:
    return KnownSites(tmp_path / "config" / "sites")


def written(site: Path, name: str = "receipt.json") -> Path:
    path = site.parent / name
    path.write_bytes(write(site, NOW).content)
    return path


def test_a_receipt_says_what_the_site_holds(site: Path) -> None:
    found, _ = receipt.read(written(site))
    (held,) = Store(site).imported().items()
    assert [(each.identity, each.version) for each in found.bundles] == [(held[0], "1.0")]
    assert set(found.blobs) == held[1].sizes().keys()
    assert found.created == "2026-01-02T03:04:05Z"
    key = ed25519.read_key(Store(site).site_key)
    assert found.fingerprint == ed25519.fingerprint(key.public_key())
    assert Store(site).site_key.stat().st_mode & 0o777 == 0o600


def test_numbers_only_grow_and_the_key_stays(site: Path) -> None:
    found = [write(site, NOW).receipt for _ in range(3)]
    assert [each.serial for each in found] == [1, 2, 3]
    assert len({each.site for each in found}) == 1


def test_a_receipt_promises_nothing_that_is_damaged_or_lost(site: Path) -> None:
    damaged, lost = sorted(Store(site).blobs.iterdir())[:2]
    flip_bit(damaged)
    lost.unlink()
    made = write(site, NOW)
    assert made.damaged == [damaged]
    assert not {damaged.name, lost.name} & set(made.receipt.blobs)


def test_a_site_that_holds_nothing_gives_an_empty_receipt(tmp_path: Path) -> None:
    assert write(tmp_path / "new", NOW).receipt.blobs == []


def test_a_site_is_known_once_its_fingerprint_was_accepted(site: Path, sites: KnownSites) -> None:
    first = written(site)
    found, digest = receipt.read(first)
    with pytest.raises(ForbiddenError, match=f"{found.fingerprint} is not known.*--trust-site"):
        sites.accept(first)
    with pytest.raises(InputError, match="not of 0000"):
        sites.accept(first, "0" * 64)
    assert sites.accept(first, found.fingerprint) == (found, digest)
    assert sites.accept(written(site))[0].serial == 2


def test_an_older_receipt_is_refused_once_a_newer_one_was_used(site: Path, sites: KnownSites) -> None:
    first, second = written(site, "1"), written(site, "2")
    name = receipt.read(first)[0].fingerprint
    sites.used(*sites.accept(second, name))
    for trusted in (None, name):
        with pytest.raises(ConflictError, match="receipt 1 is older than receipt 2, which was used already"):
            sites.accept(first, trusted)
    assert sites.accept(second)[0].serial == 2


def test_two_receipts_of_one_number_are_refused(site: Path, sites: KnownSites) -> None:
    first = written(site, "1")
    sites.used(*sites.accept(first, receipt.read(first)[0].fingerprint))
    Store(site).receipt_serial.unlink()
    Store(site).bundles.rename(site / "moved")
    with pytest.raises(ConflictError, match="another receipt 1 of this site was used already"):
        sites.accept(written(site, "2"))


@pytest.mark.parametrize("change", [("serial", 9), ("blobs", []), ("created", "2030-01-01T00:00:00Z")])
def test_a_changed_receipt_is_refused(site: Path, change: tuple[str, object]) -> None:
    path = written(site)
    content = json.loads(path.read_bytes())
    content["receipt"][change[0]] = change[1]
    path.write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match="the receipt is forged or damaged"):
        receipt.read(path)


def test_a_receipt_signed_by_another_site_is_refused(site: Path) -> None:
    path = written(site)
    found, _ = receipt.read(path)
    path.write_bytes(receipt.encode(found, Ed25519PrivateKey.generate()))
    with pytest.raises(IntegrityError, match="the receipt is forged or damaged"):
        receipt.read(path)


def test_what_is_no_receipt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="cannot read the receipt"):
        receipt.read(tmp_path / "none")
    (tmp_path / "some").write_text("{}")
    with pytest.raises(InputError, match="not a receipt"):
        receipt.read(tmp_path / "some")


def test_a_damaged_memory_of_a_site_is_told(site: Path, sites: KnownSites) -> None:
    path = written(site)
    name = receipt.read(path)[0].fingerprint
    sites.accept(path, name)
    (sites.folder / f"{name}.json").write_text("{")
    with pytest.raises(IntegrityError, match="what is remembered of the site is damaged"):
        sites.accept(path)


def test_a_blob_that_the_disk_does_not_give_is_damaged(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = min(Store(site).blobs.iterdir())

    def scratched(path: Path) -> str:
        if path == bad:
            raise OSError(errno.EIO, "Input/output error")
        return digest(path)

    monkeypatch.setattr(cache, "digest", scratched)
    assert write(site, NOW).damaged == [bad]


def test_a_damaged_number_is_told(site: Path) -> None:
    write(site, NOW)
    Store(site).receipt_serial.write_text("?")
    with pytest.raises(IntegrityError, match=r"receipt.serial: .*not a number"):
        write(site, NOW)
