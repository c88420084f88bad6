"""Scans as commands start them: of a bundle on a disk, or of what a site would publish."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from common.errors import ForbiddenError, InputError, IntegrityError, NotFoundError, PenstockError, Problem
from common.progress import Progress, silent
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store
from reservoir.publication import gate
from reservoir.scan import facts, image_rules, remembered
from reservoir.scan.checker import scan
from reservoir.scan.clamav import Clamav
from reservoir.scan.facts import Facts
from reservoir.scan.page import render
from reservoir.scan.policy import ScanPolicy, read_policy
from reservoir.scan.report import Malware, Report
from reservoir.scan.verdict import Verdict, judge


@dataclass(frozen=True)
class Asked:
    """What bundles are held against; without a policy the default one counts, without `search` malware is no matter."""

    advisories: Sequence[Path]
    policy: Path | None = None
    search: Clamav | None = None


@dataclass(frozen=True)
class _Place:
    """A bundle by its identity, with the folders of its attachments and its blobs.

    `memory` is the file where the number of advisories is remembered, at a site.
    """

    identity: str
    bundle: Bundle
    attachments: Path
    blobs: Path
    memory: Path | None = None


@dataclass(frozen=True)
class Scanned:
    """A bundle's report with what the policy, `rules`, says of it; `identity` names the bundle."""

    identity: str
    report: Report
    verdict: Verdict
    rules: ScanPolicy

    @property
    def page(self) -> bytes:
        """Return the report as a page."""
        return render(self.report, self.verdict)

    @property
    def words(self) -> str:
        """Return the report in a few lines."""
        levels = ", ".join(f"{count} {level}" for level, count in self.report.counts() if count)
        checked = ", ".join(
            f"{entry.ecosystem} ({entry.packages} packages, {entry.advisories} advisories up to "
            f"{entry.newest.astimezone(UTC):%Y-%m-%d})"
            for entry in self.report.checked
        )
        unknown = sum(licence.expression is None for licence in self.report.licences)
        malware = self.report.malware
        lines = [
            f"{self.identity}: {'refused by' if self.verdict.blocking else 'passed'} the policy",
            f"  checked: {checked or 'nothing'}",
            *(f"  not checked: {entry.name}: {entry.reason}" for entry in self.report.not_checked),
            f"  known faults: {levels or 'none'}; {len(self.verdict.borne)} excepted",
            f"  licences: {unknown} of {len(self.report.licences)} not known",
            f"  malware: {f'{len(malware.found)} in {malware.files} files' if malware else 'not searched for'}",
            *(f"  searched in part: {name}" for name in (malware.partly if malware else [])),
            *(f"  encrypted, not searched: {name}" for name in (malware.encrypted if malware else [])),
            *(f"  note: {note}" for note in self.verdict.notes),
        ]
        return "\n".join(lines)


def folder(path: Path, asked: Asked, key: Ed25519PublicKey | None = None, progress: Progress = silent) -> Scanned:
    """Scan a bundle on a disk."""
    signed = bundles.read_signed(path, key)
    identity = bundles.identity(signed.bundle, signed.content)
    rules = _given(asked.policy, [signed.bundle]) if asked.policy else ScanPolicy()
    return _scan(_Place(identity, signed.bundle, path, path / bundles.BLOBS), asked, rules, progress)


def site(root: Path, asked: Asked, progress: Progress = silent) -> list[Scanned]:
    """Scan the bundles that a site would publish and keep the reports there.

    A given policy becomes the site's, which the gate of publications asks from then on; without one, the site's counts.
    """
    store = Store(root)
    newest = store.newest()
    if not newest:
        raise NotFoundError("nothing was imported yet", where=str(root), hint="run `penstock reservoir import BUNDLE`")
    rules = _rules(store, asked)
    scans = [_scan(_held(store, name, bundle), asked, rules, progress) for name, bundle in newest.items()]
    _keep(store, scans, asked.policy)
    return scans


def standby(root: Path, asked: Asked, progress: Progress = silent) -> tuple[list[Scanned], list[Problem]]:
    """Scan what else a site holds, for a rollback or in place of a bundle at fault, and keep the reports there.

    One that cannot be scanned, as advisories for a release of long ago are not carried any more, is a problem that
    names it and holds up no other.
    """
    store = Store(root)
    rules = _rules(store, asked)
    imported, newest = store.imported(), store.newest()
    scans, problems = list[Scanned](), list[Problem]()
    for name in sorted(imported.keys() - newest.keys()):
        try:
            scans.append(_scan(_held(store, name, imported[name]), asked, rules, progress))
        except PenstockError as error:
            problems += [replace(problem, where=f"{name}: {problem.where}") for problem in error.problems]
    _keep(store, scans)
    return scans, problems


def _rules(store: Store, asked: Asked) -> ScanPolicy:
    """Return the policy that was given, else the site's."""
    if asked.policy:
        return _given(asked.policy, store.imported().values())
    path = gate.policy_path(store)
    return read_policy(path, kept=True) if path else ScanPolicy()


def _given(policy: Path, held: Iterable[Bundle]) -> ScanPolicy:
    """Return a policy that is given for these bundles."""
    return read_policy(policy, own={name for bundle in held for name in bundle.ecosystems})


def _held(store: Store, identity: str, bundle: Bundle) -> _Place:
    return _Place(identity, bundle, store.bundles / identity, store.blobs, gate.folder(store) / remembered.NAME)


def _keep(store: Store, scans: Sequence[Scanned], policy: Path | None = None) -> None:
    """Keep reports at a site, and make a policy its own."""
    with store.changing():
        for scanned in scans:
            gate.keep(store, scanned.identity, scanned.report, scanned.page)
            remembered.keep(gate.folder(store) / remembered.NAME, scanned.report, scanned.rules)
        if policy:
            gate.adopt(store, policy)


def require_passed(scans: Sequence[Scanned]) -> None:
    """Raise ForbiddenError that lists everything that the policy refuses."""
    problems = [problem for scanned in scans for problem in scanned.verdict.blocking]
    if problems:
        raise ForbiddenError.of(problems)


def _scan(place: _Place, asked: Asked, rules: ScanPolicy, progress: Progress) -> Scanned:
    if not asked.advisories:
        raise InputError(
            "no advisories were given", where="--advisories", hint="give a folder or a zip file of OSV advisories"
        )
    now = datetime.now(UTC)
    known = read_facts(place.bundle, place.attachments)
    malware: Malware | None = None
    if asked.search:
        progress("search for malware")
        malware = asked.search.search(place.bundle, place.blobs, now, rules.max_age_days)
    progress("hold packages against advisories")
    before = remembered.read(place.memory) if place.memory else {}
    report = scan(place.bundle, known, asked.advisories, rules, now=now, malware=malware, remembered=before)
    verdict = judge(report, rules, now)
    verdict.blocking.extend(image_rules.judge(place.bundle, rules.signed_images))
    return Scanned(place.identity, report, verdict, rules)


def read_facts(bundle: Bundle, attachments: Path) -> Facts:
    """Return what the bundle's SBOM says; a bundle without one says nothing of licences and images."""
    sha256 = bundle.attachments.get(facts.SBOM)
    if sha256 is None:
        return Facts()
    path = attachments / facts.SBOM
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise IntegrityError("is missing", where=str(path), hint=bundles.HINT) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise IntegrityError("was changed", where=str(path), hint=bundles.HINT)
    return facts.read(content, str(path))
