"""Attachments of a bundle, for people to read: the bill of materials, and the report of the security checker."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from common import files
from common.errors import ForbiddenError
from reservoir.bundle import sbom
from reservoir.contents.artifact import ImageArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.lock import LockedImage
from reservoir.download.cache import Cache
from reservoir.manifest.model import Security
from reservoir.scan import facts, image_rules, installed, licences, remembered
from reservoir.scan.checker import scan
from reservoir.scan.clamav import Clamav
from reservoir.scan.page import render
from reservoir.scan.policy import ScanPolicy, read_policy
from reservoir.scan.verdict import judge

REPORT, PAGE = "scan.json", "scan.html"


def make(
    bundle: Bundle, images: list[LockedImage], cache: Cache, security: Security | None, folder: Path
) -> dict[str, bytes]:
    """Return the attachments of a bundle by name; the same contents and advisories give the same bytes.

    `folder` is where the paths of `security` count from. Raises ForbiddenError where its policy refuses the bundle.
    """
    bill = _bill(bundle, images, cache)
    attachments = {facts.SBOM: bill}
    if security is None:
        return attachments
    # not the time that goes into the bundle: that may be fixed, and advisories grow old by the real one
    now = datetime.now(UTC)
    rules = read_policy(folder / security.policy, own=bundle.ecosystems) if security.policy else ScanPolicy()
    malware = Clamav().search(bundle, cache.blobs, now, rules.max_age_days) if rules.clamav else None
    known = facts.read(bill, facts.SBOM)
    memory = cache.root / f"{bundle.name}-{remembered.NAME}"
    before = remembered.read(memory)
    report = scan(bundle, known, [folder / security.advisories], rules, now=now, malware=malware, remembered=before)
    remembered.keep(memory, report, rules)
    verdict = judge(report, rules, now)
    verdict.blocking.extend(image_rules.judge(bundle, rules.signed_images))
    if verdict.blocking:
        raise ForbiddenError.of(verdict.blocking)
    return attachments | {REPORT: report.encode(), PAGE: render(report, verdict)}


def _bill(bundle: Bundle, images: list[LockedImage], cache: Cache) -> bytes:
    """Return the bill of materials, from the last build where that held the same things."""
    known = licences.read_all(bundle.artifacts, cache)
    made = {(image.name, image.tag) for image in images}
    others = [image for image in bundle.of_kind(ImageArtifact) if (image.name, image.version) not in made]
    inside = installed.read_all(others, cache)
    memory = cache.root / f"sbom-{bundle.name}.json"
    with suppress(FileNotFoundError):
        last = memory.read_bytes()
        if str(sbom.serial(bundle, images, known, inside)).encode() in last:
            return last
    bill = sbom.make(bundle, images, known, inside)
    files.write(memory, bill)
    return bill
