"""The verdict of a policy on a report: what blocks, what is borne, what a person should know."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from common.errors import Problem
from reservoir.scan import licence_rules
from reservoir.scan.checker import CLOSED, require_fresh
from reservoir.scan.policy import Exemption, ScanPolicy
from reservoir.scan.report import Finding, Report
from reservoir.scan.severity import LEVELS


@dataclass(frozen=True)
class Verdict:
    """`blocking` stops a publication; `borne` are findings that an exception covers; `notes` tell of the exceptions."""

    blocking: list[Problem] = field(default_factory=list)
    borne: list[tuple[Finding, Exemption]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(report: Report, policy: ScanPolicy, now: datetime) -> Verdict:
    """Return the verdict at the moment `now`: an exception that has expired, or data too old by now, blocks."""
    today = now.date()
    verdict = Verdict(blocking=[*require_fresh(report.checked, policy, now), *_unasked(report, policy)])
    for finding in report.findings:
        fitting = [exemption for exemption in policy.exceptions if _fits(exemption, finding)]
        valid = [exemption for exemption in fitting if exemption.expires >= today]
        if valid:
            verdict.borne.append((finding, valid[0]))
        elif _blocks(finding, policy):
            verdict.blocking.append(_problem(finding, fitting))
    for exemption in policy.exceptions:
        verdict.notes.extend(_note(exemption, report, today))
    verdict.blocking.extend(licence_rules.judge(report.licences, policy.licences))
    verdict.blocking.extend(_malware(report, policy, now))
    return verdict


def _unasked(report: Report, policy: ScanPolicy) -> list[Problem]:
    """Return what an earlier policy left unchecked and this one does not; images and files cannot be checked."""
    excused = {entry.name for entry in policy.unchecked}
    return [
        Problem(entry.name, "no advisories were asked about it, and the policy does not excuse that", "scan again")
        for entry in report.not_checked
        if entry.name not in excused and not entry.name.startswith(CLOSED)
    ]


def _fits(exemption: Exemption, finding: Finding) -> bool:
    packages = {finding.advised, *(item.name for item in finding.items)}
    return exemption.id in finding.names and (exemption.package is None or exemption.package in packages)


def _blocks(finding: Finding, policy: ScanPolicy) -> bool:
    level = policy.block.unknown_as if finding.severity == "unknown" else finding.severity
    return LEVELS.index(level) >= LEVELS.index(policy.block.severity)


def _problem(finding: Finding, expired: list[Exemption]) -> Problem:
    said = f"; its exception expired on {expired[0].expires}" if expired else ""
    files = ", ".join(sorted({item.filename for item in finding.items})[:3])
    images = sorted({image for item in finding.items for image in item.images})
    inside = f", also inside {', '.join(images)}" if images else ""
    fixed = f"take version {' or '.join(finding.fixed)}" if finding.fixed else "there is no fixed version: remove it"
    level = "of unknown severity" if finding.severity == "unknown" else finding.severity
    return Problem(
        f"{finding.advised} {finding.version}",
        f"{finding.id} ({level}) in {files}{inside}{said}",
        f"{fixed}, or except it in the policy with a reason and a date",
    )


def _note(exemption: Exemption, report: Report, today: date) -> list[str]:
    of = f"{exemption.id} in {exemption.package}" if exemption.package else exemption.id
    if not any(_fits(exemption, finding) for finding in report.findings):
        return [f"the exception for {of} is not used: remove it"]
    if exemption.expires < today:
        return [f"the exception for {of} expired on {exemption.expires}"]
    return []


def _malware(report: Report, policy: ScanPolicy, now: datetime) -> list[Problem]:
    if report.malware is None:
        hint = "scan again with --clamav"
        return [Problem("clamav", "the policy asks for a search for malware", hint)] if policy.clamav else []
    signatures = report.malware.signatures
    old = policy.clamav and now - signatures > timedelta(days=policy.max_age_days)
    reason = f"the newest signatures were of {signatures:%Y-%m-%d}; {policy.max_age_days} days are allowed"
    outdated = [Problem("clamav", reason, "carry newer signatures here and scan again with --clamav")] if old else []
    return outdated + [
        Problem(
            entry.filename, f"malware was found: {entry.signature}", "do not use this file; find out where it is from"
        )
        for entry in report.malware.found
    ]
