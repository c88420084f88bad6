"""The verdict of a policy on a report: what blocks, what is borne, what a person should know."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from common.errors import Problem
from reservoir.scan import licence_rules
from reservoir.scan.checker import CLOSED, UNASKED, require_enough, require_fresh
from reservoir.scan.policy import Exemption, ScanPolicy
from reservoir.scan.report import Finding, Malware, Report
from reservoir.scan.severity import LEVELS
from reservoir.scan.versions import base


@dataclass(frozen=True)
class Verdict:
    """`blocking` stops a publication; `borne` are findings that an exception covers; `notes` tell of the exceptions."""

    blocking: list[Problem] = field(default_factory=list)
    borne: list[tuple[Finding, Exemption]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(report: Report, policy: ScanPolicy, now: datetime) -> Verdict:
    """Return the verdict at the moment `now`: an exception that has expired, or data too old by now, blocks."""
    today = now.date()
    data = [*require_fresh(report.checked, policy, now), *require_enough(report.checked, policy)]
    verdict = Verdict(blocking=[*data, *_unasked(report, policy)])
    for finding in report.findings:
        fitting = [exemption for exemption in policy.exceptions if _fits(exemption, finding)]
        valid = [exemption for exemption in fitting if exemption.expires >= today]
        lacking = _lacking(finding, valid)
        if valid and not lacking:
            verdict.borne.append((finding, valid[0]))
        elif _blocks(finding, policy):
            verdict.blocking.append(_problem(finding, fitting, lacking if valid else []))
    for exemption in policy.exceptions:
        verdict.notes.extend(_note(exemption, report, today))
    verdict.notes.extend(_unheeded(report, policy))
    verdict.blocking.extend(licence_rules.judge(report.licences, policy.licences))
    verdict.blocking.extend(_malware(report, policy, now))
    return verdict


def _unasked(report: Report, policy: ScanPolicy) -> list[Problem]:
    """Return what an earlier policy left unchecked and this one does not, and what cannot be looked into."""
    excused = {entry.name for entry in policy.unchecked}
    problems = []
    for entry in report.not_checked:
        if entry.name in excused or entry.partly:
            continue
        if not entry.name.startswith(CLOSED):
            reason = "no advisories were asked about it, and the policy does not excuse that"
            problems.append(Problem(entry.name, reason, "scan again"))
        elif policy.closed == "block":
            problems.append(Problem(entry.name, entry.reason, f"leave it out, {UNASKED}"))
    return problems


def _fits(exemption: Exemption, finding: Finding) -> bool:
    packages = {finding.advised, *(item.name for item in finding.items)}
    names = {*finding.names, *finding.cves}
    return exemption.id in names and (exemption.package is None or exemption.package in packages)


def _lacking(finding: Finding, valid: list[Exemption]) -> list[str]:
    """Return the CVEs without an exception of a finding that is about several: each has to be judged by somebody."""
    cves = finding.cves or [name for name in finding.names if name.startswith("CVE-")]
    return sorted(set(cves) - {exemption.id for exemption in valid}) if len(cves) > 1 else []


def _blocks(finding: Finding, policy: ScanPolicy) -> bool:
    level = policy.block.unknown_as if finding.severity == "unknown" else finding.severity
    return LEVELS.index(level) >= LEVELS.index(policy.block.severity)


def _problem(finding: Finding, expired: list[Exemption], lacking: list[str]) -> Problem:
    said = f"; its exception expired on {expired[0].expires}" if expired else ""
    if lacking:
        said = f"; it is about several faults, of which {', '.join(lacking)} is not excepted"
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


def _unheeded(report: Report, policy: ScanPolicy) -> list[str]:
    """Return a note for every number of advisories that was asked of nothing: its release may be misspelt."""
    asked = {name for entry in report.checked for name in (entry.ecosystem, base(entry.ecosystem))}
    return [f"`least` names {name}, of which nothing was checked" for name in policy.least if name not in asked]


def _malware(report: Report, policy: ScanPolicy, now: datetime) -> list[Problem]:
    if report.malware is None:
        hint = "scan again with --clamav"
        return [Problem("clamav", "the policy asks for a search for malware", hint)] if policy.clamav else []
    signatures = report.malware.signatures
    old = policy.clamav and now - signatures > timedelta(days=policy.max_age_days)
    reason = f"the newest signatures were of {signatures:%Y-%m-%d}; {policy.max_age_days} days are allowed"
    outdated = [Problem("clamav", reason, "carry newer signatures here and scan again with --clamav")] if old else []
    return [*outdated, *_unsearched(report.malware, policy)] + [
        Problem(
            entry.filename, f"malware was found: {entry.signature}", "do not use this file; find out where it is from"
        )
        for entry in report.malware.found
    ]


def _unsearched(malware: Malware, policy: ScanPolicy) -> list[Problem]:
    """Return what a search could not see whole, where that blocks."""
    if policy.partly == "list":
        return []
    reasons = [(name, "is too long or too deeply packed to be searched whole") for name in malware.partly]
    reasons += [(name, "is encrypted, so that nobody can search it") for name in malware.encrypted]
    hint = "leave it out, or say `partly: list` in the policy"
    return [Problem(name, reason, hint) for name, reason in reasons]
