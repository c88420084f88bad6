"""The sites that an integrator knows: each was accepted by its fingerprint, and its receipts only grow newer."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from common import files
from common.errors import ConflictError, ForbiddenError, InputError, IntegrityError
from common.strict import StrictModel
from reservoir.manifest.model import Sha256
from reservoir.media import receipt
from reservoir.media.receipt import Receipt


class KnownSite(StrictModel):
    """What is remembered of a site: its public key in hex, the serial and the sha256 of the last receipt used."""

    site: str
    serial: int = 0
    receipt: Sha256 | None = None


class KnownSites:
    """The known sites, one file each, named by the fingerprint of the site's key."""

    def __init__(self, folder: Path) -> None:
        """Use the folder, which is made when the first site is accepted."""
        self.folder = folder

    def accept(self, path: Path, trusted: str | None = None) -> tuple[Receipt, str]:
        """Return the receipt in a file and its sha256, after everything about it was checked.

        `trusted` is the fingerprint of a site that counts as known from now on. Raises IntegrityError for a forged
        receipt, ForbiddenError for one of an unknown site, ConflictError for one older than the last that was used.
        """
        found, digest = receipt.read(path)
        if trusted is not None and trusted != found.fingerprint:
            raise InputError(
                f"the receipt is of the site {found.fingerprint}, not of {trusted}",
                where="--trust-site",
                hint="give the fingerprint that `penstock reservoir receipt` shows at the site",
            )
        known = self._read(found)
        if known is None and trusted is None:
            raise ForbiddenError(
                f"the site {found.fingerprint} is not known",
                where=str(path),
                hint="compare this fingerprint with the one that the site shows, then say --trust-site FINGERPRINT",
            )
        if known is None:
            self._write(KnownSite(site=found.site), found)
        elif found.serial < known.serial:
            raise ConflictError(
                f"receipt {found.serial} is older than receipt {known.serial}, which was used already",
                where=str(path),
                hint=receipt.HINT,
            )
        elif found.serial == known.serial and digest != known.receipt:
            raise ConflictError(
                f"another receipt {found.serial} of this site was used already", where=str(path), hint=receipt.HINT
            )
        return found, digest

    def used(self, found: Receipt, digest: str) -> None:
        """Remember that a bundle was built for a receipt: older ones are refused from now on."""
        self._write(KnownSite(site=found.site, serial=found.serial, receipt=digest), found)

    def _path(self, found: Receipt) -> Path:
        return self.folder / f"{found.fingerprint}.json"

    def _read(self, found: Receipt) -> KnownSite | None:
        path = self._path(found)
        try:
            return KnownSite.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise IntegrityError(
                "what is remembered of the site is damaged",
                where=str(path),
                hint="remove the file and trust the site again with its newest receipt",
            ) from error

    def _write(self, site: KnownSite, found: Receipt) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write(self._path(found), site.model_dump_json() + "\n", 0o600)
