"""One pass of the security checker over a bundle: advisories, licences, images, malware, into a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from common.errors import InputError, Problem
from reservoir.contents.artifact import (
    Artifact,
    DebianArtifact,
    FileArtifact,
    ImageArtifact,
    PythonArtifact,
    RpmArtifact,
)
from reservoir.contents.bundle import Bundle
from reservoir.scan import osv
from reservoir.scan.facts import Facts
from reservoir.scan.match import Data, Hit, groups, match
from reservoir.scan.package_list import PackageList, package_list
from reservoir.scan.policy import ScanPolicy
from reservoir.scan.report import Checked, Finding, Item, Licence, Malware, NotChecked, Report
from reservoir.scan.severity import LEVELS

# the part of the advisories of an ecosystem that stays, whatever is withdrawn between two exports
LASTING = 0.9
GET = "carry newer advisories here"
PACKAGES = PythonArtifact | DebianArtifact | RpmArtifact
# what the names of things begin with of which nobody says what is inside
CLOSED = (IMAGE, FILE) = ("image ", "file ")
NOBODY = "nobody says which packages are inside"
UNASKED = "or list it under `unchecked` in the policy, with the reason"


def scan(
    bundle: Bundle,
    facts: Facts,
    advisories: Sequence[Path],
    policy: ScanPolicy,
    *,
    now: datetime,
    malware: Malware | None = None,
    remembered: Mapping[str, int] = MappingProxyType({}),
) -> Report:
    """Hold a bundle against advisories; `remembered` says how many each ecosystem had before.

    Raises InputError where they are damaged, too old by the policy, far fewer than before, or silent about an
    ecosystem of the bundle: that nothing was found only counts where something was asked.
    """
    wanted = package_list(bundle, facts.installed)
    hits, data = match(osv.read(advisories), wanted, now)
    unchecked = {entry.name: entry.reason for entry in policy.unchecked}
    present = [name for name in wanted.ecosystems if name not in unchecked and data.count(name)]
    checked = [
        Checked(
            ecosystem=name,
            packages=sum(subject.ecosystem == name for subject in wanted.subjects),
            advisories=data.count(name),
            newest=data.newest(name),
        )
        for name in present
    ]
    problems = [*_unnamed(wanted, unchecked), *_absent(wanted, data, unchecked)]
    problems += [*require_fresh(checked, policy, now), *require_enough(checked, policy, remembered)]
    if problems:
        raise InputError.of(problems)
    return Report(
        bundle=bundle.name,
        version=bundle.version,
        checked=checked,
        not_checked=_not_checked(bundle, facts, wanted, unchecked),
        findings=_findings(hits, wanted, facts),
        licences=[_licence(artifact, facts, policy) for artifact in bundle.artifacts if isinstance(artifact, PACKAGES)],
        malware=malware,
    )


def require_fresh(checked: Iterable[Checked], policy: ScanPolicy, now: datetime) -> list[Problem]:
    """Return a problem for every ecosystem whose advisories were last changed too long ago, or in the future."""
    problems = []
    for entry in checked:
        age = now - entry.newest
        day = entry.newest.astimezone(UTC).strftime("%Y-%m-%d")
        if age > timedelta(days=policy.max_age_days):
            reason = f"the newest advisory is of {day}, which is {age.days} days ago; {policy.max_age_days} are allowed"
            problems.append(Problem(entry.ecosystem, reason, GET))
        elif age < timedelta(days=-1):
            reason = f"the newest advisory is of {day}, which is in the future"
            problems.append(Problem(entry.ecosystem, reason, "correct the clock of this machine, or the advisories"))
    return problems


def require_enough(
    checked: Iterable[Checked], policy: ScanPolicy, remembered: Mapping[str, int] = MappingProxyType({})
) -> list[Problem]:
    """Return a problem for every ecosystem of which there are fewer advisories than the policy asks for.

    Where it asks for none, there may be a little fewer than were `remembered`: some are withdrawn, an export that was
    cut off lacks many.
    """
    problems = []
    for entry in checked:
        least, before = policy.least_of(entry.ecosystem), remembered.get(entry.ecosystem, 0)
        if least is not None and entry.advisories < least:
            reason = f"there are {entry.advisories} advisories; the policy asks for {least} at least"
            problems.append(Problem(entry.ecosystem, reason, GET))
        elif least is None and entry.advisories < before * LASTING:
            reason = f"there are {entry.advisories} advisories; there were {before} before"
            hint = "carry all of them here, or say how many there are in the policy under `least`"
            problems.append(Problem(entry.ecosystem, reason, hint))
    return problems


def _unnamed(wanted: PackageList, unchecked: dict[str, str]) -> list[Problem]:
    return [
        Problem(
            f"target {target.name}",
            "nobody says which advisories speak of its packages",
            f"give the target `osv` in the manifest, such as `Rocky Linux:9`, {UNASKED}, by the target's name",
        )
        for target in wanted.nameless
        if target.name not in unchecked
    ]


def _absent(wanted: PackageList, data: Data, unchecked: dict[str, str]) -> list[Problem]:
    return [
        Problem(ecosystem, "there are no advisories for this ecosystem, but packages of it", f"{GET}, {UNASKED}")
        for ecosystem in wanted.ecosystems
        if ecosystem not in unchecked and not data.count(ecosystem)
    ]


def _not_checked(bundle: Bundle, facts: Facts, wanted: PackageList, unchecked: dict[str, str]) -> list[NotChecked]:
    """Return what no advisory was asked about; files, and images from elsewhere, do not say what is inside."""
    named = {*wanted.ecosystems, *(target.name for target in wanted.nameless)}
    known = {image for images in facts.images.values() for image in images}
    images = [image for image in bundle.of_kind(ImageArtifact) if f"{image.name}:{image.version}" not in known]
    return [
        *(NotChecked(name=name, reason=reason) for name, reason in unchecked.items() if name in named),
        *(_image(image, facts) for image in images),
        *(NotChecked(name=f"{FILE}{file.filename}", reason=NOBODY) for file in bundle.of_kind(FileArtifact)),
    ]


def _image(image: ImageArtifact, facts: Facts) -> NotChecked:
    """Return what is not checked of an image from elsewhere."""
    name, count = f"{IMAGE}{image.name}:{image.version}", len(facts.installed.get(image.sha256, ()))
    if not count or image.sha256 in facts.unread:
        return NotChecked(name=name, reason=facts.unread.get(image.sha256, NOBODY))
    reason = f"of its system {count} packages were asked about; nobody says what else is inside"
    return NotChecked(name=name, reason=reason, partly=True)


def _findings(hits: Iterable[Hit], wanted: PackageList, facts: Facts) -> list[Finding]:
    """Return one finding for each fault and package, the worst first."""
    found = [_finding(group, wanted.subjects[group[0].subject], facts) for group in groups(hits)]
    return sorted(found, key=lambda finding: (-_weight(finding), finding.ecosystem, finding.advised, finding.id))


def _weight(finding: Finding) -> int:
    return -1 if finding.severity == "unknown" else LEVELS.index(finding.severity)


def _finding(hits: list[Hit], artifacts: list[Artifact], facts: Facts) -> Finding:
    names = sorted(set().union(*(hit.names for hit in hits)), key=lambda name: (not name.startswith("CVE-"), name))
    rating = max(hit.rating for hit in hits)
    certain = any(not hit.doubt for hit in hits)
    subject = hits[0].subject
    return Finding(
        id=names[0],
        names=names,
        cves=sorted(hits[0].cves),
        ecosystem=subject.ecosystem,
        advised=subject.name,
        version=subject.version,
        severity=rating.level,
        score=rating.score if rating.score >= 0 else None,
        summary=next((hit.summary for hit in hits if hit.summary), ""),
        fixed=sorted({version for hit in hits for version in hit.fixed}),
        doubt="" if certain else hits[0].doubt,
        advisories=sorted({hit.id for hit in hits}),
        items=[
            Item(
                kind=artifact.kind,
                name=artifact.name,
                version=artifact.version,
                filename=artifact.filename,
                sha256=artifact.sha256,
                targets=artifact.targets,
                images=_images(artifact, facts),
            )
            for artifact in artifacts
        ],
    )


def _images(artifact: Artifact, facts: Facts) -> list[str]:
    """Return the images that a file is inside of; what is found inside an image from elsewhere is in that one."""
    own = [f"{artifact.name}:{artifact.version}"] if isinstance(artifact, ImageArtifact) else []
    return facts.images.get(artifact.sha256, own)


def _licence(artifact: Artifact, facts: Facts, policy: ScanPolicy) -> Licence:
    stated = policy.licences.stated.get(artifact.name)
    expression, source = (stated, "policy") if stated else facts.licences.get(artifact.sha256, (None, ""))
    return Licence(
        kind=artifact.kind,
        name=artifact.name,
        version=artifact.version,
        sha256=artifact.sha256,
        expression=expression,
        source=source,
    )
