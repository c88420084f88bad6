"""The gate before a publication: at a site with a policy, only what was scanned and passes it is served."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from common import files
from common.errors import ForbiddenError, IntegrityError, Problem
from reservoir.intake.store import Store
from reservoir.scan import image_rules
from reservoir.scan.policy import read_policy
from reservoir.scan.report import Report
from reservoir.scan.verdict import judge


def folder(store: Store) -> Path:
    """Return where a site keeps its policy and the reports of its scans."""
    return store.security


def policy_path(store: Store) -> Path | None:
    """Return where the policy of a site lies; None where it has none."""
    return store.policy if store.policy.exists() else None


def adopt(store: Store, path: Path) -> None:
    """Make a policy the site's own."""
    folder(store).mkdir(mode=0o755, exist_ok=True)
    files.write(store.policy, path.read_bytes())


def keep(store: Store, identity: str, report: Report, page: bytes) -> None:
    """Keep the report on an imported bundle, and its page."""
    folder(store).mkdir(mode=0o755, exist_ok=True)
    files.write(folder(store) / f"{identity}.html", page)
    files.write(folder(store) / f"{identity}.json", report.encode())


def require(store: Store, identities: Iterable[str], now: datetime) -> None:
    """Let bundles through to a publication.

    Raises ForbiddenError where the site has a policy, and a bundle was not scanned, or the policy as it is now does
    not pass its report: findings, exceptions that have expired meanwhile, advisories that have grown too old. Images
    that are not signed as it asks stop it as well.
    """
    if problems := refused(store, identities, now):
        raise ForbiddenError.of(problems)


def refused(store: Store, identities: Iterable[str], now: datetime) -> list[Problem]:
    """Return why the policy of a site, where it has one, does not let bundles through."""
    path = policy_path(store)
    if path is None:
        return []
    rules = read_policy(path, kept=True)
    problems: list[Problem] = []
    held = store.imported() if rules.signed_images else {}
    for identity in identities:
        if identity in held:
            problems += image_rules.judge(held[identity], rules.signed_images)
        path = folder(store) / f"{identity}.json"
        scan = f"penstock reservoir scan --root {store.root} --advisories FOLDER"
        if not path.is_file():
            problems.append(Problem(identity, "was not scanned, but this site has a policy", f"run `{scan}`"))
            continue
        problems += judge(_read(path, scan), rules, now).blocking
    return problems


def opened(store: Store, back: Iterable[str], gone: Iterable[str]) -> list[str]:
    """Return the known faults that come back with bundles in place of others, as far as their reports know."""
    present = {finding.id for report in _reports(store, gone) for finding in report.findings}
    found = [finding for report in _reports(store, back) for finding in report.findings if finding.id not in present]
    return [f"{each.id} ({each.severity}) in {each.advised} {each.version} is there again" for each in found]


def _reports(store: Store, identities: Iterable[str]) -> list[Report]:
    """Return the reports of those bundles that were scanned; one that is damaged says nothing."""
    found = []
    for identity in identities:
        with suppress(OSError, ValidationError):
            found.append(Report.model_validate_json((folder(store) / f"{identity}.json").read_bytes()))
    return found


def _read(path: Path, scan: str) -> Report:
    try:
        return Report.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise IntegrityError("the report is damaged", where=str(path), hint=f"run `{scan}`") from error
